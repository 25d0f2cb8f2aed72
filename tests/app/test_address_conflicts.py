"""Duplicate addresses with a real API server, the controller, and fake agents that report another machine."""

import json
from pathlib import Path

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, wait_for
from tests.app.fakeagents import FakeAgents
from tests.app.test_explain import kubectl_kavip
from tests.app.test_status import reported, typed

pytestmark = pytest.mark.apiserver

TAKEN, NEXT = "192.0.2.128", "192.0.2.129"
CLAIM = {"address": TAKEN, "hardwareAddress": "02:00:c0:00:02:63", "interface": "eth0", "kind": "Withheld"}
VERSION = "{.metadata.resourceVersion}"
ADDRESS = f"jsonpath={VERSION} {{.status.loadBalancer.ingress[*].ip}}{{'\\n'}}"
RESTING = f"jsonpath={VERSION} {{.status.cooling[*].address}}{{'\\n'}}"


def versions(lines: list[str], address: str) -> list[int]:
    """The resource versions of an object in the lines of a watch in which it has *address* alone."""
    return [int(version) for version, *found in map(str.split, lines) if found == [address]]


def test_the_address_rests_in_the_pool_before_the_service_has_another(
    installation: Installation, tmp_path: Path
) -> None:
    """An address that was requested stays, with its condition. `explain` says which Service gave which address up."""
    program, _ = installation.plane.kubectl_command()
    with FakeAgents(installation) as agents:
        edge = a_group("edge", default=True, metricsPort=agents.port)
        installation.apply(a_pool("edge", "192.0.2.128/29"), edge)
        replica = installation.start(webhook=False)
        installation.apply(a_service("web"))
        wait_for("web has an address", lambda: installation.addresses("web") == [TAKEN])
        with (
            typed(installation, tmp_path / "pool", program, "get", "vippool", "edge", "-w", "-o", RESTING) as pool,
            typed(
                installation, tmp_path / "web", program, "get", "service", "web", "-n", "shop", "-w", "-o", ADDRESS
            ) as web,
        ):
            wait_for("the watches", lambda: pool() and web())
            agents.conflicts = [CLAIM]
            wait_for("web has the next address", lambda: versions(web(), NEXT), details=web)
            assert min(versions(pool(), TAKEN)) < min(versions(web(), NEXT))
        (cooling,) = installation.get("vippool", "edge")["status"]["cooling"]
        assert (cooling["address"], cooling["service"], cooling["reason"]) == (TAKEN, "shop/web", "AddressConflict")
        done = kubectl_kavip(tmp_path, installation, "kavip", "explain", "shop/web")
        words = f"because another machine on the LAN has it (found for Service {cooling['service']})"
        assert f"{TAKEN} is in cool-down until {cooling['until']}, {words}" in " ".join(done.stdout.split())

        agents.conflicts = [CLAIM, {**CLAIM, "address": "192.0.2.132"}]
        installation.apply(a_service("wish", annotations={"kavip.io/addresses": "192.0.2.132"}))
        wait_for("the wish is answered", lambda: reported(installation, "wish")[0] == "AddressConflict")
        words = "192.0.2.132 is not announced: another machine on the LAN has it, 02:00:c0:00:02:63"
        assert reported(installation, "wish")[1].startswith(words)
        assert installation.addresses("wish") == ["192.0.2.132"]
        metric = 'kavip_group_duplicate_addresses{group="lb/edge"}'
        wait_for("the metric", lambda: replica.metric(metric) == 1)
        agents.conflicts = []
        wait_for("no conflict", lambda: reported(installation, "wish")[0] == "Unknown")
        wait_for("the metric", lambda: replica.metric(metric) == 0)


def test_a_pool_probes_or_does_not(installation: Installation) -> None:
    """The API server accepts both values of `conflictDetection` and no other; the configuration has the pool's."""
    refused = installation.try_apply(a_pool("bad", "192.0.2.0/30", conflictDetection="Maybe"))
    assert refused.returncode != 0
    assert 'spec.conflictDetection: Unsupported value: "Maybe": supported values: "Probe", "Off"' in refused.stderr
    installation.start(webhook=False)
    pools = [a_pool("on", "192.0.2.128/32", conflictDetection="Probe"), a_pool("off", "192.0.2.136/32")]
    pools[1]["spec"]["conflictDetection"] = "Off"
    installation.apply_and_wait(*pools, a_group("edge", default=True))
    for name in ("on", "off"):
        installation.apply(a_service(name, annotations={"kavip.io/pool": name}))

    def detection() -> dict[str, list[str]]:
        text = (installation.get("configmap", "edge", "-n", "lb") or {}).get("data", {}).get("agent.json", "{}")
        found: dict[str, list[str]] = json.loads(text).get("conflictDetection", {})
        return found

    wait_for(
        "the text has both VIPs",
        lambda: (detection().get("probe"), detection().get("off")) == (["192.0.2.128"], ["192.0.2.136"]),
        details=detection,
    )
