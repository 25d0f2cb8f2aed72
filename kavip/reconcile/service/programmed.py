"""
Whether a Service is programmed: does every node of its group run a configuration with its VIPs, and if not, why not.

A chain of named checks; the first that objects gives reason and message. The Service's own plan writes the verdict, the
group's plan asks for it to find the Services whose status has become wrong.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.cluster import Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal, annotation_field
from kavip.api.scheduling import fields_of
from kavip.api.service import Service
from kavip.names import Condition as ConditionType
from kavip.names import Reason
from kavip.reconcile import vrids
from kavip.reconcile.observed.nodes import AgentStates, ExcludedInstance, NodeState
from kavip.reconcile.plan import ConditionState
from kavip.reconcile.text import few
from kavip.snapshot import Snapshot
from kavip.vrrp import members
from kavip.vrrp.units import UnitBuilder

_VERBATIM: Final = names.VERBATIM_ANNOTATION


@dataclass(frozen=True, slots=True)
class Ground:
    """What all Services of one group have in common: the *group* (None: it does not exist), its *ready* nodes."""

    snapshot: Snapshot
    key: str
    group: KeepalivedGroup | None
    has_nodes: bool
    ready: tuple[str, ...]
    states: Mapping[str, NodeState]

    @property
    def has_room(self) -> bool:
        """Whether the group has a VRID left to give."""
        return self.group is not None and vrids.room(self.snapshot, self.group) > 0

    def expected(self, pods: Iterable[Pod]) -> tuple[str, ...]:
        """Who can say who is master: ready nodes, and those that left while one of *pods* is there, if not down."""
        left = {pod.spec.node_name for pod in pods}.difference(self.ready, [""])
        return (*self.ready, *sorted(name for name in left if not self._is_down(name)))

    def _is_down(self, node: str) -> bool:
        known = self.snapshot.nodes.get(node)
        return known is not None and not known.is_ready

    @classmethod
    def of(cls, snapshot: Snapshot, key: str, agents: AgentStates) -> "Ground":
        """The ground under the Services of the group *key*."""
        group = snapshot.groups.get(key)
        if group is None:
            return cls(snapshot, key, None, has_nodes=False, ready=(), states=agents.states_of(key))
        # A node that is down would keep every new Service pending for as long as it takes to repair it.
        ready, has_nodes = snapshot.ready_nodes(group), bool(snapshot.group_nodes(group))
        return cls(snapshot, key, group, has_nodes, ready, agents.states_of(key))


@dataclass(frozen=True, slots=True)
class Case:
    """
    One Service with the VIPs that it is to have, on its *ground*.

    *problem* is what the group's model says of it, *surplus* how many VIPs it has beyond those.
    """

    service: Service
    vips: tuple[Address, ...]
    problem: Refusal | None
    ground: Ground
    surplus: int = 0

    @classmethod
    def of(
        cls, service: Service, given: Iterable[Address], ground: Ground, problems: Mapping[str, Refusal] | None
    ) -> "Case":
        """
        *service* with the addresses *given* to it.

        *problems* are those of the group's model by Service; without them it is looked at alone.
        """
        every = tuple(dict.fromkeys((*given, *service.judged_addresses)))
        vips = members.served(every)
        problem = problem_of(service, vips, ground) if problems is None else problems.get(service.key)
        unread = max(0, len(service.spec.external_ips or ()) - names.MAX_EXTERNAL_IPS)
        return cls(service, vips, problem, ground, len(every) - len(vips) + unread)


def problem_of(service: Service, vips: tuple[Address, ...], ground: Ground) -> Refusal | None:
    """What the model of the group would say of *service* with *vips*, looked at alone."""
    if ground.group is None:
        return None
    member = replace(members.member_of(service, ground.group), addresses=vips)
    builder = UnitBuilder(ground.group, (), ground.group.status.router_ids or {})
    builder.add_member(member)
    return member.problem or builder.problems.get(service.key)  # what its owner can mend comes first


def verdict(case: Case) -> ConditionState:
    """The first objection, or how far the nodes are."""
    for check in CHECKS:
        if objection := check(case):
            return ConditionState("False", objection.reason, objection.message)
    return _rollout(case)


def _group_exists(case: Case) -> Refusal | None:
    group = case.ground.group
    if group is not None and not group.metadata.deletion_timestamp:
        return None
    message = f"KeepalivedGroup {case.ground.key} does not exist: create it or name another"
    if case.ground.key in case.ground.snapshot.outside:
        homes = ", ".join(sorted(case.ground.snapshot.group_namespaces))
        message = f"KeepalivedGroup {case.ground.key} does not count: name one in namespace {homes}"
    if group is not None:
        message = f"KeepalivedGroup {case.ground.key} is being deleted, and its pods with it: name another"
    if not case.ground.key:
        message = "the Service names no KeepalivedGroup and none is the default one: annotate it with one"
    return Refusal(Reason.GROUP_NOT_FOUND, message)


def _namespace_allowed(case: Case) -> Refusal | None:
    namespace = case.service.metadata.namespace
    if case.ground.group is None or case.ground.snapshot.allows(case.ground.group, namespace):
        return None
    message = f"KeepalivedGroup {case.ground.key} does not allow namespace {namespace}: see its spec.allowedNamespaces"
    return Refusal(Reason.NAMESPACE_NOT_ALLOWED, message)


def _verbatim_valid(case: Case) -> Refusal | None:
    return case.problem if case.problem and case.problem.reason == Reason.INVALID_VERBATIM else None


def _router_id_left(case: Case) -> Refusal | None:
    if case.problem is None or case.problem.reason != Reason.ROUTER_IDS_EXHAUSTED:
        return None
    return None if case.ground.has_room else case.problem


def _group_has_nodes(case: Case) -> Refusal | None:
    if case.ground.has_nodes:
        return None
    fields = fields_of(case.ground.group.spec) if case.ground.group else ""
    return Refusal(Reason.NO_NODES, f"no node matches {fields} of KeepalivedGroup {case.ground.key}")


def _has_vips(case: Case) -> Refusal | None:
    if case.vips:
        return None
    return Refusal(Reason.PENDING, f"the Service has no address yet: see {ConditionType.ADDRESS_ASSIGNED}")


def _vips_are_free(case: Case) -> Refusal | None:
    """keepalived would delete a node's own address from the node."""
    for address in case.vips:
        owner = case.ground.snapshot.ledger.owner(address)
        if owner and owner != f"KeepalivedGroup {case.ground.key}":
            message = f"{address} belongs to {owner} itself: take it out of spec.externalIPs"
            return Refusal(Reason.PENDING, message)
    if case.problem is None or case.problem.reason == Reason.ROUTER_IDS_EXHAUSTED:  # it is about to be given one
        return None
    return Refusal(Reason.PENDING, case.problem.message)


def _not_too_many(case: Case) -> Refusal | None:
    if not case.surplus:
        return None
    message = (
        f"the Service has {len(case.vips) + case.surplus:,} VIPs, of which {names.MAX_VIPS} are served: remove "
        f"the last {case.surplus:,} of spec.externalIPs, or make several Services"
    )
    return Refusal(Reason.PENDING, message)


def _externals_are_judged(case: Case) -> Refusal | None:
    """While the mutating webhook is away, plain Services pass unseen, with whatever external IPs."""
    if case.service.is_marked or not case.service.external_addresses:
        return None
    message = (
        "its spec.externalIPs are not served: nobody has judged them, for the Service does not say whose it is; "
        f"annotate it with {names.GROUP_ANNOTATION}: {case.ground.key}"
    )
    return Refusal(Reason.PENDING, message)


def _not_left_out(case: Case) -> Refusal | None:
    """A node runs its neighbours and not this one: what is wrong with it is its own fault."""
    found = next(((node, each) for node in case.ground.ready for each in _left_out(case, node)), None)
    if found is None:
        return None
    node, first = found  # one is enough: a message that counted them would change with every node
    told = f"node {node} leaves out instance {first.name}: {first.reason}"
    runs = "; until then it runs there as it last did" if first.kept else ""
    if first.by_keepalived and _is_own(first, case.service) and case.service.metadata.annotation(_VERBATIM).strip():
        return Refusal(Reason.INVALID_VERBATIM, f"{told}; correct or remove {annotation_field(_VERBATIM)}{runs}")
    return Refusal(Reason.PENDING, f"{told}{runs}")


def _left_out(case: Case, node: str) -> Iterable[ExcludedInstance]:
    state = case.ground.states.get(node)
    vips = frozenset(case.vips)
    return (each for each in state.excluded if _is_own(each, case.service) or each.virtual_ips & vips) if state else ()


def _is_own(instance: ExcludedInstance, service: Service) -> bool:
    """Whether *instance* is named as those of *service* alone are."""
    return instance.name == service.key or instance.name.startswith(f"{service.key}/")


CHECKS: Final[tuple[Callable[[Case], Refusal | None], ...]] = (
    _group_exists,
    _namespace_allowed,
    _verbatim_valid,
    _router_id_left,
    _group_has_nodes,
    _has_vips,
    _not_too_many,
    _externals_are_judged,
    _vips_are_free,
    _not_left_out,
)


def _rollout(case: Case) -> ConditionState:
    ground, wanted, states = case.ground, frozenset(case.vips), case.ground.states
    lacking = [name for name in ground.ready if name not in states or not wanted <= states[name].runs]
    if ground.ready and not lacking:
        return _programmed(ground)
    was = conditions.find(case.service.status.conditions, ConditionType.SERVICE_PROGRAMMED)
    if was is not None and was.status == "True" and not any(name in states for name in lacking):
        # Nobody says otherwise: a node that is new, or has not been asked since kavip started, takes nothing back.
        return _programmed(ground)
    return ConditionState("False", Reason.PENDING, _progress(case, lacking))


def _programmed(ground: Ground) -> ConditionState:
    message = f"every node of KeepalivedGroup {ground.key} runs a configuration with these VIPs"
    return ConditionState("True", Reason.PROGRAMMED, message)


def _progress(case: Case, lacking: Sequence[str]) -> str:
    ground = case.ground
    if not ground.ready:
        return f"no node of KeepalivedGroup {ground.key} is ready"
    text = (
        f"{len(ground.ready) - len(lacking)} of {len(ground.ready)} nodes run a configuration with "
        f"{few([str(vip) for vip in case.vips])}; waiting for {few(lacking)}"
    )
    for name in lacking:
        if name in ground.states and ground.states[name].refused:
            return f"{text}; {name} refuses the configuration: {ground.states[name].refused}"
    if not any(name in ground.states for name in lacking):
        return f"{text}; why no agent answers, Ready of KeepalivedGroup {ground.key} says"
    return text
