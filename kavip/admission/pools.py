"""
The rules for a VIPPool.

:mod:`kavip.ipam.pools`, the parser of the controller, checks the spec and overlaps. The rules here check what an edit
or a deletion does to Services that hold addresses.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kavip import names
from kavip.admission import poollinks
from kavip.admission.chain import Context, Findings, Rule, spec_part
from kavip.admission.poollinks import parse_once
from kavip.admission.text import counted, listed, nearest_key, quoted
from kavip.admission.verdict import AdmissionWarning
from kavip.api.address import Address
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam import annotations
from kavip.ipam.impact import PoolImpact, StrandedService, assess_edit
from kavip.ipam.pool import Pool, cautions
from kavip.ipam.ranges import Range, find, first_overlap, subtract
from kavip.ipam.request import read_request
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.snapshot.clusterranges import service_ranges

_MAX_GROUPS: Final = 16  # each missing group is compared with all others

PoolContext = Context[VIPPool]


def pool_spec_is_valid(pool: VIPPool, context: PoolContext) -> Findings:
    """Ranges, exclusions and reservations are valid, and no other pool has the same addresses."""
    parsed, findings = parse_once(pool, context)
    yield from context.snapshot.parsed_pools.check(parsed, findings)
    if parsed is not None:
        yield from map(AdmissionWarning, cautions(parsed))


def addresses_are_outside_service_cidrs(pool: VIPPool, context: PoolContext) -> Findings:
    """No address is in a Service CIDR of the cluster, as far as these are known."""
    parsed, _ = parse_once(pool, context)
    if parsed is None:
        return
    for cidr, what in service_ranges(context.snapshot.service_ranges.values()):
        if inside := first_overlap(parsed.ranges, cidr):
            message = f"{inside} is in {what}, which is not reachable from outside; use other addresses"
            yield AdmissionWarning(message, "spec.addresses")


def addresses_are_outside_pod_ranges(pool: VIPPool, context: PoolContext) -> Findings:
    """
    No address is in a pod range of a node (``Node.spec.podCIDRs``).

    An overlap with what the stored pool assigns is only a warning: a node can claim any range, and so takes nothing.
    """
    usable, stored = _usable(pool, context), _usable(context.old, context)
    found = context.snapshot.pod_ranges.overlapping(usable)
    added = subtract(usable, stored)
    new = [each for each in found if first_overlap(added, each.span)]
    if new:
        message = f"overlaps {listed(new, most=3)}; list it in spec.exclude, or use other addresses"
        yield Refusal(Reason.ADDRESS_NOT_ALLOWED, f"spec.addresses: {message}", "spec.addresses")
    if known := [each for each in found if each not in new]:
        message = f"overlaps {listed(known, most=3)}; list it in spec.exclude if pods have the addresses"
        yield AdmissionWarning(message, "spec.addresses")


def addresses_are_not_the_api_server(pool: VIPPool, context: PoolContext) -> Findings:
    """
    No address is an endpoint of the API server (Service ``default/kubernetes``): as a VIP it cuts nodes off.

    An address that the stored pool has is only a warning: the ledger never assigns it.
    """
    old = context.old
    parsed, stored = parse_once(pool, context)[0], parse_once(old, context)[0] if old is not None else None
    for address in sorted(context.snapshot.api_server_addresses):
        if parsed is None or not parsed.is_usable(address):
            continue
        message = f"{address} is an address of {names.API_SERVER}"
        if stored is not None and stored.is_usable(address):
            yield AdmissionWarning(f"{message}, and is never assigned; list it in spec.exclude", "spec.addresses")
        else:
            remedy = "list it in spec.exclude, or use other addresses"
            yield Refusal(Reason.ADDRESS_NOT_ALLOWED, f"{message}; {remedy}", "spec.addresses")


def groups_exist(pool: VIPPool, context: PoolContext) -> Findings:
    """The groups that may use the pool exist; not checked in a cluster without any group."""
    groups = context.snapshot.groups
    missing = [(index, key) for index, key in enumerate(pool.spec.groups or ()) if key not in groups]
    if not groups:
        return
    for index, key in missing[:_MAX_GROUPS]:
        is_outside = key in context.snapshot.outside
        why = "is in a namespace whose groups kavip ignores (groupNamespaces)" if is_outside else "does not exist"
        similar = nearest_key(key, groups)
        hint = f'did you mean "{similar}"?' if similar else f"groups: {listed(sorted(groups), most=5)}"
        yield AdmissionWarning(f"group {quoted(key)} {why}; {hint}", f"spec.groups[{index}]")
    if len(missing) > _MAX_GROUPS:
        yield AdmissionWarning(f"{counted(len(missing) - _MAX_GROUPS, 'further group')} not found", "spec.groups")


def edit_strands_no_address(pool: VIPPool, context: PoolContext) -> Findings:
    """The edit leaves every address that a Service holds in the pool."""
    new, _ = parse_once(pool, context)
    if new is None:
        return
    effect = _effect(pool.name, new, context)
    refused, warned = _by_field(effect.lost, new), _by_field(effect.external, new)
    for field in sorted(refused.keys() | warned.keys()):
        yield from _findings(pool, field, "leaves", lost=refused[field], external=warned[field])


def deletion_strands_no_address(pool: VIPPool, context: PoolContext) -> Findings:
    """No Service holds an address of the deleted pool."""
    effect = _effect(pool.name, None, context)
    yield from _findings(
        pool, "metadata.name", "deleting the pool leaves", lost=list(effect.lost), external=list(effect.external)
    )


def holders_are_still_served(pool: VIPPool, context: PoolContext) -> Findings:
    """The pool still serves the Services that hold its addresses; the others keep theirs with reason ``Stranded``."""
    snapshot = context.snapshot
    new, _ = parse_once(pool, context)
    old = snapshot.parsed_pools.get(pool.name)
    if new is None or old is None:
        return
    keys = {each.service.key for each in _effect(pool.name, new, context).misfits}
    keys |= set(_no_longer_served(old, new, snapshot))
    if keys:
        shown = listed(sorted(keys), most=3)
        yield AdmissionWarning(f"no longer serves {shown}; they keep their addresses with reason Stranded", "spec")


def _usable(pool: VIPPool | None, context: PoolContext) -> tuple[Range, ...]:
    """The ranges that *pool* assigns: its addresses without the excluded ones."""
    parsed = parse_once(pool, context)[0] if pool is not None else None
    return parsed.usable if parsed is not None else ()


def _effect(name: str, new: Pool | None, context: PoolContext) -> PoolImpact:
    """
    What the edit does to holders, once a review; a pool that is not in force has none.

    Addresses that the controller of another class assigned do not count: they stay without the pool.
    """
    snapshot = context.snapshot
    old = snapshot.pools.get(name)
    if old is None or snapshot.parsed_pools.get(name) is None or (before := parse_once(old, context)[0]) is None:
        return PoolImpact()
    if id(new) not in context.parsed:
        found = assess_edit(before, new, snapshot.ledger)
        ours = replace(found, lost=_ours(found.lost, snapshot), misfits=_ours(found.misfits, snapshot))
        context.parsed[id(new)] = ours
    effect: PoolImpact = context.parsed[id(new)]
    return effect


def _ours(entries: tuple[StrandedService, ...], snapshot: Snapshot) -> tuple[StrandedService, ...]:
    """Those of *entries* whose Services do not have the class of another controller."""
    return tuple(each for each in entries if not _has_other_class(snapshot.services.get(each.service.key)))


def _has_other_class(service: Service | None) -> bool:
    return service is not None and service.has_foreign_class


def _terms(pool: Pool) -> object:
    """The fields that decide which Services *pool* serves."""
    return pool.auto_assign, pool.groups, pool.services, pool.namespaces


def _no_longer_served(old: Pool, new: Pool, snapshot: Snapshot) -> Iterator[str]:
    """
    The Services with addresses in status that *old* serves and *new* does not.

    Selectors are evaluated once for all Services of a group and a namespace that have the same labels.
    """
    if _terms(old) == _terms(new):
        return
    served: dict[object, tuple[bool, bool]] = {}
    for address, terms, in_status in snapshot.ledger.claims_in(old):
        service = snapshot.services.get(terms.key) if in_status else None
        if service is None:
            continue
        namespace, labels, group = service.metadata.namespace, service.metadata.labels or {}, snapshot.group_of(service)
        audience = group, namespace, tuple(labels.items())
        if audience not in served:
            key, of_namespace = service.declared_group if group is None else group, snapshot.namespace_labels(namespace)
            served[audience] = old.serves(key, of_namespace, labels), new.serves(key, of_namespace, labels)
        before, after = served[audience]
        if not before or (after and new.auto_assign):
            continue
        is_named = (after or not old.auto_assign) and _names(service, address, old)
        if (old.auto_assign or is_named) and not (after and is_named):
            yield terms.key


def _names(service: Service, address: Address, pool: Pool) -> bool:
    """Whether *service* requests *pool* or *address* by name."""
    if service.metadata.annotation(names.POOL_ANNOTATION) == pool.name:
        return True
    if not service.metadata.annotation(names.ADDRESSES_ANNOTATION) and not service.spec.load_balancer_ip:
        return False
    return address in read_request(service)[0].wanted


def _by_field(entries: tuple[StrandedService, ...], pool: Pool) -> defaultdict[str, list[StrandedService]]:
    """*entries* by the field of *pool* that excludes their address."""
    result: defaultdict[str, list[StrandedService]] = defaultdict(list)
    for each in entries:
        result[_excluding_field(each.address, pool)].append(each)
    return result


def _excluding_field(address: Address, pool: Pool) -> str:
    if find(pool.ranges, address) is None:
        return "spec.addresses"
    return "spec.exclude" if find(pool.usable, address) is None else "spec.avoidBuggyIPs"


def _findings(
    pool: VIPPool, field: str, what: str, *, lost: list[StrandedService], external: list[StrandedService]
) -> Findings:
    """A refusal for assigned addresses, unless the annotation allows it; a warning for externalIPs."""
    if lost:
        count = counted(len({each.address for each in lost}), "address", plural="addresses")
        text = f"{what} {count} in use without a pool: {listed(lost)}"
        if pool.metadata.annotation(names.ALLOW_STRANDING_ANNOTATION) == "true":
            yield AdmissionWarning(text, field)
        else:
            remedy = f'move these Services first, or annotate the pool {names.ALLOW_STRANDING_ANNOTATION}: "true"'
            yield Refusal(Reason.STRANDED, f"{text}; {remedy}", field)
    if external:
        yield AdmissionWarning(f"{what} externalIPs without a pool: {listed(external, most=3)}", field)


def _links(pool: VIPPool, _: str) -> object:
    return pool.spec.interface, pool.spec.routing, pool.spec.addresses


def annotations_are_known(pool: VIPPool, _: PoolContext) -> Findings:
    """Annotations of kavip are those that it reads on a pool."""
    yield from map(AdmissionWarning, annotations.unknown_on(names.VIP_POOL, pool.metadata.annotations))


CHAIN: Final[tuple[Rule[VIPPool], ...]] = (
    Rule(annotations_are_known, reads=lambda pool, _: pool.metadata.annotations),
    Rule(pool_spec_is_valid, reads=spec_part),
    Rule(addresses_are_not_the_api_server, reads=spec_part),
    Rule(addresses_are_outside_service_cidrs, reads=lambda pool, _: pool.spec.addresses),
    Rule(addresses_are_outside_pod_ranges, reads=lambda pool, _: (pool.spec.addresses, pool.spec.exclude)),
    Rule(groups_exist, reads=spec_part),
    Rule(edit_strands_no_address, reads=spec_part),
    Rule(holders_are_still_served, reads=spec_part),
    Rule(poollinks.routing_table_is_free, reads=_links),
    Rule(poollinks.every_family_has_a_gateway, reads=_links),
    Rule(poollinks.gateway_is_another_machine, reads=_links),
    Rule(poollinks.router_ids_suffice_on_the_interface, reads=_links),
    Rule(poollinks.running_vips_are_moved, reads=_links),
)
DELETION: Final[tuple[Rule[VIPPool], ...]] = (
    Rule(deletion_strands_no_address, reads=spec_part),
    Rule(poollinks.deletion_moves_no_vip, reads=_links),
)
