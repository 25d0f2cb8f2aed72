"""
The rules for a Service that kavip manages (:data:`CHAIN`), and for one that it does not (:data:`UNMANAGED`).

An unmanaged Service only gets warnings: that its ``kavip.io/`` annotations or its class have no effect. Its external
IPs are checked if the administrator asked for that.
"""

from collections.abc import Callable
from typing import Final

from kavip import names
from kavip.admission import addresses, externalips, routeridusage
from kavip.admission.chain import Context, Findings, Rule
from kavip.admission.text import counted, listed, nearest_key, quoted
from kavip.admission.verdict import AdmissionWarning, MissingReference
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal, annotation_field
from kavip.api.selector import parse_selector
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.ipam import annotations
from kavip.ipam.ranges import FAMILIES
from kavip.names import Reason
from kavip.vrrp import members, routerids, verbatim
from kavip.vrrp.preference import PREFERRED_NODES_FIELD, note_of

GROUP_FIELD: Final = annotation_field(names.GROUP_ANNOTATION)
SPREAD_FIELD: Final = annotation_field(names.SPREAD_ANNOTATION)
_CLASS_FIELD: Final = "spec.loadBalancerClass"
_POLICY_FIELD: Final = "spec.externalTrafficPolicy"
_MAX_KEYS: Final = 16  # annotations with a warning each: the API server passes on at most 4 KiB of warnings

ServiceContext = Context[Service]


def group_reference_is_valid(service: Service, context: ServiceContext) -> Findings:
    """The group annotation is ``namespace/name``; both are DNS names."""
    text = service.declared_group
    if text in context.snapshot.groups or _is_reference(text):
        return
    similar = nearest_key(text, context.snapshot.groups)
    hint = f'; did you mean "{similar}"?' if similar else ""
    message = f"{quoted(text)}: want <namespace>/<name> of a KeepalivedGroup, both DNS names{hint}"
    yield Refusal(Reason.INVALID_REQUEST, message, GROUP_FIELD)


def group_exists(service: Service, context: ServiceContext) -> Findings:
    """The group that the annotation names exists."""
    key, groups = service.declared_group, context.snapshot.groups
    if not key or key in groups or not _is_reference(key):
        return
    is_outside = key in context.snapshot.outside
    missing = "is in a namespace whose groups kavip ignores (groupNamespaces)" if is_outside else "does not exist"
    similar = nearest_key(key, groups)
    hint = f'did you mean "{similar}"?' if similar else _groups_to_choose(service, context)
    message = f'group "{key}" {missing}; {hint}'
    if context.options.allow_missing_group == "warn":
        yield AdmissionWarning(f"{message}; the Service waits for it", GROUP_FIELD)
    else:
        yield Refusal(Reason.GROUP_NOT_FOUND, message, GROUP_FIELD)
        if not is_outside:
            yield MissingReference(names.KEEPALIVED_GROUP, key)


def default_group_exists(service: Service, context: ServiceContext) -> Findings:
    """There is a default group for a Service that has kavip's class and no group annotation."""
    if service.declared_group or context.group:
        return
    choice = _groups_to_choose(service, context)
    message = f'"{names.LOAD_BALANCER_CLASS}": there is no default group; set {names.GROUP_ANNOTATION}; {choice}'
    if context.options.allow_missing_group == "warn":
        yield AdmissionWarning(f"{message}; the Service waits for one", _CLASS_FIELD)
    else:
        yield Refusal(Reason.GROUP_NOT_FOUND, message, _CLASS_FIELD)


def group_is_not_being_deleted(service: Service, context: ServiceContext) -> Findings:
    """The group is not being deleted."""
    group = _group(context)
    if group is not None and group.metadata.deletion_timestamp:
        message = f'group "{group.key}" is being deleted; choose another; {_groups_to_choose(service, context)}'
        yield Refusal(Reason.GROUP_NOT_FOUND, message, GROUP_FIELD)


def namespace_is_allowed(service: Service, context: ServiceContext) -> Findings:
    """The group serves the namespace of the Service."""
    group, namespace = _group(context), service.metadata.namespace
    if group is not None and not context.snapshot.allows(group, namespace):
        message = (
            f'group "{group.key}" does not serve namespace {namespace} (spec.allowedNamespaces); '
            f"label the namespace, or choose another group; {_groups_to_choose(service, context)}"
        )
        yield Refusal(Reason.NAMESPACE_NOT_ALLOWED, message, GROUP_FIELD)


def spread_is_boolean(service: Service, _: ServiceContext) -> Findings:
    """``spreadvips`` is true or false."""
    text = service.metadata.annotation(names.SPREAD_ANNOTATION)
    if text not in ("", "true", "false"):
        yield Refusal(Reason.INVALID_REQUEST, f'{quoted(text)}: want "true" or "false"', SPREAD_FIELD)


def preferred_nodes_exist(service: Service, context: ServiceContext) -> Findings:
    """``kavip.io/preferred-nodes`` is a label selector; it matches a node of the group, if the nodes are known."""
    if not service.preferred_nodes:
        return
    try:
        parse_selector(service.preferred_nodes, "")
    except BadInput as error:
        yield Refusal(Reason.INVALID_REQUEST, str(error), PREFERRED_NODES_FIELD)
        return
    group = _group(context)
    if group is not None and (note := note_of(service, group, context.snapshot.group_nodes(group))):
        yield AdmissionWarning(note, PREFERRED_NODES_FIELD)


def verbatim_config_is_safe(service: Service, context: ServiceContext) -> Findings:
    """``verbatimconfig`` has only safe keywords and values, or those that the group allows."""
    if not service.metadata.annotation(names.VERBATIM_ANNOTATION):
        return
    group = _group(context)
    found = members.verbatim_of(service, group.spec if group else None)
    yield from found.refusals
    yield from map(AdmissionWarning, found.warnings)
    if found.lines and group is not None and group.is_shared and not members.has_own_instances(service):
        yield verbatim.shared(group.key)


def router_ids_are_available(service: Service, context: ServiceContext) -> Findings:
    """The group has enough free virtual router IDs for the Service."""
    group = _group(context)
    if group is None:
        return
    instances = routeridusage.new_instances(service, group, context.snapshot)
    if not (needed := routerids.needed(service, group) + len(instances)):
        return
    counter = routeridusage.UsageCounter(context.snapshot, without=service.key)
    usage = counter.usage(group)
    if needed > usage.left:
        left = counted(max(usage.left, 0), "virtual router ID")
        others = counter.groups_with_free_ids(service)
        remedy = f"choose a group with free IDs ({listed(others)})" if others else "create a group on another segment"
        message = f'group "{group.key}" has {left} left, this Service needs {needed}: {usage}; {remedy}'
        if service.is_spread:
            message += ", or remove spreadvips, so that its addresses share an ID"
        elif instances:
            message += ", or lower spec.instances.count in the group: each interface of a pool needs up to so many IDs"
        elif not group.is_shared and not service.is_local:
            message += ", or set spec.instances.mode: Shared in the group, so that Services share IDs"
        yield Refusal(Reason.ROUTER_IDS_EXHAUSTED, message, GROUP_FIELD)


def local_policy_is_supported(service: Service, context: ServiceContext) -> Findings:
    """``externalTrafficPolicy: Local`` needs a group whose VIPs can move to the nodes with endpoints."""
    group = _group(context)
    if group is not None and group.spec.no_preempt and service.is_local:
        message = (
            f'"Local": the VIP must follow the endpoints, but group "{group.key}" sets spec.noPreempt; '
            "want Cluster, or choose another group"
        )
        yield Refusal(Reason.INVALID_REQUEST, message, _POLICY_FIELD)


def vip_count_is_within_limit(service: Service, _: ServiceContext) -> Findings:
    """External IPs and assigned addresses together do not exceed the number of VIPs that a Service may have."""
    external = len(service.spec.external_ips or ())
    if not external or external + len(FAMILIES) * (service.address_count or 1) <= names.MAX_VIPS:
        return  # the count alone is checked where it is read
    count = routerids.expected_addresses(service)
    if count > names.MAX_VIPS:
        message = f"{count} VIPs, including assigned ones; want at most {names.MAX_VIPS}: use several Services"
        yield Refusal(Reason.INVALID_REQUEST, message, externalips.FIELD)


def load_balancer_ip_is_unset(service: Service, _: ServiceContext) -> Findings:
    """``spec.loadBalancerIP``, which Kubernetes deprecates, is unset; an annotation replaces it for both families."""
    if service.is_load_balancer and service.spec.load_balancer_ip:
        message = f"is deprecated in Kubernetes; set the annotation {names.ADDRESSES_ANNOTATION} instead"
        yield AdmissionWarning(message, "spec.loadBalancerIP")


def annotations_are_known(service: Service, _: ServiceContext) -> Findings:
    """
    Keys under ``kavip.io/`` and ``keepalived-operator.redhat-cop.io/`` are known, and their values are not empty.

    A Service with an annotation of another load balancer also has the corresponding annotation of kavip.
    """
    yield from map(AdmissionWarning, annotations.remarks(service.metadata.annotations))


def service_is_managed(service: Service, _: ServiceContext) -> Findings:
    """Only a Service that kavip manages has annotations for kavip."""
    spec = service.spec
    if service.has_foreign_class:
        why = f"its spec.loadBalancerClass is {spec.load_balancer_class}"
    elif service.is_load_balancer:
        why = "it has no group annotation and no class, and there is no default group"
    else:
        why = "it is not of type LoadBalancer, and has no externalIPs with a group annotation"
    found = service.metadata.annotations or ()
    prefixes = names.ANNOTATION_PREFIXES
    for key in sorted(key for key in found if key.startswith(prefixes) or annotations.is_unknown(key))[:_MAX_KEYS]:
        if key.startswith(f"{names.KAVIP_GROUP}/") or key == names.GROUP_ANNOTATION:
            yield AdmissionWarning(f"has no effect: kavip does not manage this Service: {why}", annotation_field(key))
        elif annotations.is_unknown(key):
            yield AdmissionWarning(annotations.unknown(key))


def class_is_known(service: Service, _: ServiceContext) -> Findings:
    """A class under ``kavip.io/`` is kavip's class."""
    found = service.spec.load_balancer_class or ""
    if found.startswith(f"{names.KAVIP_GROUP}/") and found != names.LOAD_BALANCER_CLASS:
        message = (
            f"{quoted(found)}: no controller serves this class; did you mean {names.LOAD_BALANCER_CLASS}? "
            "The field is immutable: delete the Service and create it again"
        )
        yield AdmissionWarning(message, _CLASS_FIELD)


def _is_reference(text: str) -> bool:
    """Whether *text* is the key of a group, or empty."""
    try:
        annotations.parse_namespaced(text or "lb/edge", GROUP_FIELD)
    except BadInput:
        return False
    return True


def _groups_to_choose(service: Service, context: ServiceContext) -> str:
    """The groups that serve the namespace of *service*."""
    found = [group.key for group in routeridusage.groups_for(service.metadata.namespace, context.snapshot)]
    return f"groups: {listed(found, most=5)}" if found else "no group serves this namespace, create one"


def _group(context: ServiceContext) -> KeepalivedGroup | None:
    return context.snapshot.groups.get(context.group)


def _group_fields(service: Service, _: str) -> object:
    return service.declared_group, service.spec.load_balancer_class


def _router_id_needs(service: Service, field: str) -> object:
    pool = service.metadata.annotation(names.POOL_ANNOTATION)
    return _group_fields(service, field), routerids.needed(service), service.is_local, service.virtual_ips, pool


def _traffic_policy(service: Service, field: str) -> object:
    return _group_fields(service, field), service.is_local


def _preferred_nodes(service: Service, field: str) -> object:
    return _group_fields(service, field), service.preferred_nodes, members.has_own_instances(service)


def _verbatim(service: Service, field: str) -> object:
    return _group_fields(service, field), service.metadata.annotation(names.VERBATIM_ANNOTATION)


def _vips(service: Service, _: str) -> object:
    spec = service.spec
    requested = service.address_count, service.requested_addresses
    return spec.external_ips, spec.type, spec.ip_families, spec.ip_family_policy, requested


def _annotations(service: Service, _: str) -> object:
    return service.metadata.annotations


def _annotation(key: str) -> Callable[[Service, str], object]:
    return lambda service, _: service.metadata.annotation(key)


WITH_GROUP: Final[tuple[Rule[Service], ...]] = (
    Rule(group_is_not_being_deleted, reads=_group_fields),
    Rule(namespace_is_allowed, reads=_group_fields),
    Rule(spread_is_boolean, reads=_annotation(names.SPREAD_ANNOTATION)),
    Rule(preferred_nodes_exist, reads=_preferred_nodes),
    Rule(verbatim_config_is_safe, reads=_verbatim),
    Rule(router_ids_are_available, reads=_router_id_needs),
    Rule(local_policy_is_supported, reads=_traffic_policy),
    Rule(addresses.addresses_are_available, reads=addresses.address_request),
    Rule(externalips.external_ips_are_allowed, reads=externalips.external_ips),
    Rule(vip_count_is_within_limit, reads=_vips),
    Rule(load_balancer_ip_is_unset, reads=addresses.address_request),
    Rule(annotations_are_known, reads=_annotations),
)
"""For a Service whose group exists."""
CHAIN: Final[tuple[Rule[Service], ...]] = (
    Rule(group_reference_is_valid, reads=_group_fields),
    Rule(group_exists, reads=_group_fields),
    Rule(default_group_exists, reads=_group_fields),
    *WITH_GROUP,
)
UNMANAGED: Final[tuple[Rule[Service], ...]] = (
    Rule(externalips.unmanaged_external_ips_are_allowed, reads=externalips.external_ips),
    Rule(class_is_known, reads=_group_fields),
    Rule(service_is_managed, reads=_annotations),
)
"""For a Service that kavip does not manage."""
