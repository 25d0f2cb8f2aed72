"""A live keepalived-operator is taken over: nothing moves before it is agreed, and then each VIP once and cleanly."""

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
from tests.changes.conftest import lan as lan
from tests.changes.migration import Migration
from tests.changes.rig import service
from tests.changes.seen import watching
from tests.changes.test_local import PORT, Proxies
from tests.predecessor.live import conf, instance
from tests.reconcile.migration.migrating import tainted
from tests.reconcile.scenes import GROUP
from tests.support import build

pytestmark = pytest.mark.netns

WEB, API, SPREAD = "shop/web", "shop/api", "shop/spread"
SIX = "2001:db8:2::142"
PASSWORD = "s3cret"
PATIENCE = 60.0
INTERVAL = 1.0  # between two advertisements
MakeMigration = Callable[..., Migration]


@pytest.fixture
def make_migration(lan: Segment, tmp_path: Path) -> Iterator[MakeMigration]:
    """Makes installations of keepalived-operator; they end with the test."""
    with ExitStack() as stack:

        def make(text: str, *objects: Any, password: str = "", **spec: Any) -> Migration:
            made = Migration(lan, tmp_path, nodes=3, text=text, password=password)
            stack.callback(made.stop)
            ids = {each.name: each.router_id for each in operatorconfig.read_instances(text)}
            for each in (build.group(GROUP, router_ids=ids, **spec), *objects):
                made.world.snapshot.put(each)
            return made

        yield make


def listed(rig: Migration) -> int:
    """How many addresses kavip's daemons advertise for the first Service."""
    (found,) = (each for each in operatorconfig.read_instances(rig.text) if each.name == WEB)
    return len(found.addresses)


def holder_of(rig: Migration, *instances: str) -> str:
    """The node whose old daemon is master of the first of *instances*, when all have one and keep it."""
    for name in instances:
        process.wait_for(f"one master of {name}", lambda name=name: len(rig.masters(name)) == 1, timeout=PATIENCE)  # type: ignore[misc]  # a default
    rig.rest()
    (found,) = rig.masters(instances[0])
    return found


def test_each_vip_moves_once_and_is_never_away(make_migration: MakeMigration) -> None:
    """
    Multicast, a password, lists of VIPs: nothing moves without consent, then each moves once.

    Of two families the old daemons served one: the other comes with the first new pod, and is nobody's rival.
    A request that was on its way to the old node at that moment may be lost, as with any hand-over.
    """
    text = conf(
        instance(WEB, 7, "192.0.2.140", "192.0.2.141", password=PASSWORD),
        instance(API, 9, "192.0.2.142", SIX, password=PASSWORD),
    )
    services = [service(WEB, "192.0.2.140", "192.0.2.141"), service(API, "192.0.2.142", SIX)]
    auth = PasswordAuth(secret_ref=SecretRef(name="vrrp"))
    rig = make_migration(text, *services, password=PASSWORD, password_auth=auth)
    holder = holder_of(rig, WEB, API)
    vips = ["192.0.2.140", "192.0.2.141", "192.0.2.142"]
    with watching(rig, vips) as before:
        rig.settle()
        time.sleep(2)  # two advertisements
    assert (before.transitions, before.failures, before.double_masters) == ({}, {}, ())
    assert rig.pods == {}
    rig.consent()
    with watching(rig, vips) as seen:
        rig.settle()
        assert listed(rig) == 2
        process.wait_for("all nodes advertise one address", lambda: rig.step() and listed(rig) == 1, timeout=PATIENCE)
    assert all(seen.is_kept(vip, moves=1) for vip in vips), seen.story()
    assert seen.double_masters == ()
    assert rig.world.removed[-1] == f"lb/edge-old-{holder}"
    assert [seen.masters[name][0] for name in (WEB, API)] == [holder, holder]
    assert [len(seen.masters[name]) for name in (WEB, API)] == [2, 2], seen.masters
    assert rig.master(f"{API}/v6")
    data = rig.world.objects.configmaps[GROUP].data or {}
    assert PASSWORD not in data[names.CONFIG_KEY] + data[names.AGENT_KEY]
    assert names.TAKE_OVER_KEY not in data


def test_a_vip_of_policy_local_stays_where_endpoints_are(make_migration: MakeMigration, tmp_path: Path) -> None:
    """Its old daemons ask kube-proxy by a script; a node with an endpoint takes it from its holder, which lives."""
    vip = "192.0.2.140"
    policy: dict[str, Any] = {"external_traffic_policy": "Local", "health_check_node_port": PORT}
    web = build.service(WEB, group=GROUP, external_ips=[vip], **policy)
    rig = make_migration(conf(instance(WEB, 7, vip, health_port=PORT)), web)
    proxies = Proxies(rig, tmp_path / "proxies")
    try:
        proxies.ready("n1", "n3")
        proxies.start()
        holder = holder_of(rig, WEB)
        rig.consent()
        with watching(rig, [vip]) as seen:
            rig.settle()
    finally:
        proxies.stop()
    (heir,) = {"n1", "n3"} - {holder}
    assert seen.masters[WEB] == [holder, heir]
    assert seen.double_masters == ()
    assert seen.is_kept(vip, moves=1), seen.story()


def test_a_check_that_lowers_a_priority_leaves_the_vip_to_the_other_node(
    make_migration: MakeMigration, tmp_path: Path
) -> None:
    """The other one takes it from its holder, which lives, and is waited for."""
    vip, url = "192.0.2.140", f"http://127.0.0.1:{PORT}/healthz"
    # below the old ones: else both rise, and the lowered one may be the first for a moment
    check = Check(name="local", url=url, on_failure="LowerPriority", weight=200, timeout_seconds=10)
    rig = make_migration(conf(instance(WEB, 7, vip)), service(WEB, vip), checks=[check])
    proxies = Proxies(rig, tmp_path / "proxies")
    try:
        holder = holder_of(rig, WEB)
        lowered, heir = sorted({"n1", "n2", "n3"} - {holder})
        proxies.ready(heir, holder)
        proxies.start()
        rig.consent()
        with watching(rig, [vip]) as seen:
            rig.settle()
    finally:
        proxies.stop()
    assert seen.masters[WEB] == [holder, heir], lowered
    assert seen.double_masters == ()
    assert seen.is_kept(vip, moves=1), seen.story()


def test_an_old_pod_on_a_node_that_pods_must_not_go_to_any_more(make_migration: MakeMigration) -> None:
    """A taint came after it: it goes last, when a new pod has taken the VIP from it, and no other takes its place."""
    vip = "192.0.2.140"
    rig = make_migration(conf(instance(WEB, 7, vip)), service(WEB, vip), tolerations=[])
    holder = holder_of(rig, WEB)
    tainted(rig.world, holder)
    rig.consent()
    with watching(rig, [vip]) as seen:
        rig.settle()
    assert [len(rig.world.removed), rig.world.removed[-1]] == [3, f"lb/edge-old-{holder}"]
    assert sorted(rig.pods) == sorted({"n1", "n2", "n3"} - {holder})
    assert [seen.masters[WEB][0], len(seen.masters[WEB])] == [holder, 2], seen.masters
    assert seen.double_masters == ()
    assert seen.is_kept(vip, moves=1), seen.story()


def test_spread_vips_that_every_node_holds(make_migration: MakeMigration) -> None:
    """
    Unicast, each node prefers a VIP: only what the first node held falls to the others for a moment.

    It is the one that no new pod could have taken over, for there was none.
    """
    vips = ["192.0.2.140", "192.0.2.141", "192.0.2.142"]
    peers = ["192.0.2.11", "192.0.2.12", "192.0.2.13"]
    blocks = [instance(f"{SPREAD}/{vip}", 7 + n, vip, owner=f"n{n + 1}", peers=peers) for n, vip in enumerate(vips)]
    spread = service(SPREAD, *vips, annotations={names.SPREAD_ANNOTATION: "true"})
    rig = make_migration(conf(*blocks), spread, unicast_enabled=True)
    for n, vip in enumerate(vips, start=1):
        process.wait_for(f"n{n} holds {vip}", lambda: rig.masters(f"{SPREAD}/{vip}") == [f"n{n}"], timeout=PATIENCE)  # noqa: B023
    rig.consent()
    with watching(rig, vips) as seen:
        rig.settle()
    first, *others = (f"{SPREAD}/{vip}" for vip in vips)
    assert rig.world.removed[0] == "lb/edge-old-n1"
    assert all(seen.is_kept(vip, moves=1) for vip in vips[1:]), seen.story()
    # a farewell, and the others' skew; a death in silence costs three
    assert seen.longest_silence < 2 * INTERVAL + seen.pause, seen.story()
    # its old heirs have one priority, and find out within an advertisement which of them it is
    assert {each.router_id for each in seen.double_masters} <= {7}
    assert all(each.seconds < INTERVAL for each in seen.double_masters), seen.double_masters
    assert [len(seen.masters[name]) for name in others] == [2, 2], seen.masters
    assert len(seen.masters[first]) <= 4, seen.masters  # its holder, one heir or both, who leads then
