"""
What is asked of a KeepalivedGroup.

Its own shape is judged by :mod:`kavip.vrrp.groups`, which needs no other object; here stands what does.
"""

from collections.abc import Iterator
from typing import Final

from kavip import names
from kavip.admission import disruption, vrids
from kavip.admission.chain import Caution, Check, Context, Finding, spec_part
from kavip.admission.verdict import counted, listed, quoted
from kavip.api.address import read_address
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.api.scheduling import fields_of
from kavip.names import Reason
from kavip.vrrp import groups as shape
from kavip.vrrp import routerids

_DEFAULT_FIELD: Final = f"metadata.labels[{names.DEFAULT_GROUP_LABEL}]"
_BLACKLIST_FIELD: Final = "spec.blacklistRouterIDs"
_OPENSHIFT_FIELD: Final = "spec.openshiftClusterName"

Findings = Iterator[Finding]
Cluster = Context[KeepalivedGroup]


def shape_is_sound(group: KeepalivedGroup, _: Cluster) -> Findings:
    """What the group says of itself."""
    yield from shape.check_group(group)


def namespace_counts(group: KeepalivedGroup, context: Cluster) -> Findings:
    """Groups count in this namespace (``groupNamespaces``)."""
    namespace, counting = group.metadata.namespace, context.snapshot.group_namespaces
    if not context.snapshot.has_groups(namespace):
        message = f'"{namespace}": groups do not count there; create it in {listed(sorted(counting), most=5)}'
        yield Refusal(Reason.NAMESPACE_NOT_ALLOWED, message, "metadata.namespace")


def router_ids_suffice(group: KeepalivedGroup, context: Cluster) -> Findings:
    """Blacklist and segment leave enough VRIDs for what the group holds now."""
    usage, needed = vrids.Census(context.snapshot).usage(group), vrids.needs(group, context.snapshot)
    if routerids.capacity(routerids.blacklist_of(group.spec), frozenset()) < needed and group.is_shared:
        return  # the shape is wrong already, whatever else is in use
    if usage.left < 0:
        message = (
            f"the instances of this group need {counted(needed, 'virtual router ID')}, "
            f"but only {max(needed + usage.left, 0)} can be had: {usage}; "
            "blacklist fewer, choose another segment, or set spec.instances.mode: Shared"
        )
        yield Refusal(Reason.ROUTER_IDS_EXHAUSTED, message, _BLACKLIST_FIELD)


def no_vip_moves_unseen(group: KeepalivedGroup, context: Cluster) -> Findings:
    """A VRID that is in use and gets blacklisted moves its VIPs: allowed, and said."""
    before = routerids.blacklist_of(context.old.spec) if context.old else frozenset()
    moved = (routerids.blacklist_of(group.spec) - before) & vrids.held(group, context.snapshot)
    named = moved.intersection(group.spec.blacklist_router_ids or ())
    for field, numbers in ((_BLACKLIST_FIELD, named), (_OPENSHIFT_FIELD, moved - named)):
        if numbers:
            shown = listed(sorted(numbers), most=10)
            yield Caution(f"{field}: {shown}: in use now; their VIPs will move to other instances")


def metrics_port_is_free(group: KeepalivedGroup, context: Cluster) -> Findings:
    """No other group's agents listen on the port that is named, on a node that both have."""
    port = group.spec.metrics_port
    if port is None:
        return
    taken = {
        other.spec.metrics_port or other.status.metrics_port: other.key
        for other in reversed(context.snapshot.companions(group))
    }
    if port in taken:
        free = next(number for number in range(names.AGENT_PORT, 2**16) if number not in taken)
        message = f"{port}: in use by group {taken[port]} on the same nodes; {free} is free, or leave the field out"
        yield Refusal(Reason.INVALID, message, "spec.metricsPort")


def nobody_follows_endpoints(group: KeepalivedGroup, context: Cluster) -> Findings:
    """Where a VIP that comes back waits (``noPreempt``), no Service wants it to follow its endpoints (``Local``)."""
    if not group.spec.no_preempt:
        return
    local = [service.key for service in context.snapshot.members(group.key) if service.is_local]
    if local:
        message = (
            f"true: {listed(local, most=5)} {'has' if len(local) == 1 else 'have'} externalTrafficPolicy: Local, whose "
            "VIP must move to where the endpoints are; leave noPreempt out, or move these Services to another group"
        )
        yield Refusal(Reason.INVALID, message, "spec.noPreempt")


def checks_can_move(group: KeepalivedGroup, _: Cluster) -> Findings:
    """A check that lowers the priority has an effect: with ``noPreempt`` nobody takes a VIP from a node that lives."""
    lowering = [each.name for each in group.spec.checks or () if each.on_failure == "LowerPriority"]
    if group.spec.no_preempt and lowering:
        yield Caution(
            f"spec.checks: onFailure: LowerPriority of {listed(lowering, most=5)} moves no VIP while noPreempt is set; "
            "want Fault, or leave noPreempt out"
        )


def there_is_one_default(group: KeepalivedGroup, context: Cluster) -> Findings:
    """No other group is the default one."""
    if not group.is_default:
        if (written := group.metadata.label(names.DEFAULT_GROUP_LABEL)) not in ("", "false"):
            yield Caution(f'{_DEFAULT_FIELD}: {quoted(written)}: makes no default group; want "true", or no such label')
        return
    others = [other.key for other in context.snapshot.groups.values() if other.is_default and other.key != group.key]
    if others:
        message = f'"true": {listed(sorted(others))} is the default group already; remove the label there first'
        yield Refusal(Reason.DUPLICATE_DEFAULT, message, _DEFAULT_FIELD)


def nobody_loses_the_default(group: KeepalivedGroup, context: Cluster) -> Findings:
    """A label that goes leaves no Service behind that came here without naming the group."""
    old, snapshot = context.old, context.snapshot
    if old is None or group.is_default or not old.is_default:
        return
    bereft = [service for service in snapshot.members(group.key) if not service.declared_group]
    others = [each for each in snapshot.groups.values() if each.is_default and each.key != group.key]
    if not bereft:
        return
    heir = min(others, key=lambda each: each.metadata.age_key, default=None)
    loss = f"to {heir.key}" if heir else "without a group, and without an address where they have no class"
    count, shown = counted(len(bereft), "Service"), listed([each.key for each in bereft], most=3)
    yield Caution(f"{_DEFAULT_FIELD}: leaves {count} {loss}: {shown}; annotate them with this group first")


def some_node_is_selected(group: KeepalivedGroup, context: Cluster) -> Findings:
    """The selector picks a node, where the nodes are known."""
    if context.snapshot.nodes and not context.snapshot.group_nodes(group):
        yield Caution(f"{fields_of(group.spec)}: selects no node; no VIP of this group will answer")


def virtual_ips_are_free(group: KeepalivedGroup, context: Cluster) -> Findings:
    """The group's own VIPs are nobody else's; the API server's own address may be one."""
    ledger, own = context.snapshot.ledger, f"{names.KEEPALIVED_GROUP} {group.key}"
    for index, entry in enumerate(group.spec.virtual_ips or ()):
        address = read_address(entry.address.partition("/")[0])
        if address is None:
            continue
        holders = [str(terms) for terms in ledger.claimants(address)]
        owner = ledger.owner(address)
        if owner not in ("", own, names.API_SERVER):  # which may well listen on a VIP of this group
            holders.append(owner)
        if holders:
            message = f'"{entry.address}": in use by {listed(holders, most=3)}; choose another address'
            yield Refusal(Reason.ADDRESS_IN_USE, message, f"spec.virtualIPs[{index}].address")


def nobody_is_left_behind(group: KeepalivedGroup, context: Cluster) -> Findings:
    """A group that goes takes its VIPs along: allowed, and said."""
    members = [service.key for service in context.snapshot.members(group.key) if service.virtual_ips]
    if members:
        whose = "a Service" if len(members) == 1 else f"{len(members)} Services"
        yield Caution(
            f"metadata.name: the VIPs of {whose} go with the group: {listed(sorted(members), most=3)}; "
            "they answer again when a group of this name is created, or they name another"
        )


def _what_it_takes(group: KeepalivedGroup, _: str) -> object:
    spec = group.spec
    return routerids.blacklist_of(spec), spec.segment, spec.instances


CHAIN: Final[tuple[Check[KeepalivedGroup], ...]] = (
    Check(namespace_counts, reads=lambda group, _: group.metadata.namespace),
    Check(shape_is_sound, reads=spec_part),
    Check(router_ids_suffice, reads=_what_it_takes),
    Check(virtual_ips_are_free, reads=spec_part),
    Check(metrics_port_is_free, reads=lambda group, _: (group.spec.metrics_port, group.spec.node_selector)),
    Check(nobody_follows_endpoints, reads=spec_part),
    Check(checks_can_move, reads=spec_part),
    Check(there_is_one_default, reads=lambda group, _: group.is_default),
    Check(nobody_loses_the_default, reads=lambda group, _: group.is_default),
    Check(no_vip_moves_unseen, reads=_what_it_takes),
    Check(some_node_is_selected, reads=spec_part),
    Check(disruption.live_changes_are_told, reads=spec_part),
)
DELETION: Final[tuple[Check[KeepalivedGroup], ...]] = (Check(nobody_is_left_behind, reads=spec_part),)
