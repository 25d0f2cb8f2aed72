"""Large groups on a real API server while their agents, which are fake ones, are replaced by those of this version."""

import json
from typing import Any

import pytest

from kavip import names
from kavip.vrrp import config
from kavip.vrrp.compact import in_full, is_compact
from kavip.vrrp.packed import is_packed, unpacked
from tests.app.conftest import Installation, a_group, a_pool, a_service, wait_for
from tests.app.fakeagents import FakeAgents

pytestmark = pytest.mark.apiserver

NODES, SERVICES = 24, 34
VIPS = 32
"""Of a Service; the most that one may have."""
SPEC: dict[str, Any] = {"unicastEnabled": True, "vrrpVersion": 3, "advertIntervalMilliseconds": 1000}


def text(installation: Installation) -> str:
    """The text in the ConfigMap, in whatever notation; "" before it exists."""
    found = installation.get("configmap", "edge", "-n", "lb") or {}
    return str(found.get("data", {}).get("keepalived.conf", ""))


def config_hash(installation: Installation) -> str:
    """The hash that the ConfigMap tells agents."""
    found = installation.get("configmap", "edge", "-n", "lb")
    return str(json.loads(found["data"]["agent.json"])["configHash"])


def with_vips(name: str, *vips: str) -> dict[str, Any]:
    """A Service of the group with these external IPs."""
    spec: dict[str, Any] = {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None, "externalIPs": [*vips]}
    return a_service(name, annotations={names.GROUP_ANNOTATION: "lb/edge"}, **spec)


def test_old_agents_keep_the_text_in_full(installation: Installation) -> None:
    """
    While one of 24 agents is old, the text is in full; it is compact when all are new, and stays so in another term.

    Only the text in the ConfigMap changes: no VRID, no hash, no pod template. With an old agent it is in full again.
    """
    services = [f"s{number:02}" for number in range(SERVICES)]
    with FakeAgents(installation, nodes=NODES) as agents:
        agents.old = {f"n{number}" for number in range(1, NODES + 1)}
        edge = a_group("edge", default=True, metricsPort=agents.port, **SPEC)
        installation.apply(a_pool("edge", "192.0.2.128/25"), edge)
        first = installation.start(webhook=False)
        installation.apply(a_service(services[0]))
        agents.run(services[:1])

        def current() -> bool:
            status = installation.get("keepalivedgroup", "edge", "-n", "lb")["status"]
            return (status["nodes"]["current"], status["configHash"]) == (NODES, config_hash(installation))

        wait_for("all agents have answered", current)
        installation.apply(*map(a_service, services[1:]))
        wait_for("all Services are in the text", lambda: text(installation).count("\nvrrp_instance ") == SERVICES)
        before, known = text(installation), config_hash(installation)
        ids = installation.get("keepalivedgroup", "edge", "-n", "lb")["status"]["routerIDs"]
        pods = installation.get("daemonset", "edge", "-n", "lb")["metadata"]["generation"]
        assert len(before) > 65_536
        assert not is_compact(before)

        agents.old = {"n7"}
        agents.run(services)
        wait_for("the other agents have answered", current)
        assert text(installation) == before
        agents.old = set()
        wait_for("the text is compact", lambda: is_compact(text(installation)))
        assert in_full(text(installation)) == before
        status = installation.get("keepalivedgroup", "edge", "-n", "lb")["status"]
        assert (status["routerIDs"], status["configHash"], config_hash(installation)) == (ids, known, known)
        assert installation.get("daemonset", "edge", "-n", "lb")["metadata"]["generation"] == pods

        first.stop()
        agents.silent = {f"n{number}" for number in range(2, NODES + 1)}
        installation.start(webhook=False)
        installation.apply(a_service("more"))
        wait_for("the next leader serves", lambda: "vrrp_instance shop/more {" in text(installation))
        assert is_compact(text(installation))
        agents.old = {"n1"}
        wait_for("the text is in full again", lambda: not is_compact(text(installation)))
        assert text(installation).count("\nvrrp_instance ") == SERVICES + 1


def test_old_agents_keep_the_text_unpacked(installation: Installation) -> None:
    """
    While an agent is old, the text of 4,480 VIPs has a line for each; then it is packed, and stays so in another term.

    Only the text in the ConfigMap changes: no VRID, no hash, no pod template. A change is read back from it.
    """
    wanted = [f"198.18.{at >> 8}.{at & 255}" for at in range(140 * VIPS)]
    services = [with_vips(f"s{at:05}", *wanted[at : at + VIPS]) for at in range(0, len(wanted), VIPS)]
    with FakeAgents(installation) as agents:
        agents.old = {"n1"}
        shared = {"instances": {"mode": "Shared", "count": 4}}
        edge = a_group("edge", default=True, metricsPort=agents.port, **SPEC, **shared)
        installation.apply(edge)
        first = installation.start(webhook=False)
        installation.apply(*services)
        wait_for("all VIPs are in the text", lambda: text(installation).count("/32 dev eth0\n") == len(wanted) + 4)
        agents.load()

        def current() -> bool:
            status = installation.get("keepalivedgroup", "edge", "-n", "lb")["status"]
            return (status["nodes"]["current"], status["configHash"]) == (2, config_hash(installation))

        wait_for("all agents have answered", current)
        before, known = text(installation), config_hash(installation)
        pods = installation.get("daemonset", "edge", "-n", "lb")["metadata"]["generation"]
        assert len(before) > config.LONG
        assert not is_packed(before)

        agents.old = set()
        wait_for("the text is packed", lambda: is_packed(text(installation)))
        assert unpacked(text(installation)) == before
        status = installation.get("keepalivedgroup", "edge", "-n", "lb")["status"]
        assert (status["configHash"], config_hash(installation)) == (known, known)
        assert installation.get("daemonset", "edge", "-n", "lb")["metadata"]["generation"] == pods

        first.stop()
        agents.silent = {"n2"}
        installation.start(webhook=False)
        installation.apply(with_vips("more", "198.19.0.1"))
        wait_for("the next leader serves", lambda: "198.19.0.1/32" in unpacked(text(installation)))
        assert is_packed(text(installation))
        more = "        198.19.0.1/32 dev eth0\n"
        assert unpacked(text(installation)).replace(more, "") == before
