"""The writer with a real API server: its writes are accepted, owned and conditional."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.controller.writer import Writer
from kavip.errors import Conflict, NotFound
from kavip.kube.client import Client
from kavip.kube.resources import CONFIGMAPS, DAEMONSETS, GROUPS, PODS, POOLS, SERVICES, Resource
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.observed.agentstates import AgentStates
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.observed.records import Records
from kavip.reconcile.plan import Apply, Key, KeyKind, Plan, PodAnnotation, StatusPatch
from kavip.reconcile.pool import plan_pool
from kavip.reconcile.predicate import PendingWrites, is_own_write
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Snapshot
from tests.reconcile.simulatedcluster import NOW, running
from tests.support import build

pytestmark = pytest.mark.apiserver

ROOT = Path(__file__).parents[2]
VIP = "198.18.77.1"
PATIENCE = 60.0


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    """Kavip's own kinds."""
    control_plane.kubectl("apply", "--server-side", "-f", str(ROOT / "config" / "crd" / "bases"))
    control_plane.wait_established()


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """
    A namespace for one test, emptied afterwards: no controller does so here, and leftovers would affect other tests.
    """
    name = "apply-" + request.node.name[5:50].replace("_", "-").strip("-")
    control_plane.kubectl("create", "namespace", name)
    yield name
    kinds = "services,keepalivedgroups,daemonsets,configmaps,pods"
    control_plane.kubectl("delete", kinds, "--all", "--namespace", name, "--force", "--grace-period=0")
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


class Live:
    """The plans of the controller and its writer, with the objects of a real API server."""

    def __init__(self, plane: ControlPlane, client: Client, namespace: str) -> None:
        """Start without objects."""
        self.plane, self.client, self.namespace = plane, client, namespace
        self.objects, self.agents = OwnedObjects(), AgentStates()
        self.records, self.pending = Records(), PendingWrites()
        self.writer = Writer(client, self.records, self.pending, now=lambda: NOW)

    def kubectl(self, *args: str) -> str:
        """Write as another client."""
        return self.plane.kubectl("--namespace", self.namespace, *args).stdout

    @property
    def observed(self) -> Observed:
        """A Snapshot of the objects."""
        return Observed(self.agents, self.objects, self.records)

    def create(self, *objects: dict[str, Any]) -> None:
        """Create *objects* as a user."""
        text = "\n---\n".join(map(json.dumps, objects))
        self.plane.kubectl("--namespace", self.namespace, "create", "-f", "-", input=text)

    def read(self, kind: str, name: str) -> Any:
        """The object as the API server shows it."""
        return json.loads(self.kubectl("get", kind, name, "-o", "json"))

    async def service(self, name: str = "web") -> Service:
        """The Service as kavip reads it."""
        return await self.client.get(SERVICES, f"{self.namespace}/{name}")

    async def snapshot(self) -> Snapshot:
        """The objects that the caches would have."""
        services, _ = await self.client.list(SERVICES, namespace=self.namespace)
        groups, _ = await self.client.list(GROUPS, namespace=self.namespace)
        return Snapshot.from_objects(
            [
                *services,
                *groups,
                build.pool("apply", "198.18.77.0/30", exclude=["198.18.77.0"]),
                build.node("n1", "192.0.2.11"),
            ]
        )

    async def plan(self, name: str = "web") -> Plan:
        """The plan of a Service."""
        snapshot = await self.snapshot()
        return plan_service(snapshot, f"{self.namespace}/{name}", now=NOW, observed=self.observed)

    async def group_plan(self, name: str = "edge") -> Plan:
        """The plan of a group with the objects that informers would show."""
        key = f"{self.namespace}/{name}"
        resources: tuple[Resource[Any], ...] = (CONFIGMAPS, DAEMONSETS)
        for resource in resources:
            found = None
            with suppress(NotFound):
                found = await self.client.get(resource, key)
            store: dict[str, Any] = self.objects.configmaps if resource is CONFIGMAPS else self.objects.daemonsets
            store.pop(key, None)
            if found is not None and found.metadata.label(names.GROUP_LABEL):
                self.objects.store(None, found)
        return plan_group(await self.snapshot(), key, now=NOW, observed=self.observed)

    async def settle(self, name: str = "edge") -> None:
        """Carry out the plans of a group until nothing is left to write."""
        for _ in range(10):
            plan = await self.group_plan(name)
            if not plan.writes:
                return
            await self.writer.send(plan)
        raise AssertionError("the plans do not come to rest")


@pytest.fixture
async def live(control_plane: ControlPlane, namespace: str) -> AsyncIterator[Live]:
    """A namespace with a group and a Service of it."""
    async with Client.from_settings(str(control_plane.kubeconfig)) as client:
        made = Live(control_plane, client, namespace)
        made.create(group(), service(namespace))
        yield made


def group(**spec: Any) -> dict[str, Any]:
    """A KeepalivedGroup as a user writes it."""
    return {
        "apiVersion": "redhatcop.redhat.io/v1alpha1",
        "kind": "KeepalivedGroup",
        "metadata": {"name": "edge"},
        "spec": {"interface": "eth0", **spec},
    }


def service(namespace: str) -> dict[str, Any]:
    """A Service of the group."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web", "annotations": {names.GROUP_ANNOTATION: f"{namespace}/edge"}},
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": False,
            "ports": [{"port": 80}],
            "selector": {"app": "web"},
        },
    }


# --- Services ---------------------------------------------------------------------------------------------------------
async def test_one_write_and_then_none(live: Live) -> None:
    """After the server's defaulting, the plan of the stored object is empty."""
    assert await live.writer.send(await live.plan())
    stored = await live.service()
    assert [(entry.ip, entry.ip_mode) for entry in stored.status.load_balancer.ingress or ()] == [(VIP, "VIP")]
    assert {entry.type: entry.reason for entry in stored.status.conditions or ()} == {
        "kavip.io/AddressAssigned": "Assigned",
        "kavip.io/Programmed": "Pending",
    }
    assert not (await live.plan()).writes


async def test_an_own_write_is_recognised(live: Live) -> None:
    """The stored object equals the sent one, so its event does not cause a second plan."""
    before, plan = await live.service(), await live.plan()
    await live.writer.send(plan)
    assert is_own_write(live.pending.pop_sent(before.key), before, await live.service())


async def test_an_event_before_the_response_is_not_expected_again(live: Live) -> None:
    """The watch has delivered the event before the response, so no further event is expected."""
    plan = await live.plan()
    sending = asyncio.create_task(live.writer.send(plan))
    async with asyncio.timeout(PATIENCE):
        while not live.pending.pop_sent(f"{live.namespace}/web"):
            await asyncio.sleep(0)
    await sending
    assert not live.pending.returning()


async def test_a_write_without_a_change_expects_no_event(live: Live) -> None:
    """The API server creates no new version, so no watch would deliver it."""
    key = Key(KeyKind.SERVICE, f"{live.namespace}/web")
    before, plan = await live.service(), await live.plan()
    await live.writer.send(plan)
    assert live.pending.is_replaced(key, before.metadata.resource_version)
    live.pending.confirm(key)
    stored = await live.service()
    (write,) = [each for each in plan.writes if isinstance(each, StatusPatch)]
    again = {**write.body, "metadata": {"resourceVersion": stored.metadata.resource_version}}
    await live.writer.send(Plan(writes=(StatusPatch(write.kind, write.key, again),)))
    assert not live.pending.is_replaced(key, stored.metadata.resource_version)


async def test_a_stale_write_is_rejected(live: Live) -> None:
    """A Service that has changed since the decision is not changed."""
    plan = await live.plan()
    live.kubectl("label", "service", "web", "changed=yes")
    with pytest.raises(Conflict):
        await live.writer.send(plan)
    stored = await live.service()
    assert not stored.status.load_balancer.ingress
    assert not stored.status.conditions


async def test_conditions_of_other_controllers_stay(live: Live) -> None:
    """kavip's conditions are set, changed and removed beside them."""
    theirs = {
        "type": "example.org/Healthy",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    live.kubectl(
        "patch", "service", "web", "--subresource=status", "-p", json.dumps({"status": {"conditions": [theirs]}})
    )
    await live.writer.send(await live.plan())
    live.agents = AgentStates({f"{live.namespace}/edge": {"n1": running("h", VIP, master=True)}})
    await live.settle()
    await live.writer.send(await live.plan())
    assert {entry.type: entry.status for entry in (await live.service()).status.conditions or ()} == {
        "example.org/Healthy": "True",
        "kavip.io/AddressAssigned": "True",
        "kavip.io/Programmed": "True",
        "kavip.io/Advertised": "True",
    }
    live.kubectl("annotate", "service", "web", f"{names.GROUP_ANNOTATION}-")
    await live.writer.send(await live.plan())
    stored = await live.service()
    assert [entry.type for entry in stored.status.conditions or ()] == ["example.org/Healthy"]
    assert not stored.status.load_balancer.ingress
    assert not (await live.plan()).writes


async def test_a_deleted_service_is_no_error(live: Live) -> None:
    """A deletion during the write is accepted."""
    plan = await live.plan()
    live.kubectl("delete", "service", "web")
    assert await live.writer.send(plan)


# --- groups -----------------------------------------------------------------------------------------------------------
async def test_the_objects_of_a_group_are_taken_and_owned(live: Live) -> None:
    """The API server accepts both, under our field manager, controlled by the group; and the plans come to rest."""
    await live.settle()
    made: KeepalivedGroup = await live.client.get(GROUPS, f"{live.namespace}/edge")
    for kind in ("configmap", "daemonset"):
        found = json.loads(live.kubectl("get", kind, "edge", "-o", "json", "--show-managed-fields"))
        assert found["metadata"]["ownerReferences"][0]["uid"] == made.metadata.uid
        assert [(each["manager"], each["operation"]) for each in found["metadata"]["managedFields"]] == [
            (names.FIELD_MANAGER, "Apply")
        ]
    assert made.status.router_ids == {f"{live.namespace}/web": 1}
    assert {entry.type for entry in made.status.conditions or ()} >= {"Accepted", "Programmed", "Ready"}


async def test_every_knob_of_the_pods_is_taken_and_given_up_again(live: Live) -> None:
    """Every pod setting of the group is valid in the DaemonSet, and is removed with the setting."""
    spec = {
        "passwordAuth": {"secretRef": {"name": "vrrp"}},
        "nodeSelector": {"edge": "true"},
        "daemonsetPodPriorityClassName": "system-node-critical",
        "daemonsetPodAnnotations": {"prometheus.io/port": "9650"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "imagePullSecrets": [{"name": "pull"}],
        "serviceAccountName": "keepalived",
        "resources": {"limits": {"memory": "0.1Gi"}},
        "updateStrategy": {"type": "OnDelete"},
        "metricsPort": 9700,
    }
    live.kubectl("patch", "keepalivedgroup", "edge", "--type=merge", "-p", json.dumps({"spec": spec}))
    await live.settle()
    pod = live.read("daemonset", "edge")["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"edge": "true"}
    assert [volume["name"].partition("-")[0] for volume in pod["volumes"]] == ["config", "run", "password"]
    live.kubectl("patch", "keepalivedgroup", "edge", "--type=merge", "-p", json.dumps({"spec": dict.fromkeys(spec)}))
    await live.settle()
    pod = live.read("daemonset", "edge")["spec"]["template"]["spec"]
    assert "nodeSelector" not in pod
    assert [volume["name"] for volume in pod["volumes"]] == ["config", "run"]
    assert pod["tolerations"] == [{"operator": "Exists"}]


async def test_an_edit_of_our_fields_is_undone_and_a_field_of_others_stays(live: Live) -> None:
    """`kubectl rollout restart` works. A changed image is reverted."""
    await live.settle()
    live.kubectl("rollout", "restart", "daemonset/edge")
    live.kubectl("set", "image", "daemonset/edge", "agent=registry.example/evil:1")
    assert [write.kind for write in (await live.group_plan()).writes if isinstance(write, Apply)] == ["DaemonSet"]
    await live.settle()
    template = live.read("daemonset", "edge")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]
    assert {container["image"] for container in template["spec"]["containers"]} == {"kavip:latest"}
    live.kubectl("delete", "configmap", "edge")
    await live.settle()
    assert live.read("configmap", "edge")["data"].keys() == {"agent.json", "keepalived.conf"}


async def test_a_config_map_of_another_owner_is_found_although_no_cache_has_it(live: Live) -> None:
    """Without the label no informer has it. The writer reads it before the write, and writes nothing."""
    live.kubectl("create", "configmap", "edge", "--from-literal=theirs=yes")
    await live.settle()
    assert live.read("configmap", "edge")["data"] == {"theirs": "yes"}
    with pytest.raises(NotFound):
        await live.client.get(DAEMONSETS, f"{live.namespace}/edge")
    made = await live.client.get(GROUPS, f"{live.namespace}/edge")
    accepted = next(entry for entry in made.status.conditions or () if entry.type == "Accepted")
    assert (accepted.status, accepted.reason) == ("False", "ObjectConflict")


async def test_a_rejection_of_the_api_server_is_in_the_groups_status(live: Live) -> None:
    """An invalid taint key gives the message of the API server, without endless retries."""
    bad = {"spec": {"tolerations": [{"key": "no key", "operator": "Exists"}]}}
    live.kubectl("patch", "keepalivedgroup", "edge", "--type=merge", "-p", json.dumps(bad))
    await live.settle()
    made = await live.client.get(GROUPS, f"{live.namespace}/edge")
    accepted = next(entry for entry in made.status.conditions or () if entry.type == "Accepted")
    assert (accepted.status, accepted.reason) == ("False", "Invalid")
    assert "the API server refuses DaemonSet" in accepted.message
    assert "no key" in accepted.message


async def test_pods_are_annotated_and_missing_ones_are_no_error(live: Live) -> None:
    """The annotation is written. A deleted pod is no error."""
    container = {"name": "pause", "image": "pause"}
    live.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    live.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p1"}, "spec": {"containers": [container]}})
    writes = tuple(
        PodAnnotation(f"{live.namespace}/{name}", "0123", f"{live.namespace}/edge") for name in ("p1", "gone")
    )
    assert await live.writer.send(Plan(writes=writes))
    pod = await live.client.get(PODS, f"{live.namespace}/p1")
    assert pod.metadata.annotation(names.CONFIG_HASH_ANNOTATION) == "0123"


# --- pools ------------------------------------------------------------------------------------------------------------
async def test_the_status_of_a_pool_replaces_the_defaults(live: Live) -> None:
    """Usage and conditions are stored, and the plan of the stored pool is empty."""
    wanted = {
        "apiVersion": "kavip.io/v1alpha1",
        "kind": "VIPPool",
        "metadata": {"name": "apply-status"},
        "spec": {"addresses": ["198.18.78.0/30", "2001:db8:78::/64"]},
    }
    live.create(wanted)
    try:
        pool = await live.client.get(POOLS, "apply-status")
        plan = plan_pool(Snapshot.from_objects([pool]), "apply-status", now=NOW)
        assert [write.kind for write in plan.writes if isinstance(write, StatusPatch)] == [KeyKind.POOL]
        await live.writer.send(plan)
        stored = await live.client.get(POOLS, "apply-status")
        assert {entry.type: entry.status for entry in stored.status.conditions or ()} == {
            "Accepted": "True",
            "Ready": "True",
        }
        assert stored.status.ipv4 is not None
        assert stored.status.ipv4.total == 4
        assert stored.status.ipv6 is not None
        assert stored.status.ipv6.total == 2**63 - 1
        assert not plan_pool(Snapshot.from_objects([stored]), "apply-status", now=NOW).writes
    finally:
        live.kubectl("delete", "vippool", "apply-status")
