"""The take-over of a live keepalived-operator: no VIP moves before the approval, and then each VIP moves once."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hack.testbed import process
from hack.testbed.segment import Segment
from kavip import names
from kavip.api.group import Check, PasswordAuth, SecretRef
from kavip.vrrp import operatorconfig
from tests.agent.pod import PATIENCE
from tests.keepalived_operator.oldobjects import conf, instance
from tests.reconcile.simulatedcluster import GROUP
from tests.reconcile.takeover.oldinstallation import with_taint
from tests.support import build
from tests.transitions.conftest import lan as lan
from tests.transitions.healthports import PORT, HealthPorts
from tests.transitions.livegroup import service
from tests.transitions.oldinstallation import OldInstallation
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

WEB, API, SPREAD = "shop/web", "shop/api", "shop/spread"
SIX = "2001:db8:2::142"
PASSWORD = "s3cret"
INTERVAL = 1.0  # between two adverts
MakeInstallation = Callable[..., OldInstallation]


@pytest.fixture
def make_installation(lan: Segment, tmp_path: Path) -> Iterator[MakeInstallation]:
    """Makes installations of keepalived-operator. They are stopped after the test."""
    with ExitStack() as stack:

        def make(text: str, *objects: Any, password: str = "", **spec: Any) -> OldInstallation:
            made = OldInstallation(lan, tmp_path, nodes=3, text=text, password=password)
            stack.callback(made.stop)
            ids = {each.name: each.router_id for each in operatorconfig.read_instances(text)}
            for each in (build.group(GROUP, router_ids=ids, **spec), *objects):
                made.simulation.snapshot.put(each)
            return made

        yield make


def advertised_addresses(live: OldInstallation) -> int:
    """How many addresses kavip's daemons advertise for the first Service."""
    (found,) = (each for each in operatorconfig.read_instances(live.text) if each.name == WEB)
    return len(found.addresses)


def old_master(live: OldInstallation, *instances: str) -> str:
    """Wait until all *instances* have one stable master; return the node of the first one's."""
    for name in instances:
        process.wait_for(f"one master of {name}", lambda name=name: len(live.masters(name)) == 1, timeout=PATIENCE)  # type: ignore[misc]  # a default
    live.wait_until_stable()
    (found,) = live.masters(instances[0])
    return found


def test_each_vip_moves_once_and_is_never_away(make_installation: MakeInstallation) -> None:
    """
    Multicast, a password and lists of VIPs: no VIP moves without approval, then each moves once.

    The old daemons served one of two families. The other one starts with the first new pod and has no old master. A
    request that is on its way to the old node may be lost, as in any hand-over.
    """
    text = conf(
        instance(WEB, 7, "192.0.2.140", "192.0.2.141", password=PASSWORD),
        instance(API, 9, "192.0.2.142", SIX, password=PASSWORD),
    )
    services = [service(WEB, "192.0.2.140", "192.0.2.141"), service(API, "192.0.2.142", SIX)]
    auth = PasswordAuth(secret_ref=SecretRef(name="vrrp"))
    live = make_installation(text, *services, password=PASSWORD, password_auth=auth)
    holder = old_master(live, WEB, API)
    vips = ["192.0.2.140", "192.0.2.141", "192.0.2.142"]
    with record(live, vips) as before:
        live.settle()
        time.sleep(2)  # two adverts
    assert (before.transitions, before.failures, before.double_masters) == ({}, {}, ())
    assert live.pods == {}
    live.approve_takeover()
    with record(live, vips) as recorded:
        live.settle()
        assert advertised_addresses(live) == 2
        process.wait_for(
            "all nodes advertise one address", lambda: live.step() and advertised_addresses(live) == 1, timeout=PATIENCE
        )
    assert all(recorded.moved_cleanly(vip, moves=1) for vip in vips), recorded.timeline()
    assert recorded.double_masters == ()
    assert live.simulation.removed[-1] == f"lb/edge-old-{holder}"
    assert [recorded.masters[name][0] for name in (WEB, API)] == [holder, holder]
    assert [len(recorded.masters[name]) for name in (WEB, API)] == [2, 2], recorded.masters
    assert live.master(f"{API}/v6")
    data = live.simulation.objects.configmaps[GROUP].data or {}
    assert PASSWORD not in data[names.CONFIG_KEY] + data[names.AGENT_KEY]
    assert names.TAKE_OVER_KEY not in data


def test_a_vip_of_policy_local_stays_where_endpoints_are(make_installation: MakeInstallation, tmp_path: Path) -> None:
    """The old daemons ask kube-proxy by a script. A node with an endpoint takes the VIP from its live master."""
    vip = "192.0.2.140"
    policy: dict[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": PORT}
    web = build.service(WEB, group=GROUP, external_ips=[vip], **policy)
    live = make_installation(conf(instance(WEB, 7, vip, health_port=PORT)), web)
    health_ports = HealthPorts(live.lan.nodes, tmp_path / "proxies")
    try:
        health_ports.set_ready("n1", "n3")
        health_ports.start()
        holder = old_master(live, WEB)
        live.approve_takeover()
        with record(live, [vip]) as recorded:
            live.settle()
    finally:
        health_ports.stop()
    (taker,) = {"n1", "n3"} - {holder}
    assert recorded.masters[WEB] == [holder, taker]
    assert recorded.double_masters == ()
    assert recorded.moved_cleanly(vip, moves=1), recorded.timeline()


def test_a_check_that_lowers_a_priority_leaves_the_vip_to_the_other_node(
    make_installation: MakeInstallation, tmp_path: Path
) -> None:
    """The node with the higher priority takes the VIP from its live master, and the replacement waits for it."""
    vip, url = "192.0.2.140", f"http://127.0.0.1:{PORT}/healthz"
    # a weight that lowers the node below the old pods: else both new nodes outrank them, and the lowered one may win
    # first
    check = Check(name="local", url=url, on_failure="LowerPriority", weight=200, timeout_seconds=10)
    live = make_installation(conf(instance(WEB, 7, vip)), service(WEB, vip), checks=[check])
    health_ports = HealthPorts(live.lan.nodes, tmp_path / "proxies")
    try:
        holder = old_master(live, WEB)
        lowered, taker = sorted({"n1", "n2", "n3"} - {holder})
        health_ports.set_ready(taker, holder)
        health_ports.start()
        live.approve_takeover()
        with record(live, [vip]) as recorded:
            live.settle()
    finally:
        health_ports.stop()
    assert recorded.masters[WEB] == [holder, taker], lowered
    assert recorded.double_masters == ()
    assert recorded.moved_cleanly(vip, moves=1), recorded.timeline()


def test_an_old_pod_on_a_node_that_new_pods_do_not_tolerate_goes_last(make_installation: MakeInstallation) -> None:
    """A taint came after the pod: it goes last, after a new pod took the VIP, and no new pod follows on its node."""
    vip = "192.0.2.140"
    live = make_installation(conf(instance(WEB, 7, vip)), service(WEB, vip), tolerations=[])
    holder = old_master(live, WEB)
    with_taint(live.simulation, holder)
    live.approve_takeover()
    with record(live, [vip]) as recorded:
        live.settle()
    assert [len(live.simulation.removed), live.simulation.removed[-1]] == [3, f"lb/edge-old-{holder}"]
    assert sorted(live.pods) == sorted({"n1", "n2", "n3"} - {holder})
    assert [recorded.masters[WEB][0], len(recorded.masters[WEB])] == [holder, 2], recorded.masters
    assert recorded.double_masters == ()
    assert recorded.moved_cleanly(vip, moves=1), recorded.timeline()


def test_spread_vips_of_which_every_node_holds_one(make_installation: MakeInstallation) -> None:
    """
    Unicast, each node prefers one VIP: only the first node's VIP falls to the old pods for a moment.

    No new pod could take that one over, because there was none.
    """
    vips = ["192.0.2.140", "192.0.2.141", "192.0.2.142"]
    peers = ["192.0.2.11", "192.0.2.12", "192.0.2.13"]
    blocks = [instance(f"{SPREAD}/{vip}", 7 + n, vip, owner=f"n{n + 1}", peers=peers) for n, vip in enumerate(vips)]
    spread = service(SPREAD, *vips, annotations={names.SPREAD_ANNOTATION: "true"})
    live = make_installation(conf(*blocks), spread, unicast_enabled=True)
    for n, vip in enumerate(vips, start=1):
        process.wait_for(f"n{n} holds {vip}", lambda: live.masters(f"{SPREAD}/{vip}") == [f"n{n}"], timeout=PATIENCE)  # noqa: B023 - called in the same pass
    live.approve_takeover()
    with record(live, vips) as recorded:
        live.settle()
    first, *others = (f"{SPREAD}/{vip}" for vip in vips)
    assert live.simulation.removed[0] == "lb/edge-old-n1"
    assert all(recorded.moved_cleanly(vip, moves=1) for vip in vips[1:]), recorded.timeline()
    # priority 0, and the skew of the others; without it an election takes three intervals
    assert recorded.longest_silence < 2 * INTERVAL + recorded.pause, recorded.timeline()
    # the other old pods have equal priorities: they elect one within an advert interval
    assert {each.router_id for each in recorded.double_masters} <= {7}
    assert all(each.seconds < INTERVAL for each in recorded.double_masters), recorded.double_masters
    assert [len(recorded.masters[name]) for name in others] == [2, 2], recorded.masters
    # its old master, one or both of the other old pods, then the leader
    assert len(recorded.masters[first]) <= 4, recorded.masters
