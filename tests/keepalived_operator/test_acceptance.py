"""
The acceptance checks (a) to (m) for users of keepalived-operator, on the controller's plans.

Check (f) needs a real keepalived: see ``test_daemon``.
"""

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig
from kavip.api.cluster import Node
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.cli.sources import files
from kavip.cli.views import simulate
from kavip.cli.views.simulate import Simulation
from kavip.names import ConditionType
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import Object, Snapshot
from tests.agent import mounts
from tests.agent.config.test_localize import facts
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

MANIFESTS = Path(__file__).parent / "manifests"
ROUTER, SECOND = "keepalived-operator/keepalivedgroup-router", "test-keepalived-operator/keepalivedgroup-test2"
MULTICAST: dict[str, Any] = {"unicast_enabled": None}


def external(key: str, *vips: str, **more: Any) -> Service:
    """A Service of the group with externalIPs, as on OpenShift."""
    return build.service(key, group=GROUP, type="ClusterIP", external_ips=list(vips), **more)


def settled(*objects: Object, nodes: int = 2) -> SimulatedCluster:
    """A cluster in which all plans of *objects* are carried out."""
    simulation = SimulatedCluster(cluster(*objects, nodes=nodes))
    services = [Key(KeyKind.SERVICE, each.key) for each in objects if isinstance(each, Service)]
    groups = [Key(KeyKind.GROUP, each.key) for each in objects if isinstance(each, KeepalivedGroup)]
    simulation.settle(*services, *groups)
    return simulation


def router_ids(text: str) -> dict[str, int]:
    """The VRID of each instance of a configuration."""
    found = re.findall(r"^vrrp_instance (\S+) \{.*?virtual_router_id (\d+)$", text, re.MULTILINE | re.DOTALL)
    return {name: int(number) for name, number in found}


def block(text: str, name: str) -> str:
    """One instance of a configuration."""
    found = re.search(rf"^vrrp_instance {re.escape(name)} \{{.*?^\}}", text, re.MULTILINE | re.DOTALL)
    assert found, name
    return found[0]


# --- (a) --------------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def simulated() -> Simulation:
    """The cluster after keepalived-operator's own test manifests."""
    return simulate.plan(files.load([MANIFESTS]))


def test_a_its_own_manifests_give_the_same_result(simulated: Simulation) -> None:
    """Each group has a DaemonSet and a ConfigMap of its name and the default image; VRIDs start after the blacklist."""
    made = {(each["kind"], each["metadata"]["name"]) for each in simulated.objects}
    groups = ("keepalivedgroup-test", "keepalivedgroup-test2", "keepalivedgroup-router")
    assert made == {(kind, name) for kind in (names.CONFIG_MAP, names.DAEMON_SET) for name in groups}
    assert {each.spec.image for each in simulated.snapshot.groups.values()} == {names.DEFAULT_IMAGE}
    assert simulated.snapshot.groups[ROUTER].status.router_ids == {"t/svc1": 3, "t/svc2": 4}


def test_a_a_service_without_annotation_is_ignored(simulated: Simulation) -> None:
    """It gets no address, no condition and no VRID."""
    plain = simulated.snapshot.services["t/kubernetes"]
    assert (plain.ingress_addresses, plain.status.conditions) == ((), None)
    assert not any("t/kubernetes" in (each.status.router_ids or {}) for each in simulated.snapshot.groups.values())


def test_a_addresses_are_left_to_a_platform_that_assigns_them(simulated: Simulation) -> None:
    """A Service without an address has a VRID, no instance, and a condition that says what assigns addresses."""
    assert "t/svc1" not in simulated.configurations[ROUTER]
    found = {each.type: each.reason for each in simulated.snapshot.services["t/svc1"].status.conditions or ()}
    assert found[ConditionType.ADDRESS_ASSIGNED] == "LeftToPlatform"


def test_a_the_same_vip_in_two_groups_is_detected(simulated: Simulation) -> None:
    """The first keeps it, the second is refused. keepalived-operator ran it in both."""
    assert "192.168.131.130" in simulated.configurations[ROUTER]
    assert [(each.namespace, each.name) for each in simulated.refused] == [("t", "svc4")]
    assert "192.168.131.130" not in simulated.configurations[SECOND]


def test_a_groups_of_one_segment_take_different_vrids(simulated: Simulation) -> None:
    """keepalived-operator started with 1 in each. Two groups on the same nodes have different ports."""
    used = [number for each in simulated.snapshot.groups.values() for number in (each.status.router_ids or {}).values()]
    assert len(used) == len(set(used)) > 2
    ports = [each.status.metrics_port for each in simulated.snapshot.groups.values()]
    assert len(set(ports)) == len(ports)


# --- (b), (c) ---------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_b_a_hundred_reconciles_give_the_same_bytes() -> None:
    """Nothing is written again, and a new controller that reads the objects in any order makes the same text."""
    objects: list[Object] = [build.group(**MULTICAST), *(external(f"t/s{at}", *ips(at)) for at in range(9))]
    simulation = settled(*objects)
    text = simulation.text()
    for seed in range(100):
        assert not simulation.plan_group().writes
        there = simulation.snapshot
        shuffled: list[Object] = [*there.services.values(), *there.groups.values(), *there.nodes.values()]
        random.Random(seed).shuffle(shuffled)
        again = SimulatedCluster(Snapshot.from_objects(shuffled))
        again.group()
        assert again.text() == text


def ips(at: int) -> list[str]:
    """Three addresses in no order."""
    found = [f"198.51.100.{10 * at + number}" for number in (3, 1, 2)]
    return found[at % 3 :] + found[: at % 3]


@pytest.mark.parametrize("seed", range(5))
def test_c_router_ids_in_status_are_kept_for_any_order_of_creation(seed: int) -> None:
    """VRIDs in the status stay, also those that kavip would not assign. New Services get free ones."""
    held = {"t/s0": 77, "t/s1": 3, "t/s2": 255}
    days = random.Random(seed).sample(range(1, 29), 5)
    made = (f"2026-02-{day:02}T00:00:00Z" for day in days)
    services = [external(f"t/s{at}", f"198.51.100.{at + 1}", created=each) for at, each in enumerate(made)]
    random.Random(seed).shuffle(services)
    simulation = settled(build.group(router_ids=held, **MULTICAST), *services)
    found = simulation.snapshot.groups[GROUP].status.router_ids or {}
    assert found.items() >= held.items()
    assert {found["t/s3"], found["t/s4"]} == {1, 2}
    assert router_ids(simulation.text()) == found


# --- (d), (e) ---------------------------------------------------------------------------------------------------------
def test_d_spreadvips_without_a_pod_has_a_vrid_for_each_address() -> None:
    """From the first plan on, no instance is rendered without a VRID or with VRID 0."""
    spread = external("t/web", "198.51.100.1", "198.51.100.2", annotations={names.SPREAD_ANNOTATION: "true"})
    simulation = SimulatedCluster(cluster(build.group(**MULTICAST), spread))
    text = ""
    for _ in range(4):
        simulation.group()
        text = simulation.text() if simulation.objects.configmaps else ""
        assert 0 not in router_ids(text).values()
    assert router_ids(text) == {"t/web/198.51.100.1": 1, "t/web/198.51.100.2": 2}


BAD = {
    "no slash": {names.GROUP_ANNOTATION: "edge"},
    "not JSON": {names.VERBATIM_ANNOTATION: "{track_src_ip"},
    "a number": {names.VERBATIM_ANNOTATION: '{"priority": 150}'},
    "a newline": {names.VERBATIM_ANNOTATION: '{"track_src_ip": "\\n  - apiVersion: v1"}'},
    "a brace": {names.VERBATIM_ANNOTATION: '{"track_src_ip": "}"}'},
    "an override": {names.VERBATIM_ANNOTATION: '{"virtual_router_id": "2"}'},
    "a script": {names.VERBATIM_ANNOTATION: '{"notify_master": "\\"/bin/sh -c id\\""}'},
}


@pytest.mark.parametrize("annotations", BAD.values(), ids=BAD)
def test_e_a_bad_annotation_affects_only_its_service(annotations: dict[str, str]) -> None:
    """The configuration of the other Services does not change, and an Event of the Service reports its problem."""
    good = settled(build.group(**MULTICAST), external("t/good", "198.51.100.1"))
    before = block(good.text(), "t/good")
    bad = external("t/bad", "198.51.100.2", annotations={names.GROUP_ANNOTATION: GROUP, **annotations})
    good.snapshot.put(bad)
    plans = [plan for _ in range(3) for plan in (good.service("t/bad"), good.group())]
    assert block(good.text(), "t/good") == before
    for injected in ("apiVersion", "notify", "/bin/sh"):
        assert injected not in good.text()
    reasons = {each.reason for plan in plans for each in plan.events}
    assert reasons & {"GroupNotFound", "InvalidVerbatim"}, reasons


# --- (g), (h) ---------------------------------------------------------------------------------------------------------
def test_g_the_256th_instance_touches_none_of_the_255() -> None:
    """The text does not change, and Services without a VRID report it."""
    services = [external(f"t/s{at:03}", f"198.18.{at // 200}.{at % 200 + 1}") for at in range(255)]
    simulation = SimulatedCluster(cluster(build.group(**MULTICAST), *services))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    before, held = simulation.text(), simulation.snapshot.groups[GROUP].status.router_ids
    assert len(router_ids(before)) == 255
    simulation.snapshot.put(external("t/late", "198.18.9.1", created="2026-02-01T00:00:00Z"))
    simulation.settle(Key(KeyKind.GROUP, GROUP), Key(KeyKind.SERVICE, "t/late"))
    assert simulation.text() == before
    assert simulation.snapshot.groups[GROUP].status.router_ids == held
    assert simulation.condition("t/late", ConditionType.SERVICE_PROGRAMMED) == ("False", "RouterIDsExhausted")


def test_h_a_dual_stack_service_has_two_instances() -> None:
    """There is one instance for each family, with addresses of that family only, in any order of ipFamilies."""
    for vips in (("198.51.100.1", "2001:db8::1"), ("2001:db8::1", "198.51.100.1")):
        text = settled(build.group(**MULTICAST), external("t/web", *vips)).text()
        assert set(router_ids(text)) == {"t/web", "t/web/v6"}
        assert ("198.51.100.1" in block(text, "t/web"), "2001:" in block(text, "t/web")) == (True, False)
        assert ("198.51" in block(text, "t/web/v6"), "2001:db8::1" in block(text, "t/web/v6")) == (False, True)


# --- (i) to (m) -------------------------------------------------------------------------------------------------------
def test_i_unicast_peers_follow_the_nodes_addresses() -> None:
    """A node whose address appears later becomes a peer. No node lists itself."""
    simulation = settled(build.group(unicast_enabled=True), external("t/web", "192.0.2.130"), nodes=1)
    simulation.snapshot.put(Node(metadata=build.metadata("n2")))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert "192.0.2.12" not in simulation.text()
    simulation.snapshot.put(build.node("n2", "192.0.2.12"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    local = localize(mounts.mounted(simulation.text()), facts())
    assert isinstance(local, LocalizedConfig)
    (peers,) = re.findall(r"unicast_peer \{(.*?)\}", local.text, re.DOTALL)
    assert (peers.split()[0], "192.0.2.11" in peers) == ("192.0.2.12", False)


def test_j_selectors_and_annotations_stay_strings() -> None:
    """Values that YAML would read as booleans or numbers stay strings in the DaemonSet."""
    given = {"x": "true", "y": "1", "z": "a: b"}
    group = build.group(node_selector=given, daemonset_pod_annotations={"prometheus.io/port": "9650", "z": "a: b"})
    (body,) = [each for each in simulate.plan([group, build.node("n1")]).objects if each["kind"] == names.DAEMON_SET]
    template = msgspec.json.decode(msgspec.json.encode(body))["spec"]["template"]
    assert template["spec"]["nodeSelector"] == given
    assert template["metadata"]["annotations"] == {"prometheus.io/port": "9650", "z": "a: b"}


def test_k_local_without_a_health_port_is_not_in_fault_forever() -> None:
    """A ClusterIP with externalIPs has no health port: there is no request to port 0, and no script runs."""
    text = settled(build.group(**MULTICAST), external("t/web", "198.51.100.1", external_traffic_policy="Local")).text()
    assert router_ids(text) == {"t/web": 1}
    assert "script" not in text.replace("enable_script_security", "").replace("script_user", "")
    assert ":0/" not in text


def test_l_a_service_called_interface_survives_interface_from_ip() -> None:
    """Only the interface is replaced. The name of the instance, its brace and its lines stay."""
    verbatim = {names.VERBATIM_ANNOTATION: '{"track_interface": "{ eth1 }"}'}
    group = build.group(
        unicast_enabled=True, interface_from_ip="192.0.2.1", interface="dummy", allow_verbatim=["track_interface"]
    )
    services = [external("t/interface-api", "192.0.2.130"), external("t/tracked", "192.0.2.131", annotations=verbatim)]
    text = settled(group, *services).text()
    mounted = mounts.mounted(text, interface_from_ip="192.0.2.1")
    local = localize(mounted, facts())
    assert isinstance(local, LocalizedConfig), local
    assert re.search(r"^vrrp_instance t/interface-api \{$", local.text, re.MULTILINE)
    assert "dummy" not in local.text
    assert local.text.count("interface eth0\n") == 2
    assert local.text.count("{") == local.text.count("}")


def test_m_two_groups_on_one_node_and_one_segment_do_not_meet() -> None:
    """They have different VRIDs and ports, and their own objects and mounts."""
    other = build.group("lb/other", segment="default", created="2026-02-01T00:00:00Z")
    there = external("t/b", "198.51.100.2", annotations={names.GROUP_ANNOTATION: "lb/other"})
    simulation = settled(build.group(segment="default"), other, external("t/a", "198.51.100.1"), there)
    assert (router_ids(simulation.text()), router_ids(simulation.text("lb/other"))) == ({"t/a": 1}, {"t/b": 2})
    first, second = (simulation.snapshot.groups[key].status.metrics_port for key in (GROUP, "lb/other"))
    assert (first, second) == (9650, 9651)
