"""
``spec.externalIPs`` of a Service: which addresses its author may use.

A user who may write this field may divert the traffic of any address to the Service (CVE-2020-8554). So an
administrator must have permitted the address: by OpenShift's policy if there is one, else by a VIPPool. This does not
apply to a user who may ``create`` ``services/externalips``. Even that user may not take an address in use for a Service
that kavip manages: keepalived would move the address away from its holder.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final, Self

from kavip import names
from kavip.admission.chain import Context, Exemptible, Findings
from kavip.admission.text import listed, quoted
from kavip.admission.verdict import AdmissionWarning, MissingReference
from kavip.api.address import WANTED, Address, parse_address
from kavip.api.cluster import ExternalIP
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.ipam import messages
from kavip.ipam.pool import Pool
from kavip.ipam.ranges import FAMILY_NAMES, read_network
from kavip.ipam.request import Request, read_request
from kavip.names import Reason
from kavip.snapshot import Snapshot

FIELD: Final = "spec.externalIPs"
_SHOWN: Final = 5  # pools in a message, and ranges of each


def external_ips_are_allowed(service: Service, context: Context[Service]) -> Findings:
    """The Service may use each new external IP."""
    if context.options.external_ips_scope != "off":
        yield from _evaluate(service, context)


def unmanaged_external_ips_are_allowed(service: Service, context: Context[Service]) -> Findings:
    """With ``externalIPs.scope: all``, a Service that kavip does not manage may use each new external IP."""
    if context.options.external_ips_scope == "all":
        for finding in _evaluate(service, context):
            yield Exemptible(finding) if isinstance(finding, Refusal) else finding


def external_ips(service: Service, _: str) -> object:
    """The field that these rules read."""
    return service.spec.external_ips


def _evaluate(service: Service, context: Context[Service]) -> Findings:
    texts = service.spec.external_ips
    if not texts:
        return
    if len(texts) > names.MAX_EXTERNAL_IPS:  # the others are not read
        message = f"{len(texts):,} entries; want at most {names.MAX_EXTERNAL_IPS}: use several Services"
        yield Refusal(Reason.INVALID_REQUEST, message, FIELD)
    request, _ = read_request(service, group=context.group)
    before = (context.old.spec.external_ips if context.old else None) or ()
    accepted = {*service.ingress_addresses, *(context.old.external_addresses if context.old else ())}
    quota = _QuotaUse.of(service, context)
    accepted -= _newly_unserved(service, request, context)
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
            family = FAMILY_NAMES[address.family]
            yield AdmissionWarning(f"{text}: the Service has no {family}, so it does not answer on this address", field)
        yield from _evaluate_address(address, request, quota, quoted(text), field)
        accepted.add(address)  # a duplicate is reported once and counted once


def _newly_unserved(service: Service, request: Request, context: Context[Service]) -> set[Address]:
    """The kept external IPs whose pool served the old Service, but does not serve the new group or labels."""
    old, snapshot = context.old, context.snapshot
    if old is None:
        return set()
    before, _ = read_request(old, group=context.old_group)
    if (before.group, before.labels) == (request.group, request.labels):
        return set()
    labels = snapshot.namespace_labels(request.namespace)
    kept = set(old.external_addresses).difference(service.ingress_addresses)
    pools = ((address, snapshot.parsed_pools.pool_of(address)) for address in kept)
    return {
        address
        for address, pool in pools
        if pool and pool.mismatch(request, labels) and not pool.mismatch(before, labels)
    }


def _unreadable(text: str, field: str, error: BadInput) -> Refusal:
    """The API server and kube-proxy accept leading zeros and mapped IPv4; kavip would serve an unchecked address."""
    remedy = "want one IPv4 or IPv6 address, without leading zeros" if error.remedy == WANTED else error.remedy
    return Refusal(Reason.INVALID_REQUEST, f"{quoted(text)}: {remedy}", field)


@dataclass(frozen=True, slots=True)
class _QuotaUse:
    """What the Service uses of the quota of each pool, counted address by address; *reported*: the message by pool."""

    snapshot: Snapshot
    used: Counter[str]
    reported: dict[str, str]

    @classmethod
    def of(cls, service: Service, context: Context[Service]) -> Self:
        """The start of a review: nothing is used; addresses that an UPDATE frees count as negative."""
        snapshot, old = context.snapshot, context.old
        removed = {*(old.external_addresses if old else ())}.difference(service.virtual_ips)
        freed = [
            each
            for each in removed
            if all(terms.key == service.key for terms in snapshot.ledger.claims.claimants(each))
        ]
        pools = Counter(pool.name for each in freed if (pool := snapshot.parsed_pools.pool_of(each)))
        return cls(snapshot, Counter({name: -count for name, count in pools.items()}), {})

    def charge(self, address: Address, pool: Pool, request: Request) -> str:
        """Charge *address* to the quota of *pool*; return why the quota is exceeded, or ""."""
        ledger = self.snapshot.ledger
        left = ledger.offers.quota_left(pool, request.namespace)
        if left is None or not ledger.offers.costs_quota(address, request.namespace):
            return ""
        if self.used[pool.name] < left:
            self.used[pool.name] += 1
            return ""
        if pool.name not in self.reported:
            self.reported[pool.name] = messages.quota_exceeded(pool, request, ledger).message
        return self.reported[pool.name]


def _evaluate_address(address: Address, request: Request, quota: _QuotaUse, text: str, field: str) -> Findings:
    snapshot = quota.snapshot
    if refusal := _check_use(address, request, snapshot):
        yield replace(refusal, message=f"{text}: {refusal.message}", field=field)
    elif refusal := _check_permission(address, request, quota):
        yield Exemptible(replace(refusal, message=f"{text}: {refusal.message}", field=field))
        if refusal.reason is Reason.ADDRESS_NOT_IN_POOL:
            yield MissingReference(names.VIP_POOL, address=address)
    elif not snapshot.pools and _platform(snapshot).policy is None:
        message = f"{address}: no VIPPool and no platform policy restricts external IPs; create a VIPPool"
        yield AdmissionWarning(message, field)


def _check_use(address: Address, request: Request, snapshot: Snapshot) -> Refusal | None:
    """The refusal of an address that a node, a group or another Service has, or that cools down."""
    if owner := snapshot.ledger.owner(address):
        return _not_allowed(f"is an address of {owner}; choose another")
    if request.group:
        request = snapshot.ledger.with_default_group(request)
    if rival := snapshot.ledger.claims.rival(address, request.terms):
        if not request.group:  # kavip does not manage the Service, so it cannot share
            return Refusal(Reason.ADDRESS_IN_USE, f"is used by {rival}; choose another address")
        refusal = messages.in_use(address, rival, request)
        return replace(refusal, message=refusal.message.removeprefix(f"address {address} "))
    if why := snapshot.ledger.cooldown.blocking(address, request.key):  # an external IP cannot wait: it is used at once
        return Refusal(Reason.ADDRESS_IN_USE, f"{why}; choose another address, or retry then")
    return None


def _check_permission(address: Address, request: Request, quota: _QuotaUse) -> Refusal | None:
    """The refusal of an address that no administrator has permitted; a permitted one is charged to the quota."""
    snapshot = quota.snapshot
    platform, pool = _platform(snapshot), snapshot.parsed_pools.pool_of(address)
    if _is_covered(address, platform.auto_assign_cidrs):
        return None
    if platform.policy is not None:
        if _is_covered(address, platform.policy.rejected_cidrs):
            return _not_allowed("is in spec.externalIP.policy.rejectedCIDRs of Network cluster; choose another address")
        if not _is_covered(address, platform.policy.allowed_cidrs):
            return _not_allowed("is not in spec.externalIP.policy.allowedCIDRs of Network cluster; choose one that is")
    if pool is not None:
        return _check_pool(address, pool, request, quota)
    if platform.policy is not None or not snapshot.pools:
        return None
    return Refusal(Reason.ADDRESS_NOT_IN_POOL, f"is in no VIPPool; choose an address from {_choices(snapshot.pools)}")


def _check_pool(address: Address, pool: Pool, request: Request, quota: _QuotaUse) -> Refusal | None:
    """The refusal of an address that *pool* does not give to this Service; ``autoAssign: false`` does not matter."""
    if bar := pool.why_barred(address, request.key):
        return _not_allowed(f"{bar}; choose another address")
    if mismatch := pool.mismatch(request, quota.snapshot.namespace_labels(request.namespace)):
        message = f"pool {pool.name} {mismatch}; choose an address from another pool"
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, message)
    exceeded = quota.charge(address, pool, request)
    return Refusal(Reason.QUOTA_EXCEEDED, exceeded) if exceeded else None


def _choices(pools: Mapping[str, VIPPool]) -> str:
    """The first pools with their first ranges. Only these are formatted: a Service may have many refused addresses."""
    shown = [f"{name} ({listed(pools[name].spec.addresses, most=_SHOWN)})" for name in nsmallest(_SHOWN, pools)]
    return ", ".join(shown) + (f" and {len(pools) - _SHOWN} more" if len(pools) > _SHOWN else "")


def _not_allowed(message: str) -> Refusal:
    return Refusal(Reason.ADDRESS_NOT_ALLOWED, message)


def _platform(snapshot: Snapshot) -> ExternalIP:
    """OpenShift's rules for external IPs; empty on other clusters."""
    network = snapshot.network
    return (network.spec.external_ip if network else None) or ExternalIP()


def _is_covered(address: Address, cidrs: Iterable[str] | None) -> bool:
    """Whether one of *cidrs*, of OpenShift's object, holds *address*; a malformed one holds no address."""
    return any(span.holds(address) for span in map(read_network, cidrs or ()) if span)
