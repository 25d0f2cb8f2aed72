"""``externalTrafficPolicy: Local``: VIPs are where endpoints are, and nowhere in vain."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hack.testbed import process
from hack.testbed.process import Process
from kavip import names
from kavip.api.service import Service
from kavip.vrrp import tracking
from kavip.vrrp.priorities import priorities
from tests.agent.pod import PATIENCE
from tests.changes.conftest import MakeRig
from tests.changes.rig import Rig, group, service
from tests.changes.seen import watching
from tests.reconcile.scenes import GROUP
from tests.support import build
from tests.vrrp.livedaemons import BEFORE_OTHERS

pytestmark = pytest.mark.netns

PORT = 30100
VIP, OTHER, PLAIN = "192.0.2.130", "192.0.2.131", "192.0.2.132"
WEB: Service = build.service(
    "shop/web", group=GROUP, holds=[VIP], external_traffic_policy="Local", health_check_node_port=PORT
)
PORTLESS = service("shop/portless", OTHER, external_traffic_policy="Local")


class Proxies:
    """kube-proxy's health port on each node of a rig."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self._rig, self._folder = rig, folder
        self._processes: list[Process] = []
        for name in sorted(host.name for host in rig.lan.nodes):
            (folder / name).mkdir(parents=True)
        self.ready()

    def start(self) -> None:
        """Serve, on every node."""
        for host in self._rig.lan.nodes:
            command = (*BEFORE_OTHERS, sys.executable, "-m", "tests.changes.proxy", str(self._folder / host.name))
            self._processes.append(host.spawn(*command, log=self._folder / f"{host.name}.log"))

    def ready(self, *nodes: str) -> None:
        """Endpoints are ready on *nodes*, and on no other."""
        for host in self._rig.lan.nodes:
            fresh = self._folder / f"{host.name}.new"
            fresh.write_text("200" if host.name in nodes else "503")
            fresh.replace(self._folder / host.name / str(PORT))

    def stop(self) -> None:
        """End all."""
        process.kill(self._processes)


@pytest.fixture
def rig(make_rig: MakeRig) -> Rig:
    """Three nodes."""
    return make_rig(3)


@pytest.fixture
def proxies(rig: Rig, tmp_path: Path) -> Iterator[Proxies]:
    """A kube-proxy on every node; no endpoints."""
    made = Proxies(rig, tmp_path / "proxies")
    made.start()
    yield made
    made.stop()


def is_on(rig: Rig, instance: str, node: str) -> None:
    """Wait until *node*, and nobody else, is master of *instance*."""
    process.wait_for(f"{instance} is on {node}", lambda: rig.master(instance) == node, timeout=PATIENCE)


def first_of(name: str) -> str:
    """The node that ranks first for a Service."""
    ranked = {priority: node for node, priority in priorities(f"{GROUP} {name}", ("n1", "n2", "n3"))}
    return ranked[max(ranked)]


def reloads(rig: Rig) -> list[str]:
    """How often each node has reloaded, as its agent counts."""
    lines = [line for each in rig.pods.values() for line in each.get(names.METRICS_PATH)[1].splitlines()]
    return [line for line in lines if line.startswith("kavip_agent_reloads_total")]


@pytest.mark.parametrize("unicast", [True, False], ids=["unicast", "multicast"])
def test_vips_follow_endpoints(rig: Rig, proxies: Proxies, unicast: bool) -> None:
    """
    Each change of endpoints moves the VIPs once, to a node that has one, and nobody else's; without any to the first.

    Of one Service kube-proxy's health port tells, of the other the controller, without a reload. The next node has an
    endpoint before the last one has none, as with a Deployment that is rolled: the agents do not learn it together.
    """
    proxies.ready("n1")
    plain, endpoints = service("shop/plain", PLAIN), build.endpoints("shop/portless", "n1")
    rig.apply(group(unicast_enabled=unicast), WEB, PORTLESS, plain, endpoints)
    for name in ("shop/web", "shop/portless"):
        is_on(rig, name, "n1")
    is_on(rig, "shop/plain", first_of("shop/plain"))
    before = reloads(rig)
    with watching(rig, [VIP, OTHER, PLAIN]) as seen:
        for last, node in pairwise(("n1", "n2", "n3")):
            proxies.ready(last, node)
            rig.apply(build.endpoints("shop/portless", last, node))
            knows(rig, node, "shop/web", "shop/portless")
            proxies.ready(node)
            rig.apply(build.endpoints("shop/portless", draining=[node]))
            for name in ("shop/web", "shop/portless"):
                is_on(rig, name, node)
            knows(rig, last)
        proxies.ready()
        rig.apply(build.endpoints("shop/portless"))
        for name in ("shop/web", "shop/portless"):
            is_on(rig, name, first_of(name))
    assert reloads(rig) == before and len(before) == 3
    assert seen.double_masters == (), seen.story()
    moved = {name: ["n1", "n2", "n3", first_of(name)] for name in ("shop/web", "shop/portless")}
    assert seen.masters == {**moved, "shop/plain": [first_of("shop/plain")]}, seen.story()
    for vip, moves in {VIP: 3, OTHER: 3, PLAIN: 0}.items():
        assert seen.is_kept(vip, moves=moves), seen.story()


def test_a_silent_kube_proxy_moves_nothing_and_neither_does_an_agent(rig: Rig, proxies: Proxies) -> None:
    """While it starts again its rules stand; an agent that starts again believes what the last one wrote."""
    proxies.ready("n3")
    rig.apply(group(), WEB)
    is_on(rig, "shop/web", "n3")
    with watching(rig, [VIP]) as seen:
        proxies.stop()
        for each in rig.pods.values():
            each.kill_agent()
            each.start_agent()
        rig.settle()
        proxies.start()
        process.wait_for(
            "all agents know", lambda: told(rig) == {"n1": False, "n2": False, "n3": True}, timeout=PATIENCE
        )
    assert (seen.transitions, seen.failures) == ({}, {}), seen.story()


def test_a_new_pod_does_not_begin_as_if_it_had_endpoints(rig: Rig, proxies: Proxies) -> None:
    """A node that ranks first and has none takes no VIP when its pod is replaced: kube-proxy is asked before."""
    away = next(node for node in ("n1", "n2", "n3") if node != first_of("shop/web"))
    proxies.ready(away)
    rig.apply(group(), WEB)
    is_on(rig, "shop/web", away)
    replaced = rig.pods[first_of("shop/web")]
    with watching(rig, [VIP]) as seen:
        replaced.stop()
        replaced.replace()
        replaced.start()
        process.wait_for("it runs", lambda: "shop/web" in replaced.instances(), timeout=PATIENCE)
        rig.settle()
    assert (seen.masters["shop/web"], seen.failures) == ([away], {}), seen.story()


def knows(rig: Rig, node: str, *services: str) -> None:
    """Wait until the agent of *node* says of these that they have endpoints there, and of no others."""
    tracks = {tracking.local_track(name) for name in services}
    pod = rig.pods[node]
    pod.wait_until(
        f"it knows of {services}", lambda: tracks == {each["track"] for each in pod.state()["locals"] if each["ready"]}
    )


def told(rig: Rig) -> dict[str, bool | None]:
    """What each node's agent says of the Service's endpoints there."""
    found = {name: each.state()["locals"] for name, each in rig.pods.items()}
    return {name: locals_[0]["ready"] if locals_ else None for name, locals_ in found.items()}
