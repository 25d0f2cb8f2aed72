"""
``spec.externalIPs`` of a Service: which addresses its author may take.

Whoever may write this field may draw the traffic of any address to himself (CVE-2020-8554), so an address must be one
that an administrator has given away: by OpenShift's policy where there is one, else by a VIPPool. That does not bind
who may ``create`` ``services/externalips``; of a managed Service even he may not take what somebody else has, for
keepalived would take it away.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from heapq import nsmallest
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from kavip import names
from kavip.admission.chain import Caution, Context, Finding, Pardonable
from kavip.admission.verdict import Awaited, listed, quoted
from kavip.api.address import WANTED, Address, parse_address
from kavip.api.cluster import ExternalIP
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.ipam import messages
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.ipam.request import Request, read_request
from kavip.names import Reason
from kavip.snapshot import Snapshot

FIELD = "spec.externalIPs"
_SHOWN = 5  # of the pools, and of the ranges of each


def external_ips_are_allowed(service: Service, context: Context[Service]) -> Iterator[Finding]:
    """Each new external IP is one that this Service may have."""
    if context.options.external_ips_scope != "off":
        yield from _found(service, context)


def any_external_ips_are_allowed(service: Service, context: Context[Service]) -> Iterator[Finding]:
    """The same of a Service that kavip does not manage, where ``externalIPs.scope`` is ``all``."""
    if context.options.external_ips_scope == "all":
        for finding in _found(service, context):
            yield Pardonable(finding) if isinstance(finding, Refusal) else finding


def written(service: Service, _: str) -> object:
    """What these rules are about."""
    return service.spec.external_ips


def _found(service: Service, context: Context[Service]) -> Iterator[Finding]:
    texts = service.spec.external_ips
    if not texts:
        return
    if len(texts) > names.MAX_EXTERNAL_IPS:  # the rest is not read
        message = f"{len(texts):,} entries; want at most {names.MAX_EXTERNAL_IPS}: spread them over several Services"
        yield Refusal(Reason.INVALID_REQUEST, message, FIELD)
    request, _ = read_request(service, group=context.group)
    before = (context.old.spec.external_ips if context.old else None) or ()
    accepted = {*service.ingress_addresses, *(context.old.external_addresses if context.old else ())}
    quotas = _Quotas.of(service, context)
    for index, text in enumerate(texts[: names.MAX_EXTERNAL_IPS]):
        field = f"{FIELD}[{index}]"
        try:
            address = parse_address(text, field)
        except BadInput as error:
            if text not in before:
                yield _unreadable(text, field, error)
            continue
        if address in accepted:
            continue
        if address.family not in request.families:
            yield Caution(
                f"{field}: {text}: the Service has no {FAMILY_NAMES[address.family]}; it will not answer there"
            )
        yield from _judged(address, request, quotas, quoted(text), field)
        accepted.add(address)  # said once, and taken once


def _unreadable(text: str, field: str, error: BadInput) -> Refusal:
    """The API server and kube-proxy take leading zeros and mapped IPv4, and would serve what was never judged."""
    remedy = "want an address without leading zeros" if error.remedy == WANTED else error.remedy
    return Refusal(Reason.INVALID_REQUEST, f"{quoted(text)}: {remedy}", field)


@dataclass(frozen=True, slots=True)
class _Quotas:
    """What a Service *takes* of the quota of each pool, by name, address by address; and what was *told* of it."""

    snapshot: Snapshot
    takes: Counter[str]
    told: dict[str, str]

    @classmethod
    def of(cls, service: Service, context: Context[Service]) -> "_Quotas":
        """Nothing yet, and less than that where an UPDATE gives addresses back that nobody else has."""
        snapshot, old = context.snapshot, context.old
        gone = {*(old.external_addresses if old else ())}.difference(service.virtual_ips)
        own = [each for each in gone if all(terms.key == service.key for terms in snapshot.ledger.claimants(each))]
        places = Counter(pool.name for each in own if (pool := snapshot.parsed_pools.pool_of(each)))
        return cls(snapshot, Counter({name: -count for name, count in places.items()}), {})

    def exceeded(self, address: Address, pool: Pool, request: Request) -> str:
        """Take *address* of *pool*; why that is too much, or ""."""
        ledger = self.snapshot.ledger
        left = ledger.quota_left(pool, request.namespace)
        if left is None or not ledger.costs_quota(address, request.namespace):
            return ""
        if self.takes[pool.name] < left:
            self.takes[pool.name] += 1
            return ""
        if pool.name not in self.told:
            self.told[pool.name] = messages.quota(pool, request, ledger).message
        return self.told[pool.name]


def _judged(address: Address, request: Request, quotas: _Quotas, text: str, field: str) -> Iterator[Finding]:
    snapshot = quotas.snapshot
    if refusal := _free(address, request, snapshot):
        yield replace(refusal, message=f"{text}: {refusal.message}", field=field)
    elif refusal := _given_away(address, request, quotas):
        yield Pardonable(replace(refusal, message=f"{text}: {refusal.message}", field=field))
        if refusal.reason is Reason.ADDRESS_NOT_IN_POOL:
            yield Awaited(names.VIP_POOL, address=address)
    elif not snapshot.pools and _platform(snapshot).policy is None:
        yield Caution(f"{field}: {address}: no VIPPool and no platform policy says who may have it; create a VIPPool")


def _given_away(address: Address, request: Request, quotas: _Quotas) -> Refusal | None:
    """Why no administrator has given *address* to this Service."""
    snapshot = quotas.snapshot
    platform, pool = _platform(snapshot), snapshot.parsed_pools.pool_of(address)
    if _covered(address, platform.auto_assign_cidrs):
        return None
    if platform.policy is not None:
        if _covered(address, platform.policy.rejected_cidrs):
            return _not_allowed(
                "inside spec.externalIP.policy.rejectedCIDRs of Network cluster; choose another address"
            )
        if not _covered(address, platform.policy.allowed_cidrs):
            return _not_allowed("outside spec.externalIP.policy.allowedCIDRs of Network cluster; choose one inside")
    if pool is not None:
        return _from_pool(address, pool, request, quotas)
    if platform.policy is not None or not snapshot.pools:
        return None
    return Refusal(Reason.ADDRESS_NOT_IN_POOL, f"in no VIPPool; choose an address of {_choices(snapshot.pools)}")


def _choices(pools: Mapping[str, VIPPool]) -> str:
    """The first pools with their first ranges: no more is written than is read, for there may be many addresses."""
    shown = [f"{name} ({listed(pools[name].spec.addresses, most=_SHOWN)})" for name in nsmallest(_SHOWN, pools)]
    return ", ".join(shown) + (f" and {len(pools) - _SHOWN} more" if len(pools) > _SHOWN else "")


def _from_pool(address: Address, pool: Pool, request: Request, quotas: _Quotas) -> Refusal | None:
    """Why *pool* keeps *address* from this Service; ``autoAssign: false`` does not."""
    if bar := pool.bar(address, request.key):
        return _not_allowed(f"{bar}; choose another address")
    if mismatch := pool.mismatch(request, quotas.snapshot.namespace_labels(request.namespace)):
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"pool {pool.name} {mismatch}; choose an address of another pool")
    exceeded = quotas.exceeded(address, pool, request)
    return Refusal(Reason.QUOTA_EXCEEDED, exceeded) if exceeded else None


def _free(address: Address, request: Request, snapshot: Snapshot) -> Refusal | None:
    """Who else has *address*."""
    if owner := snapshot.ledger.owner(address):
        return _not_allowed(f"{owner} has this address itself; choose another")
    if request.group:
        request = snapshot.ledger.placed(request)
    if rival := snapshot.ledger.rival(address, request.terms):
        if not request.group:  # kavip does not manage it, so it can share nothing
            return Refusal(Reason.ADDRESS_IN_USE, f"is used by {rival}; choose another address")
        refusal = messages.in_use(address, rival, request)
        return replace(refusal, message=refusal.message.removeprefix(f"address {address} "))
    if rest := snapshot.ledger.rests.keeping(address, request.key):  # external IPs cannot wait: they hold at once
        return Refusal(Reason.ADDRESS_IN_USE, f"{rest}; choose another address, or come back then")
    return None


def _not_allowed(message: str) -> Refusal:
    return Refusal(Reason.ADDRESS_NOT_ALLOWED, message)


def _platform(snapshot: Snapshot) -> ExternalIP:
    """What OpenShift says about external IPs; nothing on other clusters."""
    network = snapshot.network
    return (network.spec.external_ip if network else None) or ExternalIP()


def _covered(address: Address, cidrs: Iterable[str] | None) -> bool:
    networks = (_network(text) for text in cidrs or ())
    return any(network is not None and ip_address(str(address)) in network for network in networks)


@lru_cache(maxsize=256)
def _network(text: str) -> IPv4Network | IPv6Network | None:
    """One CIDR of somebody else's object; None where it is none, which then covers nothing."""
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None
