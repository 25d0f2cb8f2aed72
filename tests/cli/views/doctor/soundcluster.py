"""What ``kavip doctor`` reads of a cluster without a fault, and the parts that tests replace by faulty ones."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import msgspec

from kavip import __version__, names
from kavip.admission import registration
from kavip.api.agent import AgentState, InstanceReport, KeepalivedReport, NodeProblem, ProblemCode
from kavip.api.agentconfig import AgentConfig, encode_config
from kavip.api.group import GroupSpec, GroupStatus
from kavip.api.installation import Definition, Heartbeat, PublishedConfig, Workload
from kavip.api.instant import instant_text
from kavip.api.meta import Condition
from kavip.api.pool import PoolSpec, PoolStatus
from kavip.api.registration import WebhookConfiguration
from kavip.cli.views.doctor.inspection import AgentAnswer, DryRun, Inspection, agent_answer
from kavip.names import Reason
from kavip.pki.certificates import new_ca
from kavip.snapshot import Object
from tests.support import build

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
PUBLISHED = "newest"


def sound(**changes: Any) -> Inspection:
    """A cluster with a group of two nodes, in which nothing is wrong, with *changes*."""
    found = Inspection(
        at=NOW,
        version="v1.35.1+k3s1",
        objects=objects(),
        definitions=definitions(),
        configurations=configurations(),
        dry_run=DryRun(422, "refused"),
        workloads=(deployment("webhook"), deployment("controller"), speaker("--lb-class=metallb.io/metallb")),
        heartbeats=(heartbeat("n1"), heartbeat("n2", seconds=4)),
        configs={"lb/edge": config(written=NOW - timedelta(hours=1))},
        agents=(agent("n1", state="MASTER"), agent("n2")),
    )
    return replace(found, **changes)


def objects(*others: Object) -> tuple[Object, ...]:
    """A group, a pool beside the nodes, and two nodes; *others* take the place of those with the same key."""
    kept: dict[tuple[type, str], Object] = {}
    for each in (
        build.group("lb/edge", default=True),
        build.pool("edge", "192.0.2.128/28"),
        build.node("n1", "192.0.2.11", pod_cidrs=["10.244.1.0/24"]),
        build.node("n2", "192.0.2.12", pod_cidrs=["10.244.2.0/24"]),
        build.service_range("10.96.0.0/16"),
        *others,
    ):
        kept[type(each), each.metadata.key] = each
    return tuple(kept.values())


def definitions(*, without: str = "", established: str = "True", version: str = "v1alpha1") -> dict[str, Definition]:
    """kavip's CRDs; of pools *without* a field of spec."""
    made = {}
    for plural, spec, status in (
        ("keepalivedgroups.redhatcop.redhat.io", GroupSpec, GroupStatus),
        ("vippools.kavip.io", PoolSpec, PoolStatus),
    ):
        parts = {
            part: {"properties": properties(type_, without)} for part, type_ in (("spec", spec), ("status", status))
        }
        schema = {"openAPIV3Schema": {"properties": parts}}
        body = {
            "metadata": {"name": plural},
            "spec": {"versions": [{"name": version, "served": True, "schema": schema}]},
            "status": {"conditions": [{"type": "Established", "status": established}]},
        }
        made[plural] = msgspec.convert(body, Definition)
    return made


def properties(type_: type[msgspec.Struct], without: str) -> dict[str, Any]:
    """A schema for each field of *type_*, except one."""
    return {each.encode_name: {} for each in msgspec.structs.fields(type_) if each.encode_name != without}


@cache
def bundle(valid_until: datetime) -> str:
    """The caBundle of an authority."""
    lifetime = timedelta(days=30)
    return b64encode(new_ca(valid_until - lifetime, lifetime=lifetime).certificate_pem).decode()


def configurations(*, ca_bundle: str | None = None, url: str = "", **options: str) -> dict[str, WebhookConfiguration]:
    """The webhook configurations as the chart writes them."""
    client = registration.ServiceClientConfig("kavip", "kavip-webhook")
    made = registration.configurations(
        "kavip",
        registration.URLClientConfig(url) if url else client,
        namespace="kavip",
        ca_bundle=bundle(NOW + timedelta(days=1)) if ca_bundle is None else ca_bundle,
        options=registration.RegistrationOptions(**options),  # type: ignore[arg-type]  # texts only
    )
    return {each["kind"]: msgspec.convert(each, WebhookConfiguration) for each in made}


def deployment(command: str, *, ready: int = 2, version: str = __version__, spaces: str = "") -> Workload:
    """A Deployment of kavip."""
    name = f"kavip-{command}"
    environment = [{"name": "KAVIP_GROUP_NAMESPACES", "value": spaces}]
    container = {"name": "kavip", "image": "example/kavip:1", "args": [command], "env": environment}
    body = {
        "metadata": {
            "name": name,
            "namespace": "kavip",
            "labels": {"app.kubernetes.io/name": "kavip", "app.kubernetes.io/version": version},
        },
        "spec": {"replicas": 2, "template": {"spec": {"serviceAccountName": name, "containers": [container]}}},
        "status": {"readyReplicas": ready},
    }
    return msgspec.convert(body, Workload)


def workload(key: str, image: str, *args: str, env: dict[str, str] | None = None, replicas: int = 1) -> Workload:
    """A Deployment or DaemonSet of another program."""
    namespace, _, name = key.partition("/")
    variables = [{"name": variable, "value": value} for variable, value in (env or {}).items()]
    container = {"name": "main", "image": image, "args": list(args), "env": variables}
    spec = {"replicas": replicas, "template": {"spec": {"containers": [container]}}}
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, Workload)


def speaker(*args: str) -> Workload:
    """MetalLB's DaemonSet."""
    return workload("metallb-system/speaker", "quay.io/metallb/speaker:v0.15.2", *args)


def heartbeat(node: str, *, seconds: float = 0) -> Heartbeat:
    """A heartbeat that arrives *seconds* after the time that the node's clock shows."""
    times = [{"time": NOW.strftime("%Y-%m-%dT%H:%M:%SZ")}]
    renewed = instant_text(NOW - timedelta(seconds=seconds))
    return msgspec.convert(
        {"metadata": {"name": node, "managedFields": times}, "spec": {"renewTime": renewed}}, Heartbeat
    )


def config(*, written: datetime, text: str = "") -> PublishedConfig:
    """The ConfigMap of the group."""
    times = [{"time": "2026-01-01T00:00:00Z"}, {"time": written.strftime("%Y-%m-%dT%H:%M:%SZ")}]
    data = {names.AGENT_KEY: text or encode_config(AgentConfig(config_hash=PUBLISHED))}
    return msgspec.convert({"metadata": {"managedFields": times}, "data": data}, PublishedConfig)


def agent(
    node: str, *, state: str = "BACKUP", again: str = "", notes: Sequence[NodeProblem] = (), **more: Any
) -> AgentAnswer:
    """The answer of an agent with two instances in *state*, and in the state *again* if it is asked again."""

    def instances(state: str) -> tuple[InstanceReport, ...]:
        return tuple(InstanceReport(name=name, router_id=1, state=state) for name in ("shop/a", "shop/b"))

    given = {
        "group": "lb/edge",
        "config_hash": PUBLISHED,
        "wanted_hash": PUBLISHED,
        "keepalived": KeepalivedReport(version="2.3.3", running=True),
        "notes": tuple(notes),
        **more,
    }
    first = agent_answer(AgentState(**given, instances=instances(state)), group="lb/edge", node=node)
    if not again:
        return first
    second = agent_answer(AgentState(**given, instances=instances(again)), group="lb/edge", node=node)
    return replace(first, again=second.state)


def noting(code: ProblemCode, message: str) -> dict[str, Any]:
    """A cluster in which one agent reports this."""
    return {"agents": (agent("n1", notes=[NodeProblem(code, message)]), agent("n2"))}


def colliding() -> Object:
    """A group whose VRID another router uses."""
    found = build.group("lb/edge", default=True)
    ready = Condition(type="Ready", status="True", reason=Reason.VRID_COLLISION, message="VRID 7 on eth0 of n1")
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=[ready]))
