"""
Whether a Service is programmed: does every node of its group run a configuration with its VIPs, and if not, why not.

A chain of named checks; the first one that objects gives reason and message. The plan of the Service writes the result.
The plan of the group evaluates it too, to find the Services whose status is out of date.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.refusal import Refusal, annotation_field
from kavip.api.scheduling import placement_fields
from kavip.api.service import Service
from kavip.names import ConditionType, Reason
from kavip.reconcile.observed.agentstates import ExcludedInstance
from kavip.reconcile.plan import ConditionState
from kavip.reconcile.service.vips import ServiceVIPs
from kavip.reconcile.text import few, left_out, unrouted
from kavip.vrrp import preference

_VERBATIM: Final = names.VERBATIM_ANNOTATION


def programmed_state(vips: ServiceVIPs) -> ConditionState:
    """The condition ``Programmed``: the first objection, or the progress of the nodes."""
    for check in CHECKS:
        if objection := check(vips):
            return ConditionState("False", objection.reason, objection.message)
    return _rollout(vips)


def _group_exists(vips: ServiceVIPs) -> Refusal | None:
    serving = vips.serving
    if serving.group is not None and not serving.group.metadata.deletion_timestamp:
        return None
    message = f"KeepalivedGroup {serving.key} does not exist: create it or name another"
    if serving.key in serving.snapshot.outside:
        served = ", ".join(sorted(serving.snapshot.group_namespaces))
        message = f"kavip does not serve KeepalivedGroup {serving.key}: name a group in namespace {served}"
    if serving.group is not None:
        message = f"KeepalivedGroup {serving.key} is being deleted, and its pods with it: name another"
    if not serving.key:
        message = (
            "the Service names no KeepalivedGroup and there is no default group: annotate the Service with "
            f"{names.GROUP_ANNOTATION}"
        )
    return Refusal(Reason.GROUP_NOT_FOUND, message)


def _namespace_allowed(vips: ServiceVIPs) -> Refusal | None:
    serving, namespace = vips.serving, vips.service.metadata.namespace
    if serving.group is None or serving.snapshot.allows(serving.group, namespace):
        return None
    message = f"KeepalivedGroup {serving.key} does not allow namespace {namespace}: see its spec.allowedNamespaces"
    return Refusal(Reason.NAMESPACE_NOT_ALLOWED, message)


def _verbatim_valid(vips: ServiceVIPs) -> Refusal | None:
    return vips.problem if vips.problem and vips.problem.reason == Reason.INVALID_VERBATIM else None


def _router_id_left(vips: ServiceVIPs) -> Refusal | None:
    if vips.problem is None or vips.problem.reason != Reason.ROUTER_IDS_EXHAUSTED:
        return None
    return None if vips.serving.has_free_router_id else vips.problem


def _nodes_have_interface(vips: ServiceVIPs) -> Refusal | None:
    """A node without the interface of a VIP is left out; it must not be every node."""
    lacking, ready = vips.left_out, vips.serving.ready.names
    if not ready or len(lacking) < len(ready):
        return None
    interface = min(lacking.values())
    message = f"no node of KeepalivedGroup {vips.serving.key} has interface {interface}, which the VIPPool names"
    return Refusal(Reason.NO_NODES, f"{message}: create it there, or change spec.interface of the pool")


def _group_has_nodes(vips: ServiceVIPs) -> Refusal | None:
    serving = vips.serving
    if serving.has_nodes:
        return None
    fields = placement_fields(serving.group.spec) if serving.group else ""
    return Refusal(Reason.NO_NODES, f"no node matches {fields} of KeepalivedGroup {serving.key}")


def _has_vips(vips: ServiceVIPs) -> Refusal | None:
    if vips.addresses:
        return None
    return Refusal(Reason.PENDING, f"the Service has no address yet: see {ConditionType.ADDRESS_ASSIGNED}")


def _not_too_many(vips: ServiceVIPs) -> Refusal | None:
    if not vips.surplus:
        return None
    message = (
        f"the Service has {len(vips.addresses) + vips.surplus:,} VIPs, of which {names.MAX_VIPS} are served: remove "
        f"the last {vips.surplus:,} of spec.externalIPs, or create several Services"
    )
    return Refusal(Reason.PENDING, message)


def _external_ips_validated(vips: ServiceVIPs) -> Refusal | None:
    """Admission does not see plain Services, so they are stored with any external IPs."""
    if not vips.service.external_addresses or vips.service.selects_kavip:
        return None
    message = (
        "spec.externalIPs are not served, because admission has not validated them: annotate the Service with "
        f"{names.GROUP_ANNOTATION}: {vips.serving.key}"
    )
    return Refusal(Reason.PENDING, message)


def _vips_are_free(vips: ServiceVIPs) -> Refusal | None:
    """keepalived would delete a node's own address from the node."""
    for address in vips.addresses:
        owner = vips.serving.snapshot.ledger.owner(address)
        if owner and owner != f"KeepalivedGroup {vips.serving.key}":
            message = f"{address} belongs to {owner} itself: remove it from spec.externalIPs"
            return Refusal(Reason.PENDING, message)
    if vips.problem is None or vips.problem.reason == Reason.ROUTER_IDS_EXHAUSTED:  # it will get one next
        return None
    return Refusal(Reason.PENDING, vips.problem.message)


def _not_excluded(vips: ServiceVIPs) -> Refusal | None:
    """A node runs other instances and not this one: the cause is in this one."""
    found = next(_excluded(vips), None)
    if found is None:
        return None
    node, first = found  # one is enough: a message that counted them would change with every node
    message = f"node {node} excludes instance {first.name}: {first.reason}"
    kept = "; until then the node keeps the previous version of the instance" if first.kept else ""
    if first.by_keepalived and _is_own(first, vips.service) and vips.service.metadata.annotation(_VERBATIM).strip():
        return Refusal(Reason.INVALID_VERBATIM, f"{message}; correct or remove {annotation_field(_VERBATIM)}{kept}")
    return Refusal(Reason.PENDING, f"{message}{kept}")


def _excluded(vips: ServiceVIPs) -> Iterator[tuple[str, ExcludedInstance]]:
    for node, state in vips.serving.ready.excluding:
        if node not in vips.left_out:
            for each in state.excluded:
                if _is_own(each, vips.service) or not each.virtual_ips.isdisjoint(vips.addresses):
                    yield node, each


def _is_own(instance: ExcludedInstance, service: Service) -> bool:
    """Whether *instance* serves *service* alone, by its name."""
    return instance.name == service.key or instance.name.startswith(f"{service.key}/")


CHECKS: Final[tuple[Callable[[ServiceVIPs], Refusal | None], ...]] = (
    _group_exists,
    _namespace_allowed,
    _verbatim_valid,
    _router_id_left,
    _group_has_nodes,
    _has_vips,
    _not_too_many,
    _external_ips_validated,
    _vips_are_free,
    _nodes_have_interface,
    _not_excluded,
)


def _rollout(vips: ServiceVIPs) -> ConditionState:
    serving, apart = vips.serving, vips.left_out
    lacking = serving.ready.without(frozenset(vips.addresses), apart)
    if len(serving.ready.names) > len(apart) and not lacking:
        return _programmed(vips)
    stored = conditions.find(vips.service.status.conditions, ConditionType.SERVICE_PROGRAMMED)
    if stored is not None and stored.status == "True" and not any(name in serving.states for name in lacking):
        # No agent contradicts: a node that is new, or was not asked since kavip started, takes nothing back.
        return _programmed(vips)
    return ConditionState("False", Reason.PENDING, _progress(vips, lacking), is_progress=bool(serving.ready.names))


def _programmed(vips: ServiceVIPs) -> ConditionState:
    serving = vips.serving
    message = f"every node of KeepalivedGroup {serving.key} runs a configuration with these VIPs"
    lacking = vips.left_out
    for interface in sorted(set(lacking.values())):
        message += f"; {left_out(interface, [node for node, each in lacking.items() if each == interface])}"
    for pool, failing in vips.unrouted.items():
        message += f"; {unrouted(pool, failing)}: see {ConditionType.READY} of KeepalivedGroup {serving.key}"
    if serving.group is not None and vips.service.preferred_nodes:
        nodes = serving.snapshot.group_nodes(serving.group)
        if note := preference.note_of(vips.service, serving.group, nodes):
            message += f"; {names.PREFERRED_NODES_ANNOTATION}: {note}"
    return ConditionState("True", Reason.PROGRAMMED, message)


def _progress(vips: ServiceVIPs, lacking: Sequence[str]) -> str:
    serving = vips.serving
    if not serving.ready.names:
        return f"no node of KeepalivedGroup {serving.key} is ready"
    text = (
        f"{len(serving.ready.names) - len(lacking)} of {len(serving.ready.names)} nodes run a configuration with "
        f"{few([str(vip) for vip in vips.addresses])}; waiting for {few(lacking)}"
    )
    for name in lacking:
        if name in serving.states and serving.states[name].refused:
            return f"{text}; {name} refuses the configuration: {serving.states[name].refused}"
    if not any(name in serving.states for name in lacking):
        return f"{text}; no agent answers: see Ready of KeepalivedGroup {serving.key}"
    return text
