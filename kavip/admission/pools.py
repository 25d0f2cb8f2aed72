"""
What is asked of a VIPPool.

Shape and overlap are judged by :mod:`kavip.ipam.pools`, with the controller's own parser; here stands what an edit or a
deletion does to the Services that hold addresses.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from kavip import names
from kavip.admission.chain import Caution, Check, Context, Finding, spec_part
from kavip.admission.verdict import counted, listed, nearest_key, quoted
from kavip.api.address import Address
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.ipam.impact import Stranded, Stranding, stranding
from kavip.ipam.pool import Pool, cautions, parse_pool
from kavip.ipam.ranges import find, first_overlap
from kavip.ipam.request import read_request
from kavip.names import Reason
from kavip.snapshot import Snapshot, service_ranges

_MOST_GROUPS: Final = 16  # that are looked for among the others

Findings = Iterator[Finding]
Cluster = Context[VIPPool]


def pool_is_sound(pool: VIPPool, context: Cluster) -> Findings:
    """Ranges, exclusions and reservations can be read and fit, and no other pool has the same addresses."""
    yield from context.snapshot.parsed_pools.check(pool)
    yield from map(Caution, cautions(pool))


def pool_is_outside_the_service_ranges(pool: VIPPool, context: Cluster) -> Findings:
    """None of its addresses is a cluster IP of some Service, now or later, as far as the ranges are known."""
    parsed, _ = parse_pool(pool)
    if parsed is None:
        return
    for name, cidr in service_ranges(context.snapshot.service_ranges.values()):
        if inside := first_overlap(parsed.ranges, cidr):
            what = f"{inside} lies in the cluster's own range for Services, {cidr} ({names.SERVICE_CIDR} {name})"
            yield Caution(f"spec.addresses: {what}; use others, for cluster IPs answer nobody outside")


def groups_exist(pool: VIPPool, context: Cluster) -> Findings:
    """The groups that may draw from the pool are there; where there is none at all, they come later."""
    groups = context.snapshot.groups
    missing = [(index, key) for index, key in enumerate(pool.spec.groups or ()) if key not in groups]
    if not groups:
        return
    for index, key in missing[:_MOST_GROUPS]:
        is_outside = key in context.snapshot.outside
        why = "lies in a namespace where groups do not count" if is_outside else "does not exist"
        meant = nearest_key(key, groups)
        hint = f'did you mean "{meant}"?' if meant else f"groups: {listed(sorted(groups), most=5)}"
        yield Caution(f"spec.groups[{index}]: group {quoted(key)} {why}; {hint}")
    if len(missing) > _MOST_GROUPS:
        yield Caution(f"spec.groups: {counted(len(missing) - _MOST_GROUPS, 'further group')} not found")


def nobody_is_stranded(pool: VIPPool, context: Cluster) -> Findings:
    """No address that a Service holds falls out of the pool."""
    new, _ = parse_pool(pool)
    if new is None:
        return
    effect = _effect(pool.name, pool, context.snapshot)
    refused, told = _by_field(effect.lost, new), _by_field(effect.external, new)
    for field in sorted(refused.keys() | told.keys()):
        yield from _findings(pool, field, "leaves", lost=refused[field], external=told[field])


def nobody_holds_an_address(pool: VIPPool, context: Cluster) -> Findings:
    """No Service holds an address of a pool that goes."""
    effect = _effect(pool.name, None, context.snapshot)
    yield from _findings(
        pool, "metadata.name", "deleting the pool leaves", lost=list(effect.lost), external=list(effect.external)
    )


def holders_still_match(pool: VIPPool, context: Cluster) -> Findings:
    """Those who hold addresses could have them anew: nobody moves, but their owners should know."""
    snapshot = context.snapshot
    new, _ = parse_pool(pool)
    old = snapshot.parsed_pools.get(pool.name)
    if new is None or old is None:
        return
    keys = {each.service.key for each in _effect(pool.name, pool, snapshot).misfits}
    if _terms(old) != _terms(new):
        holders = [(address, terms.key) for address, terms, standing in snapshot.ledger.assigned(old) if standing]
        keys |= {key for address, key in holders if _turns_away(address, key, old, new, snapshot)}
    if keys:
        yield Caution(f"spec: no longer serves {listed(sorted(keys), most=3)}; they keep their addresses, as stranded")


def _effect(name: str, new: VIPPool | None, snapshot: Snapshot) -> Stranding:
    """What the edit does; a pool that is not in force has no holders."""
    old = snapshot.pools.get(name)
    return stranding(old, new, snapshot.ledger) if old and snapshot.parsed_pools.get(name) else Stranding()


def _terms(pool: Pool) -> object:
    """Who may draw from *pool*."""
    return pool.auto_assign, pool.groups, pool.services, pool.namespaces


def _turns_away(address: Address, key: str, old: Pool, new: Pool, snapshot: Snapshot) -> bool:
    """Whether *new* does not give *address* to Service *key*, which *old* does."""
    service = snapshot.services.get(key)
    if service is None:
        return False
    request, _ = read_request(service, group=snapshot.group_of(service))
    labels = snapshot.namespace_labels(request.namespace)
    before, after = (
        (pool.auto_assign or pool.name == request.pool or address in request.wanted)
        and not pool.mismatch(request, labels)
        for pool in (old, new)
    )
    return before and not after


def _by_field(entries: tuple[Stranded, ...], pool: Pool) -> defaultdict[str, list[Stranded]]:
    """*entries* by the field through which *pool* has lost them."""
    result: defaultdict[str, list[Stranded]] = defaultdict(list)
    for each in entries:
        result[_field_without(each.address, pool)].append(each)
    return result


def _field_without(address: Address, pool: Pool) -> str:
    if find(pool.ranges, address) is None:
        return "spec.addresses"
    return "spec.exclude" if find(pool.usable, address) is None else "spec.avoidBuggyIPs"


def _findings(pool: VIPPool, field: str, what: str, *, lost: list[Stranded], external: list[Stranded]) -> Findings:
    """Refuse what stands in a status, unless the annotation allows it; of externalIPs, warn."""
    if lost:
        count = counted(len({each.address for each in lost}), "address", plural="addresses")
        text = f"{what} {count} in use without a pool: {listed(lost)}"
        if pool.metadata.annotation(names.ALLOW_STRANDING_ANNOTATION) == "true":
            yield Caution(f"{field}: {text}")
        else:
            remedy = f'move these Services first, or annotate the pool {names.ALLOW_STRANDING_ANNOTATION}: "true"'
            yield Refusal(Reason.STRANDED, f"{text}; {remedy}", field)
    if external:
        yield Caution(f"{field}: {what} externalIPs without a pool: {listed(external, most=3)}")


CHAIN: Final[tuple[Check[VIPPool], ...]] = (
    Check(pool_is_sound, reads=spec_part),
    Check(pool_is_outside_the_service_ranges, reads=lambda pool, _: pool.spec.addresses),
    Check(groups_exist, reads=spec_part),
    Check(nobody_is_stranded, reads=spec_part),
    Check(holders_still_match, reads=spec_part),
)
DELETION: Final[tuple[Check[VIPPool], ...]] = (Check(nobody_holds_an_address, reads=spec_part),)
