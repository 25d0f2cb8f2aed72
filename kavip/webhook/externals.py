"""
``spec.externalIPs`` of a managed Service: which addresses its author may take (contract 8, externalIPs).

Whoever may write this field may draw the traffic of any address to himself (CVE-2020-8554), so an address must be one
that an administrator has given away: by OpenShift's policy where there is one, else by a VIPPool.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from kavip.api.address import Address, read_address
from kavip.api.cluster import ExternalIP
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.addresses import FAMILY_NAMES
from kavip.ipam.pool import Pool
from kavip.ipam.request import Request, read_request
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.webhook.checks import Caution, Context, Finding
from kavip.webhook.verdict import listed

FIELD = "spec.externalIPs"


def external_ips_are_allowed(service: Service, context: Context[Service]) -> Iterator[Finding]:
    """Each new external IP is one that this Service may have."""
    texts = service.spec.external_ips or ()
    if not texts or context.options.external_ips_scope == "off":
        return
    snapshot = context.snapshot
    request, _ = read_request(service, group=context.group)
    accepted = {*service.ingress_addresses, *(context.old.external_addresses if context.old else ())}
    for index, text in enumerate(texts):
        address = read_address(text)
        if address is None:  # the API server and kube-proxy take leading zeros, and would serve what was never judged
            yield Refusal(
                Reason.INVALID_REQUEST, f'"{text}": want an address without leading zeros', f"{FIELD}[{index}]"
            )
            continue
        if address in accepted:
            continue
        for finding in _judged(address, request, snapshot):
            if isinstance(finding, Refusal):
                yield Refusal(finding.reason, f'"{text}": {finding.message}', f"{FIELD}[{index}]")
            else:
                yield Caution(f"{FIELD}[{index}]: {text}: {finding.message}")


def _judged(address: Address, request: Request, snapshot: Snapshot) -> Iterator[Refusal | Caution]:
    if address.family not in request.families:
        yield Caution(f"the Service has no {FAMILY_NAMES[address.family]}; it will not answer there")
    refusal = _given_away(address, request, snapshot) or _free(address, request, snapshot)
    if refusal:
        yield refusal
    elif not snapshot.pools and _platform(snapshot).policy is None:
        yield Caution("no VIPPool and no platform policy says who may have it; create a VIPPool")


def _given_away(address: Address, request: Request, snapshot: Snapshot) -> Refusal | None:
    """Why no administrator has given *address* to this Service."""
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
        return _from_pool(address, pool, request, snapshot)
    if platform.policy is not None or not snapshot.pools:
        return None
    pools = listed(
        [f"{name} ({', '.join(wire.spec.addresses)})" for name, wire in sorted(snapshot.pools.items())], most=5
    )
    return Refusal(Reason.ADDRESS_NOT_IN_POOL, f"in no VIPPool; choose an address of {pools}")


def _from_pool(address: Address, pool: Pool, request: Request, snapshot: Snapshot) -> Refusal | None:
    """Why *pool* keeps *address* from this Service; ``autoAssign: false`` does not."""
    if bar := pool.bar(address, request.key):
        return _not_allowed(f"{bar}; choose another address")
    if mismatch := pool.mismatch(request, snapshot.namespace_labels(request.namespace)):
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"pool {pool.name} {mismatch}; choose an address of another pool")
    left = snapshot.ledger.quota_left(pool, request.namespace)
    if left == 0 and snapshot.ledger.costs_quota(address, request.namespace):
        message = (
            f"namespace {request.namespace} holds all {pool.max_per_namespace} addresses that pool {pool.name} grants"
        )
        return Refusal(Reason.QUOTA_EXCEEDED, f"{message}; free one, or have spec.maxPerNamespace raised")
    return None


def _free(address: Address, request: Request, snapshot: Snapshot) -> Refusal | None:
    """Who else has *address*."""
    if owner := snapshot.ledger.owner(address):
        return _not_allowed(f"{owner} has this address itself; choose another")
    if rival := snapshot.ledger.rival(address, request.terms):
        return Refusal(
            Reason.ADDRESS_IN_USE, f"in use by {rival}; choose another address, or share it by kavip.io/sharing-key"
        )
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
