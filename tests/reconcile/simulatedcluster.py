"""Helpers for tests of plans: a Snapshot, states of agents, and a cluster in which plans are carried out at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from kavip import names
from kavip.api.address import parse_address
from kavip.api.agent import ProblemCode
from kavip.api.cluster import Pod, PodCondition, PodSpec, PodStatus
from kavip.api.group import GroupStatus, KeepalivedGroup
from kavip.api.meta import Metadata, OwnerReference
from kavip.api.pool import PoolStatus, VIPPool
from kavip.api.service import Service, ServiceStatus
from kavip.api.workload import (
    ConfigMap,
    Container,
    DaemonSet,
    DaemonSetSpec,
    PodMonitor,
    PodTemplate,
    PodTemplateSpec,
    Role,
    RoleBinding,
)
from kavip.podtemplate.defaulttemplate import NO_TEMPLATE, DefaultTemplate
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.group.outdated import Outdated
from kavip.reconcile.group.reconcile import BegunPlan, begin_plan, compared, plan_group
from kavip.reconcile.observed.agentstates import AgentStates, ExcludedInstance, NodeState
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.records import AppliedObject, Records, ReplacedPod, record_key
from kavip.reconcile.observed.templates import ConfigTemplates
from kavip.reconcile.plan import (
    Apply,
    GroupPlan,
    Key,
    KeyKind,
    Plan,
    PodAnnotation,
    PodRemoval,
    PoolPlan,
    ReconcileOptions,
    ServicePlan,
    StatusPatch,
)
from kavip.reconcile.pool import plan_pool
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Object, Snapshot
from tests.support import build
from tests.support.patches import merged, strategic

MONITORING = {"PodMonitor": PodMonitor, "Role": Role, "RoleBinding": RoleBinding}
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
GROUP = "lb/edge"


def cluster(*objects: Object, nodes: int = 2) -> Snapshot:
    """A Snapshot of *objects* and some nodes."""
    return Snapshot.from_objects([*objects, *(build.node(f"n{n}", f"192.0.2.{10 + n}") for n in range(1, nodes + 1))])


def running(
    config_hash: str = "",
    *vips: str,
    refused: str = "",
    code: ProblemCode = ProblemCode.NONE,
    master: bool = False,
    excluded: tuple[ExcludedInstance, ...] = (),
) -> NodeState:
    """The state of a node that runs *vips*."""
    addresses = frozenset(map(parse_address, vips))
    return NodeState(
        config_hash=config_hash,
        refused=refused,
        refused_code=code,
        excluded=excluded,
        runs=addresses,
        masters=addresses if master else frozenset(),
    )


def agent_states(group: str = GROUP, /, **states: NodeState) -> AgentStates:
    """The agents' answers, by node."""
    return AgentStates({group: states})


def pod(name: str, node: str, *, ready: bool = True, group: str = GROUP, note: str = "") -> Pod:
    """A pod of the DaemonSet of *group*."""
    namespace, _, owner = group.rpartition("/")
    return Pod(
        metadata=Metadata(
            name=name,
            namespace=namespace,
            labels={names.GROUP_LABEL: owner},
            annotations={names.CONFIG_HASH_ANNOTATION: note} if note else None,
            owner_references=[
                OwnerReference(api_version="apps/v1", kind="DaemonSet", name=owner, uid="u", controller=True)
            ],
        ),
        spec=PodSpec(node_name=node),
        status=PodStatus(conditions=[PodCondition(type="Ready", status="True" if ready else "False")]),
    )


class SimulatedCluster:
    """
    A cluster in which plans are carried out at once: a fake of API server, watch and writer.

    It implements status patches and server-side apply as far as kavip uses them.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        agents: AgentStates = AgentStates(),  # noqa: B008 - frozen
        options: ReconcileOptions = ReconcileOptions(),  # noqa: B008 - frozen
        template: DefaultTemplate = NO_TEMPLATE,
    ) -> None:
        """Start with *snapshot*. The clock changes only by :meth:`later`."""
        self.snapshot, self.agents, self.options, self.template = snapshot, agents, options, template
        self.objects, self.records, self.templates = OwnedObjects(), Records(), ConfigTemplates()
        self.now = NOW
        self.removed: list[str] = []
        self.changes: list[tuple[Object, Object]] = []  # of objects in deletion, by the last text
        self._version = 1000
        self._applied_keys: dict[str, set[str]] = {}  # of ConfigMaps: keys of other programs stay

    def later(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += timedelta(seconds=seconds)

    def plan(self, key: Key) -> Plan:
        """The plan for *key*."""
        match key.kind:
            case KeyKind.SERVICE:
                return self.plan_service(key.name)
            case KeyKind.GROUP:
                return self.plan_group(key.name)
            case KeyKind.POOL:
                return plan_pool(self.snapshot, key.name, now=self.now)

    def plan_service(self, key: str) -> ServicePlan:
        """The plan of the Service *key*."""
        return plan_service(self.snapshot, key, now=self.now, observed=self._observed, options=self.options)

    def plan_group(self, key: str = GROUP) -> GroupPlan:
        """The plan of the group *key*."""
        return plan_group(self.snapshot, key, now=self.now, observed=self._observed, options=self.options)

    def begin_group(self, key: str = GROUP) -> BegunPlan:
        """The plan of the group *key*, before any Service is compared."""
        return begin_plan(self.snapshot, key, now=self.now, observed=self._observed, options=self.options)

    def service(self, key: str) -> ServicePlan:
        """Plan the Service *key* and carry the plan out."""
        plan = self.plan_service(key)
        for address in plan.withdrawn:
            self.snapshot.ledger.cooldown.withdraw(address, key, now=self.now)
        self._carry_out(plan)
        return plan

    def group(self, key: str = GROUP) -> GroupPlan:
        """Plan the group *key* and carry the plan out."""
        plan = self.plan_group(key)
        if plan.record is not None:
            self.records.groups[key] = plan.record
        if plan.pod_allowance is not None:
            self.records.pod_allowance = plan.pod_allowance
        self._carry_out(plan)
        return plan

    def group_in_steps(self, between: Callable[[], object], key: str = GROUP) -> None:
        """The same as :meth:`group`; *between* changes something before each step of the comparison."""
        plan, comparison = self.begin_group(key)
        if plan.record is None:
            return
        self._carry_out(plan)
        batches = []
        for batch in comparison:
            batches.append(batch)
            between()
        self.records.groups[key] = compared(plan.record, Outdated.merge(batches))

    def pool(self, key: str) -> PoolPlan:
        """Plan the pool *key* and carry the plan out."""
        plan = plan_pool(self.snapshot, key, now=self.now)
        self._carry_out(plan)
        return plan

    def work(self, key: Key) -> Plan:
        """Plan *key* and carry the plan out."""
        match key.kind:
            case KeyKind.SERVICE:
                return self.service(key.name)
            case KeyKind.GROUP:
                return self.group(key.name)
            case KeyKind.POOL:
                return self.pool(key.name)

    def settle(self, *keys: Key) -> None:
        """Carry out the plans of *keys* until nothing is left to write."""
        for _ in range(10):
            plans = [self.work(key) for key in keys]
            if not any(plan.writes for plan in plans):
                return
        raise AssertionError("the plans still have writes")

    def condition(self, key: str, kind: str) -> tuple[str, str] | None:
        """Status and reason of the condition *kind* of the Service *key*."""
        found = [each for each in self.snapshot.services[key].status.conditions or () if each.type == kind]
        return (found[0].status, found[0].reason) if found else None

    def text(self, group: str = GROUP) -> str:
        """The keepalived.conf of *group*."""
        return (self.objects.configmaps[group].data or {})[names.CONFIG_KEY]

    # --- what an API server does ------------------------------------------------------------------------------------
    @property
    def _observed(self) -> Observed:
        agents = replace(self.agents, at=(self.now - NOW).total_seconds())
        return Observed(agents, self.objects, self.records, self.template, self.templates)

    def _carry_out(self, plan: Plan) -> None:
        for write in plan.writes:
            match write:
                case StatusPatch():
                    self._patch(write)
                case Apply():
                    self._apply(write)
                case PodAnnotation():
                    self._annotate(write)
                case PodRemoval():
                    self.records.replaced[write.group] = ReplacedPod(write.uid, is_done=True)
                    self.removed.append(write.key)
                    del self.objects.pods[write.group][write.key]

    def _patch(self, write: StatusPatch) -> None:
        self._version += 1
        match write.kind:
            case KeyKind.SERVICE:
                self._put(self.snapshot.services[write.key], ServiceStatus, strategic, write)
            case KeyKind.GROUP:
                self._put({**self.snapshot.groups, **self.snapshot.outside}[write.key], GroupStatus, merged, write)
            case KeyKind.POOL:
                self._put(self.snapshot.pools[write.key], PoolStatus, merged, write)

    def _put(self, obj: Service | KeepalivedGroup | VIPPool, kind: type, join: Any, write: StatusPatch) -> None:
        assert write.body["metadata"] == {"resourceVersion": obj.metadata.resource_version}
        status: Any = msgspec.convert(join(msgspec.to_builtins(obj.status), write.body["status"]), kind)
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        self.snapshot.put(msgspec.structs.replace(obj, metadata=metadata, status=status))

    def _apply(self, write: Apply) -> None:
        self._version += 1
        body = dict(write.body)
        metadata = msgspec.convert(
            {**body["metadata"], "uid": f"uid-{write.kind}", "generation": self._version}, Metadata
        )
        if write.kind == names.CONFIG_MAP:
            there = self.objects.configmaps.get(write.key)
            mine = self._applied_keys.get(write.key, set())
            theirs = {key: text for key, text in ((there and there.data) or {}).items() if key not in mine}
            self._applied_keys[write.key] = set(body["data"])
            self.objects.configmaps[write.key] = ConfigMap(
                metadata=metadata, data={**theirs, **body["data"]}, binary_data=body.get("binaryData")
            )
            self.changes = self.snapshot.publish(write.key, self.objects.published_text(write.key))
        elif kind := MONITORING.get(write.kind):
            made: Any = msgspec.convert({**body, "metadata": metadata}, kind)
            self.objects.store(None, made)
        else:
            containers = [Container(name=each["name"]) for each in body["spec"]["template"]["spec"]["containers"]]
            spec = DaemonSetSpec(template=PodTemplate(spec=PodTemplateSpec(containers=containers)))
            self.objects.daemonsets[write.key] = DaemonSet(metadata=metadata, spec=spec)
        self.records.applied[record_key(write)] = AppliedObject(digest(body), metadata.uid, metadata.generation)

    def _annotate(self, write: PodAnnotation) -> None:
        for pods in self.objects.pods.values():
            if found := pods.get(write.key):
                notes = {**(found.metadata.annotations or {}), names.CONFIG_HASH_ANNOTATION: write.value}
                pods[write.key] = msgspec.structs.replace(
                    found, metadata=msgspec.structs.replace(found.metadata, annotations=notes)
                )


def body_of(plan: Plan) -> Mapping[str, Any]:
    """The status of the one status patch in *plan*."""
    patches: Sequence[StatusPatch] = [write for write in plan.writes if isinstance(write, StatusPatch)]
    assert len(patches) == 1, plan.writes
    status: Mapping[str, Any] = patches[0].body["status"]
    return status
