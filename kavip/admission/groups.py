"""
The rules for a KeepalivedGroup.

:mod:`kavip.vrrp.groupspec` checks the spec alone; the rules here read other objects too.
"""

from typing import Final

from kavip import names
from kavip.admission import disruption, routeridusage
from kavip.admission.chain import Conditional, Context, Findings, Rule, spec_part
from kavip.admission.text import counted, listed, nearest, quoted
from kavip.admission.verdict import AdmissionWarning
from kavip.api.address import read_address
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal, annotation_field
from kavip.api.scheduling import placement_fields
from kavip.ipam import annotations
from kavip.names import Reason
from kavip.podtemplate.guard import FIELD
from kavip.podtemplate.skeleton import check_pod_template
from kavip.vrrp import configtemplate, groupspec, keys, routerids
from kavip.vrrp.preference import unmatched

_LABELS: Final = (names.DEFAULT_GROUP_LABEL,)
_PREFIX: Final = "kavip.io/"
_LONGEST_KEY: Final = 80
_MOST_LABELS: Final = 16  # the API server returns 4 KiB of warnings at most
_DEFAULT_FIELD: Final = f"metadata.labels[{names.DEFAULT_GROUP_LABEL}]"
_BLACKLIST_FIELD: Final = "spec.blacklistRouterIDs"
_OPENSHIFT_FIELD: Final = "spec.openshiftClusterName"
_SWITCHES: Final = (names.REBALANCE_ANNOTATION, names.TAKE_OVER_ANNOTATION)

RUNS_IN_PODS: Final = {
    "pod_template": "podTemplate",
    "config_template_ref": "configTemplateRef",
    "affinity": "affinity",
    "agent_image": "agentImage",
    "allow_scripts": "allowScripts",
    "daemonset_pod_annotations": "daemonsetPodAnnotations",
    "image": "image",
    "node_selector": "nodeSelector",
    "service_account_name": "serviceAccountName",
    "tolerations": "tolerations",
    "verbatim_config": "verbatimConfig",
}
"""
The fields that decide which programs run in the pods of a group, with which rights, and on which nodes.

A patch may give the containers of kavip more than the author of a group has, such as a volume. So while there is a
patch, the right that it needs is needed for these fields too. A template of ``keepalived.conf`` needs it by itself.
"""
_TEMPLATES: Final = {"pod_template": FIELD, "config_template_ref": configtemplate.FIELD}

GroupContext = Context[KeepalivedGroup]


def group_spec_is_valid(group: KeepalivedGroup, _: GroupContext) -> Findings:
    """The spec is valid by itself."""
    yield from groupspec.check_group(group)


def template_is_permitted(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """The administrator permits templates in the namespace."""
    problem = context.options.templates.problem(group.metadata.namespace)
    for name, field in _TEMPLATES.items() if problem else ():
        if getattr(group.spec, name) is not None:
            yield Refusal(Reason.NAMESPACE_NOT_ALLOWED, problem, field)


def template_is_valid(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """The patch of the pod template changes only what it may."""
    yield from check_pod_template(group, privileges=context.options.templates.privileges)


def author_may_create_daemon_sets(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """A change of a template, or of what runs in pods beside one, needs the right to create DaemonSets."""
    spec, old = group.spec, context.old.spec if context.old else None
    changed = [each for each in RUNS_IN_PODS if old is None or getattr(spec, each) != getattr(old, each)]
    templates = [each for each in changed if each in _TEMPLATES and getattr(spec, each) is not None]
    beside = [] if spec.pod_template is None else [each for each in changed if each not in _TEMPLATES]
    why = "" if templates else "the group has a podTemplate, so "
    for name in templates or beside:
        message = (
            f"{why}this change needs the right to create daemonsets.apps in namespace {group.metadata.namespace!r}, "
            "which you do not have; ask an administrator for it"
        )
        yield Conditional(Refusal(Reason.PERMISSION_MISSING, message, f"spec.{RUNS_IN_PODS[name]}"))


def namespace_holds_groups(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """kavip reads groups from this namespace (``groupNamespaces``)."""
    namespace, known = group.metadata.namespace, context.snapshot.group_namespaces
    if not context.snapshot.has_groups(namespace):
        message = f'"{namespace}": kavip ignores groups here (groupNamespaces); want {listed(sorted(known), most=5)}'
        yield Refusal(Reason.NAMESPACE_NOT_ALLOWED, message, "metadata.namespace")


def router_ids_are_available(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """Blacklist and segment leave enough virtual router IDs for the Services of the group."""
    others = routeridusage.UsageCounter(context.snapshot, need=routerids.required).usage_by_others(group)
    needed = routeridusage.needed_ids(group, context.snapshot)
    if (
        group.is_shared
        and routerids.capacity(routerids.blacklist_of(group.spec), frozenset()) < group.spec.instances.count
    ):
        return  # group_spec_is_valid refuses it
    if needed > others.left:
        field, remedy = _router_id_remedy(group, others)
        why = f": {others}" if others.left < names.MAX_ROUTER_ID else ""
        message = (
            f"the instances of this group need {counted(needed, 'virtual router ID')}, "
            f"but only {max(others.left, 0)} can be used{why}; {remedy}"
        )
        yield Refusal(Reason.ROUTER_IDS_EXHAUSTED, message, field)


def _router_id_remedy(group: KeepalivedGroup, others: routeridusage.RouterIDUsage) -> tuple[str, str]:
    """The field of *group* that leaves too few virtual router IDs beside those of *others*, and what helps."""
    if others.blacklisted:
        if group.is_shared:
            return _BLACKLIST_FIELD, "blacklist fewer, or choose another segment"
        return _BLACKLIST_FIELD, "blacklist fewer, choose another segment, or set spec.instances.mode: Shared"
    if group.is_shared:
        return "spec.instances.count", "lower it, or choose another segment"
    other = "choose another segment" if others.needed else "split the group"
    return "spec.instances.mode", f"set it to Shared, or {other}"


def blacklisted_ids_are_unused(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """No newly blacklisted virtual router ID is in use: its VIPs would move to another instance."""
    before = routerids.blacklist_of(context.old.spec) if context.old else frozenset()
    moved = (routerids.blacklist_of(group.spec) - before) & routeridusage.held_ids(group, context.snapshot)
    named = moved.intersection(group.spec.blacklist_router_ids or ())
    for field, numbers in ((_BLACKLIST_FIELD, named), (_OPENSHIFT_FIELD, moved - named)):
        if numbers:
            shown = listed(sorted(numbers), most=10)
            yield AdmissionWarning(f"{shown}: in use; the VIPs will move to other instances", field)


def metrics_port_is_free(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """No agent of another group uses the port on the same nodes."""
    port = group.spec.metrics_port
    users = (each for each in context.snapshot.every_group if each.key != group.key)
    if not port or port not in {each.spec.metrics_port or each.status.metrics_port for each in users}:
        return
    taken = {
        other.spec.metrics_port or other.status.metrics_port: other.key
        for other in reversed(context.snapshot.companions(group))
    }
    if port in taken:
        free = next(number for number in range(names.AGENT_PORT, 2**16) if number not in taken)
        message = f"{port}: in use by group {taken[port]} on the same nodes; {free} is free, or remove the field"
        yield Refusal(Reason.INVALID, message, "spec.metricsPort")


def no_preempt_has_no_local_services(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """With ``noPreempt`` a VIP cannot follow its endpoints, so no Service has ``externalTrafficPolicy: Local``."""
    if not group.spec.no_preempt:
        return
    local = [service.key for service in context.snapshot.members(group.key) if service.is_local]
    if local:
        message = (
            f"true: {listed(local, most=5)} {'has' if len(local) == 1 else 'have'} externalTrafficPolicy: Local, whose "
            "VIP must follow the endpoints; remove noPreempt, or move these Services to another group"
        )
        yield Refusal(Reason.INVALID, message, "spec.noPreempt")


def checks_can_move_vips(group: KeepalivedGroup, _: GroupContext) -> Findings:
    """No check lowers the priority together with ``noPreempt``: then no node takes a VIP from a live master."""
    lowering = [each.name for each in group.spec.checks or () if each.on_failure == "LowerPriority"]
    if group.spec.no_preempt and lowering:
        message = f"onFailure: LowerPriority of {listed(lowering, most=5)} moves no VIP while noPreempt is set"
        yield AdmissionWarning(f"{message}; want Fault, or remove noPreempt", "spec.checks")


def default_group_is_unique(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """No other group is the default group."""
    if not group.is_default:
        if (written := group.metadata.label(names.DEFAULT_GROUP_LABEL)) not in ("", "false"):
            message = f'{quoted(written)}: has no effect; want "true", or remove the label'
            yield AdmissionWarning(message, _DEFAULT_FIELD)
        return
    others = [other.key for other in context.snapshot.groups.values() if other.is_default and other.key != group.key]
    if others:
        message = f'"true": {listed(sorted(others))} is already the default group; remove the label there first'
        yield Refusal(Reason.DUPLICATE_DEFAULT, message, _DEFAULT_FIELD)


def members_lose_default_group(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """
    Removing the default label takes the group away from the Services that do not name it.

    Services for which kavip has recorded this group keep it.
    """
    old, snapshot = context.old, context.snapshot
    if old is None or group.is_default or not old.is_default:
        return
    kept = set(snapshot.choosers(group.key))
    unnamed = [each for each in snapshot.members(group.key) if not each.declared_group and each.key not in kept]
    if not unnamed:
        return
    others = [each for each in snapshot.groups.values() if each.is_default and each.key != group.key]
    successor = min(others, key=lambda each: each.metadata.age_key, default=None)
    count, shown = counted(len(unnamed), "Service"), listed([each.key for each in unnamed], most=3)
    lost = f"leaves {count} without a group, and those without a class also without an address"
    change = f"moves {count} to {successor.key}" if successor else lost
    message = f"removing the label {change}: {shown}; annotate them with this group first"
    yield AdmissionWarning(message, _DEFAULT_FIELD)


def nodes_are_selected(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """The selector matches a node, if the nodes are known."""
    if context.snapshot.nodes and not context.snapshot.group_nodes(group):
        yield AdmissionWarning("selects no node; no VIP of this group will answer", placement_fields(group.spec))


def preferred_nodes_exist(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """Each entry of ``spec.placement.preferred`` matches a node of the group, if the nodes are known."""
    nodes = context.snapshot.group_nodes(group) if group.spec.placement.preferred else ()
    for index in unmatched(group.spec.placement, [node.metadata.labels for node in nodes]) if nodes else ():
        yield AdmissionWarning("matches no node of the group", f"spec.placement.preferred[{index}].nodeSelector")


def switches_can_be_read(group: KeepalivedGroup, _: GroupContext) -> Findings:
    """An annotation that asks for something has the one value with an effect, or says that it asks for nothing."""
    for key in _SWITCHES:
        value = group.metadata.annotation(key)
        if value not in ("", "true", "false"):
            yield AdmissionWarning(f'{quoted(value)}: has no effect; want "true"', annotation_field(key))


def annotations_are_known(group: KeepalivedGroup, _: GroupContext) -> Findings:
    """Annotations of kavip are those that it reads on a group."""
    yield from map(AdmissionWarning, annotations.unknown_on(names.KEEPALIVED_GROUP, group.metadata.annotations))


def labels_are_known(group: KeepalivedGroup, _: GroupContext) -> Findings:
    """Labels of kavip are those that it reads on a group."""
    unknown = sorted(key for key in group.metadata.labels or () if key.startswith(_PREFIX) and key not in _LABELS)
    for key in unknown[:_MOST_LABELS]:
        meant = nearest(key[:_LONGEST_KEY], _LABELS)
        hint = f"; did you mean {meant}?" if meant else ", so it has no effect; remove it"
        yield AdmissionWarning(f"kavip does not know this label{hint}", f"metadata.labels[{key[:_LONGEST_KEY]}]")


def virtual_ips_are_free(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """No Service, node or other group has a virtual IP of the group; the API server may: it can use such a VIP."""
    ledger, own = context.snapshot.ledger, f"{names.KEEPALIVED_GROUP} {group.key}"
    for index, entry in enumerate(group.spec.virtual_ips or ()):
        address = read_address(entry.address.partition("/")[0])
        if address is None:
            continue
        holders = [str(terms) for terms in ledger.claims.claimants(address)]
        owner = ledger.owner(address)
        if owner not in ("", own, names.API_SERVER):
            holders.append(owner)
        if holders:
            message = f'"{entry.address}": in use by {listed(holders, most=3)}; choose another address'
            yield Refusal(Reason.ADDRESS_IN_USE, message, f"spec.virtualIPs[{index}].address")


def pinned_ids_are_free(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """No other group of the segment has a virtual router ID that a virtual IP pins; the Services of this one yield."""
    snapshot, fields = context.snapshot, keys.pinned_fields(group)
    others = {
        other.key: {*routeridusage.held_ids(other, snapshot), *keys.pinned_fields(other)}
        for other in (snapshot.neighbours(group) if fields else ())
    }
    holders = {number: key for key, number in routeridusage.held(group, snapshot).items() if not keys.is_own_key(key)}
    for number, field in fields.items():
        if users := [key for key, ids in sorted(others.items()) if number in ids]:
            where = f'on segment "{group.spec.segment}"' if group.spec.segment else "on this segment"
            message = f"{number}: in use by {listed(users, most=3)} {where}; choose another virtual router ID"
            yield Refusal(Reason.VRID_COLLISION, message, field)
        elif number in snapshot.platform_router_ids(group):
            message = f"{number}: OpenShift's own keepalived uses it; choose another VRID, or another spec.segment"
            yield AdmissionWarning(f"{message} if the group is on another network", field)
        elif number in holders:
            message = f"{number}: {holders[number]} has it, and gets another one; {disruption.SWITCHOVER}"
            yield AdmissionWarning(message, field)


def members_lose_vips(group: KeepalivedGroup, context: GroupContext) -> Findings:
    """Deleting the group removes the VIPs of its Services."""
    members = [service.key for service in context.snapshot.members(group.key) if service.virtual_ips]
    if members:
        yield AdmissionWarning(
            f"deleting the group removes the VIPs of {counted(len(members), 'Service')}: "
            f"{listed(sorted(members), most=3)}; they return with a new group of this name or with another group",
            "metadata.name",
        )


def _router_ids(group: KeepalivedGroup, _: str) -> object:
    spec = group.spec
    return routerids.blacklist_of(spec), spec.segment, spec.instances, keys.own_keys(group)


CHAIN: Final[tuple[Rule[KeepalivedGroup], ...]] = (
    Rule(namespace_holds_groups, reads=lambda group, _: group.metadata.namespace),
    Rule(group_spec_is_valid, reads=spec_part),
    Rule(template_is_permitted, reads=spec_part),
    Rule(template_is_valid, reads=spec_part),
    Rule(author_may_create_daemon_sets, reads=spec_part),
    Rule(router_ids_are_available, reads=_router_ids),
    Rule(virtual_ips_are_free, reads=spec_part),
    Rule(pinned_ids_are_free, reads=lambda group, _: (group.segment, keys.pinned_ids(group))),
    Rule(metrics_port_is_free, reads=lambda group, _: (group.spec.metrics_port, group.spec.node_selector)),
    Rule(no_preempt_has_no_local_services, reads=spec_part),
    Rule(checks_can_move_vips, reads=spec_part),
    Rule(default_group_is_unique, reads=lambda group, _: group.is_default),
    Rule(members_lose_default_group, reads=lambda group, _: group.is_default),
    Rule(blacklisted_ids_are_unused, reads=_router_ids),
    Rule(nodes_are_selected, reads=spec_part),
    Rule(preferred_nodes_exist, reads=spec_part),
    Rule(annotations_are_known, reads=lambda group, _: group.metadata.annotations),
    Rule(labels_are_known, reads=lambda group, _: group.metadata.labels),
    Rule(switches_can_be_read, reads=lambda group, _: [group.metadata.annotation(key) for key in _SWITCHES]),
    Rule(disruption.running_vips_are_disrupted, reads=spec_part),
)
DELETION: Final[tuple[Rule[KeepalivedGroup], ...]] = (Rule(members_lose_vips, reads=spec_part),)
