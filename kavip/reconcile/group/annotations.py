"""
Which pods of a group are annotated now, so that kubelet refreshes their mounts at once.

A change of the configuration concerns every pod, and users may change Services as often as the API server allows. So
the patches of all groups together are limited: a burst, and then so many a second. What does not go at once goes later,
with the newest value. Nodes whose VIPs change go first. A pod without the newest value gets the configuration as well,
when kubelet refreshes its mounts by itself. Only that a switch of all nodes is called off goes to all of them at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.agent import ProblemCode
from kavip.api.cluster import Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.instant import instant_text, read_instant
from kavip.api.refusal import Refusal
from kavip.api.workload import controller_of
from kavip.memo import Memory
from kavip.names import Reason
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.observed.agentstates import NodeState, masters_by_instance
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.records import RejectedObject
from kavip.reconcile.plan import Allowance, CalledOffSwitch, PodAnnotation
from kavip.reconcile.takeover.progress import is_old
from kavip.vrrp.instances import Instance, Model

BURST: Final = 60
"""Patches of pods that go at once, of all groups together."""
INTERVAL: Final = 0.05
"""Seconds in which one more patch is allowed after that: 200 nodes have a change after 7 s."""
PASSWORD_RECHECK: Final = 10.0
"""
Seconds after which pods without a usable password are annotated again, so that kubelet refreshes the mounted Secret. By
itself it takes more than a minute. kavip cannot read Secrets, so it cannot observe that the password exists.
"""

_LONGEST_WAIT: Final = 1.0
_KUBELET_NEEDS: Final = 2.0  # seconds until a refreshed mount shows in what the agent reports
_PASSWORD_CODES: Final = frozenset({ProblemCode.PASSWORD_MISSING, ProblemCode.PASSWORD_MISMATCH})
_NOTHING: Final = frozenset[Address]()


@dataclass(frozen=True, slots=True)
class AnnotationsPlan:
    """
    The *writes*; *problem*: why there are none. *recheck*: after how many seconds to plan again.

    *allowance*: how many pods of all groups may be annotated afterwards. *annotated*: when each pod of the group was,
    in monotonic seconds.
    """

    writes: tuple[PodAnnotation, ...] = ()
    problem: Refusal | None = None
    recheck: float | None = None
    allowance: Allowance | None = None
    annotated: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}), hash=False)


def awaits_password(states: Mapping[str, NodeState]) -> bool:
    """Whether an agent lacks a usable password."""
    return any(map(_lacks_password, states.values()))


def plan_annotations(
    group: KeepalivedGroup,
    pods: Sequence[Pod],
    data: Mapping[str, str],
    observed: Observed,
    *,
    model: Model | None,
    called_off: CalledOffSwitch,
    switch_at: datetime | None,
    now: datetime,
    memory: Memory,
) -> AnnotationsPlan:
    """
    The *pods* to annotate for the ConfigMap with *data*; *model* says which node will hold which VIP.

    The pods that *called_off* concerns are annotated at once, and those that will switch, but not at *switch_at*.
    The annotation is a digest. While an agent lacks its password, its own pod gets another one every
    :data:`PASSWORD_RECHECK` seconds.
    """
    states, at = observed.agents.states_of(group.key), observed.agents.at
    texts = {
        name: text if name == names.AGENT_KEY else "" for name, text in data.items()
    }  # it has hashes of the others
    plain = value = digest(texts)
    if awaits_password(states):
        value = f"{plain}-{now.timestamp() // PASSWORD_RECHECK:.0f}"
    own = {pod.metadata.key: pod for pod in pods if not is_old(pod, group)}
    due = [pod for _, pod in sorted(own.items()) if _is_due(pod, group, states, plain=plain, value=value)]
    allowance, before = observed.records.pod_allowance.after(at, interval=INTERVAL), observed.records.group(group.key)
    annotated = {key: last for key, last in before.annotated.items() if key in own}
    if problem := _refusal(due, observed.records.pods.get(group.key), value, now):
        return AnnotationsPlan((), *problem, allowance, annotated)
    room = max(0, BURST - allowance.spent)
    if len(due) <= room:
        first = due
    else:
        urgent, others = _split(due, states, called_off, switch_at, annotated, at=at, now=now)
        first = [*urgent, *_first(others, room, _changing(model, states, memory), annotated, at=at)]
    writes = tuple(PodAnnotation(key, value, group.key) for key in sorted(pod.metadata.key for pod in first))
    left, spent = len(due) - len(writes), allowance.spent + len(writes)
    return AnnotationsPlan(
        writes,
        recheck=min(left * INTERVAL, _LONGEST_WAIT) if left else None,
        allowance=Allowance(max(allowance.spent, min(spent, BURST)), allowance.at),
        annotated={**annotated, **{write.key: at for write in writes}},
    )


def _refusal(
    due: Sequence[Pod], refused: RejectedObject | None, value: str, now: datetime
) -> tuple[Refusal, float] | None:
    """Why the API server refused the annotation a moment ago, and after how many seconds it is tried again."""
    if not due or refused is None or not (delay := refused.delay(value, now)):
        return None
    return Refusal(Reason.INVALID, f"the API server refuses their annotation: {refused.message}"), delay


def _is_due(pod: Pod, group: KeepalivedGroup, states: Mapping[str, NodeState], *, plain: str, value: str) -> bool:
    """Whether *pod* is one of *group* and lacks the annotation; any for *plain* will do for a node with a password."""
    found = pod.metadata.annotation(names.CONFIG_HASH_ANNOTATION)
    if found == value or pod.metadata.deletion_timestamp:
        return False
    state = states.get(pod.spec.node_name)
    if value != plain and found.partition("-")[0] == plain and not (state and _lacks_password(state)):
        return False
    owner = controller_of(pod.metadata)
    return owner is not None and (owner.kind, owner.name) == (names.DAEMON_SET, group.metadata.name)


def _split(
    due: Sequence[Pod],
    states: Mapping[str, NodeState],
    called_off: CalledOffSwitch,
    switch_at: datetime | None,
    annotated: Mapping[str, float],
    *,
    at: float,
    now: datetime,
) -> tuple[list[Pod], list[Pod]]:
    """
    The pods that may switch although that was called off, and the others of those that are *due*.

    A pod whose agent reports such an instant may just have been *annotated* and not have reported again.
    """
    untold = called_off.annotations if at < called_off.until else frozenset[str]()

    def is_urgent(pod: Pod) -> bool:
        reported = state.switch_at if (state := states.get(pod.spec.node_name)) else ""
        instant = read_instant(reported) if reported != instant_text(switch_at) else None
        may_answer = at - annotated.get(pod.metadata.key, -inf) < _KUBELET_NEEDS
        will_switch = instant is not None and instant > now and not may_answer
        return will_switch or pod.metadata.annotation(names.CONFIG_HASH_ANNOTATION) in untold

    urgent, others = list[Pod](), list[Pod]()
    for pod in due:
        (urgent if is_urgent(pod) else others).append(pod)
    return urgent, others


def _lacks_password(state: NodeState) -> bool:
    return not _PASSWORD_CODES.isdisjoint((state.refused_code, state.next_refused_code))


# --- which first ------------------------------------------------------------------------------------------------------
def _first(
    due: Sequence[Pod], room: int, changing: Collection[str], annotated: Mapping[str, float], *, at: float
) -> list[Pod]:
    """
    As many of the pods *due* as there is *room* for; half of it is for nodes whose VIPs are *changing*.

    Otherwise the pods that have waited longest go first, so that each gets its turn while changes follow each other. A
    pod that has just been annotated has no precedence, because its agent may never follow.
    """
    waiting = sorted(due, key=lambda pod: (annotated.get(pod.metadata.key, -inf), pod.metadata.key))
    urgent = [
        pod
        for pod in waiting
        if pod.spec.node_name in changing and at - annotated.get(pod.metadata.key, -inf) >= _KUBELET_NEEDS
    ]
    first = urgent[: (room + 1) // 2]
    taken = {pod.metadata.key for pod in first}
    return [*first, *(pod for pod in waiting if pod.metadata.key not in taken)][:room]


def _changing(model: Model | None, states: Mapping[str, NodeState], memory: Memory) -> AbstractSet[str]:
    """The nodes that hold other VIPs than they will, as far as they report it."""
    wanted, held = (
        _wanted(model.instances if model else (), states),
        {node: each.masters for node, each in states.items()},
    )

    def holds(node: str) -> bool:
        vips, instances = held.get(node, _NOTHING), wanted.get(node, ())
        are_as_many = len(vips) == sum(len(each.carried) for each in instances)  # no VIP is in two instances
        return are_as_many and all(
            memory.last(frozenset.issubset, (node, each.name), each.carried, vips) for each in instances
        )

    return {node for node in wanted.keys() | held.keys() if not holds(node)}


def _wanted(instances: Iterable[Instance], states: Mapping[str, NodeState]) -> Mapping[str, Sequence[Instance]]:
    """By node, the instances whose VIPs it will hold: it is their master, or will be the first one."""
    masters, wanted = masters_by_instance(states), dict[str, list[Instance]]()
    for each in instances:
        for node in masters.get(each.name) or (_first_of(each),):
            wanted.setdefault(node, []).append(each)
    return wanted


def _first_of(instance: Instance) -> str:
    """The node that ranks first; "" without one."""
    node, _ = max(instance.priorities, key=itemgetter(1), default=("", 0))
    return node
