"""
What is asked of a Service that kavip manages.

Any other hears at most that its ``kavip.io/`` annotations or its class do nothing, and passes, unless the administrator
has the external IPs of all Services checked.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kavip import names
from kavip.admission import addresses, externalips, vrids
from kavip.admission.chain import Caution, Check, Context, Finding
from kavip.admission.verdict import Awaited, counted, listed, nearest_key, quoted
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal, annotation_field
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.ipam import annotations
from kavip.ipam.ranges import FAMILIES
from kavip.names import Reason
from kavip.vrrp import members, routerids, verbatim

GROUP_FIELD: Final = annotation_field(names.GROUP_ANNOTATION)
SPREAD_FIELD: Final = annotation_field(names.SPREAD_ANNOTATION)
_CLASS_FIELD: Final = "spec.loadBalancerClass"
_POLICY_FIELD: Final = "spec.externalTrafficPolicy"
_MOST_KEYS: Final = 16  # the API server passes 4 KiB of warnings on

Findings = Iterator[Finding]
Cluster = Context[Service]


def group_is_a_reference(service: Service, context: Cluster) -> Findings:
    """The group annotation is ``namespace/name``, both DNS names."""
    text = service.declared_group
    if text in context.snapshot.groups or _is_reference(text):
        return
    meant = nearest_key(text, context.snapshot.groups)
    hint = f'; did you mean "{meant}"?' if meant else ""
    message = f"{quoted(text)}: want <namespace>/<name> of a KeepalivedGroup, both DNS names{hint}"
    yield Refusal(Reason.INVALID_REQUEST, message, GROUP_FIELD)


def group_exists(service: Service, context: Cluster) -> Findings:
    """The group that is named is there."""
    key, groups = service.declared_group, context.snapshot.groups
    if not key or key in groups or not _is_reference(key):
        return
    is_outside = key in context.snapshot.outside
    missing = "lies in a namespace where groups do not count" if is_outside else "does not exist"
    meant = nearest_key(key, groups)
    hint = f'did you mean "{meant}"?' if meant else _choice(service, context)
    message = f'group "{key}" {missing}; {hint}'
    if context.options.allow_missing_group == "warn":
        yield Caution(f"{GROUP_FIELD}: {message}; the Service waits for it")
    else:
        yield Refusal(Reason.GROUP_NOT_FOUND, message, GROUP_FIELD)
        if not is_outside:
            yield Awaited(names.KEEPALIVED_GROUP, key)


def class_finds_a_group(service: Service, context: Cluster) -> Findings:
    """kavip's class without the annotation means the default group, and there is one."""
    if service.declared_group or context.snapshot.default_group is not None:
        return
    choice = _choice(service, context)
    message = f'"{names.LOAD_BALANCER_CLASS}": no group is the default one; annotate {names.GROUP_ANNOTATION}; {choice}'
    if context.options.allow_missing_group == "warn":
        yield Caution(f"{_CLASS_FIELD}: {message}; the Service waits for one")
    else:
        yield Refusal(Reason.GROUP_NOT_FOUND, message, _CLASS_FIELD)


def group_stays(service: Service, context: Cluster) -> Findings:
    """The group is not being deleted."""
    group = _group(context)
    if group is not None and group.metadata.deletion_timestamp:
        message = f'group "{group.key}" is being deleted; name another; {_choice(service, context)}'
        yield Refusal(Reason.GROUP_NOT_FOUND, message, GROUP_FIELD)


def namespace_is_allowed(service: Service, context: Cluster) -> Findings:
    """The group lets Services of this namespace in."""
    group, namespace = _group(context), service.metadata.namespace
    if group is not None and not context.snapshot.allows(group, namespace):
        message = (
            f'group "{group.key}" does not serve namespace {namespace} (spec.allowedNamespaces); '
            f"have the namespace labelled, or name another; {_choice(service, context)}"
        )
        yield Refusal(Reason.NAMESPACE_NOT_ALLOWED, message, GROUP_FIELD)


def spread_is_a_boolean(service: Service, _: Cluster) -> Findings:
    """``spreadvips`` is true or false."""
    text = service.metadata.annotation(names.SPREAD_ANNOTATION)
    if text not in ("", "true", "false"):
        yield Refusal(Reason.INVALID_REQUEST, f'{quoted(text)}: want "true" or "false"', SPREAD_FIELD)


def verbatim_is_safe(service: Service, context: Cluster) -> Findings:
    """``verbatimconfig`` holds keywords and values of the safe list, or those that the group allows."""
    if not service.metadata.annotation(names.VERBATIM_ANNOTATION):
        return
    group = _group(context)
    found = members.verbatim_of(service, group.spec if group else None)
    yield from found.refusals
    yield from map(Caution, found.warnings)
    if found.lines and group is not None and group.is_shared and not service.is_local:
        yield verbatim.shared(group.key)


def router_ids_suffice(service: Service, context: Cluster) -> Findings:
    """The segment of the group has VRIDs left for this Service."""
    group = _group(context)
    if group is None or not (needed := routerids.needed(service, group)):
        return
    census = vrids.Census(context.snapshot, without=service.key)
    usage = census.usage(group)
    if needed > usage.left:
        left = counted(max(usage.left, 0), "virtual router ID")
        roomy = census.roomy(service)
        others = f"name a group with room ({listed(roomy)})" if roomy else "make a group on another segment"
        shared = "or have spec.instances.mode: Shared set, in which Services share them"
        message = (
            f'group "{group.key}" has {left} left, this Service needs {needed}: {usage}; '
            f"{others}{'' if group.is_shared else ', ' + shared}"
        )
        yield Refusal(Reason.ROUTER_IDS_EXHAUSTED, message, GROUP_FIELD)


def local_may_move(service: Service, context: Cluster) -> Findings:
    """``externalTrafficPolicy: Local`` needs a group whose VIPs may move to the nodes with endpoints."""
    group = _group(context)
    if group is not None and group.spec.no_preempt and service.is_local:
        message = (
            f'"Local": the VIP must follow the endpoints, and in group "{group.key}" it stays (spec.noPreempt); '
            "want Cluster, or name another group"
        )
        yield Refusal(Reason.INVALID_REQUEST, message, _POLICY_FIELD)


def vips_are_few(service: Service, _: Cluster) -> Findings:
    """All VIPs of the Service fit: external IPs, and what kavip assigns."""
    if len(service.spec.external_ips or ()) + len(FAMILIES) <= names.MAX_VIPS:
        return
    count = routerids.expected_addresses(service)
    if count > names.MAX_VIPS:
        message = (
            f"{count} VIPs, with those that are assigned; want at most {names.MAX_VIPS}: "
            "spread them over several Services"
        )
        yield Refusal(Reason.INVALID_REQUEST, message, externalips.FIELD)


def nothing_is_deprecated(service: Service, _: Cluster) -> Findings:
    """``spec.loadBalancerIP`` is deprecated in Kubernetes; the annotation says the same for both families."""
    if service.is_load_balancer and service.spec.load_balancer_ip:
        yield Caution(
            f"spec.loadBalancerIP: is deprecated in Kubernetes; annotate {names.ADDRESSES_ANNOTATION} instead"
        )


def annotations_do_something(service: Service, _: Cluster) -> Findings:
    """
    Keys under ``kavip.io/`` and ``keepalived-operator.redhat-cop.io/`` are known, and no value is empty.

    Keys of other load balancers have one of kavip's beside them that says the same.
    """
    yield from map(Caution, annotations.remarks(service.metadata.annotations))


def kavip_manages_it(service: Service, _: Cluster) -> Findings:
    """Annotations for kavip stand on a Service that kavip manages."""
    spec = service.spec
    if spec.load_balancer_class not in (None, "", names.LOAD_BALANCER_CLASS):
        why = f"its spec.loadBalancerClass is {spec.load_balancer_class}"
    elif service.is_load_balancer:
        why = "it has neither group annotation nor class, and no default group takes it"
    else:
        why = "it is not of type LoadBalancer, and has no externalIPs with a group annotation"
    ours = names.ANNOTATION_PREFIXES
    found = service.metadata.annotations or ()
    for key in sorted(key for key in found if key.startswith(ours) or annotations.is_unknown(key))[:_MOST_KEYS]:
        if key.startswith(f"{names.KAVIP_GROUP}/") or key == names.GROUP_ANNOTATION:
            yield Caution(f"{annotation_field(key)}: does nothing, for kavip does not manage this Service: {why}")
        elif annotations.is_unknown(key):
            yield Caution(annotations.unknown(key))


def class_is_known(service: Service, _: Cluster) -> Findings:
    """A class under ``kavip.io/`` is the one that kavip has."""
    found = service.spec.load_balancer_class or ""
    if found.startswith(f"{names.KAVIP_GROUP}/") and found != names.LOAD_BALANCER_CLASS:
        yield Caution(
            f"{_CLASS_FIELD}: {quoted(found)}: nobody serves this class; did you mean {names.LOAD_BALANCER_CLASS}? "
            "It cannot be changed: delete the Service and create it anew"
        )


def _is_reference(text: str) -> bool:
    """Whether *text* may name a group; an absent annotation is fine too."""
    try:
        annotations.parse_namespaced(text or "lb/edge", GROUP_FIELD)
    except BadInput:
        return False
    return True


def _choice(service: Service, context: Cluster) -> str:
    """The groups that serve the namespace of *service*."""
    found = [group.key for group in vrids.open_to(service.metadata.namespace, context.snapshot)]
    return f"groups: {listed(found, most=5)}" if found else "no group serves this namespace, create one"


def _group(context: Cluster) -> KeepalivedGroup | None:
    return context.snapshot.groups.get(context.group)


def _which_group(service: Service, _: str) -> object:
    return service.declared_group, service.spec.load_balancer_class


def _what_it_takes(service: Service, field: str) -> object:
    return _which_group(service, field), routerids.needed(service), service.is_local


def _which_policy(service: Service, field: str) -> object:
    return _which_group(service, field), service.is_local


def _verbatim(service: Service, field: str) -> object:
    return _which_group(service, field), service.metadata.annotation(names.VERBATIM_ANNOTATION)


def _vips(service: Service, _: str) -> object:
    return service.spec.external_ips, service.spec.type


def _annotations(service: Service, _: str) -> object:
    return service.metadata.annotations


def _annotation(key: str) -> Callable[[Service, str], object]:
    return lambda service, _: service.metadata.annotation(key)


CHAIN: Final[tuple[Check[Service], ...]] = (
    Check(group_is_a_reference, reads=_which_group),
    Check(group_exists, reads=_which_group),
    Check(class_finds_a_group, reads=_which_group),
    Check(group_stays, reads=_which_group),
    Check(namespace_is_allowed, reads=_which_group),
    Check(spread_is_a_boolean, reads=_annotation(names.SPREAD_ANNOTATION)),
    Check(verbatim_is_safe, reads=_verbatim),
    Check(router_ids_suffice, reads=_what_it_takes),
    Check(local_may_move, reads=_which_policy),
    Check(addresses.request_is_met, reads=addresses.asked_for),
    Check(externalips.external_ips_are_allowed, reads=externalips.written),
    Check(vips_are_few, reads=_vips),
    Check(nothing_is_deprecated, reads=addresses.asked_for),
    Check(annotations_do_something, reads=_annotations),
)
UNMANAGED: Final[tuple[Check[Service], ...]] = (
    Check(externalips.any_external_ips_are_allowed, reads=externalips.written),
    Check(class_is_known, reads=_which_group),
    Check(kavip_manages_it, reads=_annotations),
)
"""For a Service that kavip does not manage."""
