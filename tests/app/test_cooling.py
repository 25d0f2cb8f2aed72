"""
Cool-down on a real API server: freed addresses stay reserved for their previous Service, also if the controller dies.
"""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import Installation, Replica, a_group, a_pool, a_service, wait_for

pytestmark = pytest.mark.apiserver

RESULTS = ("complete", "partial", "expired")
GROUP = {"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"}


def create_pool_and_group(installation: Installation, *addresses: str, seconds: int) -> None:
    """Create a group and a pool with cool-down, and wait until kavip has observed them."""
    installation.apply_and_wait(a_pool("edge", *addresses, cooldownSeconds=seconds), a_group("edge"))


def cooling(installation: Installation) -> list[dict[str, str]]:
    """``status.cooling`` of the pool."""
    found: list[dict[str, str]] = installation.get("vippool", "edge")["status"].get("cooling", [])
    return found


def wait_for_addresses(installation: Installation, name: str) -> list[str]:
    """The addresses of a Service; waits for them."""
    found: list[str] = wait_for(f"{name} has an address", lambda: installation.addresses(name))
    return found


def delete(installation: Installation, name: str) -> dict[str, str]:
    """Delete a Service; return its cool-down once the status has it."""
    installation.plane.kubectl("delete", "service", name, "-n", "shop")
    key = f"shop/{name}"
    found: dict[str, str] = wait_for(
        f"the address of {key} cools down",
        lambda: next((each for each in cooling(installation) if each["service"] == key), {}),
    )
    return found


def test_a_freed_address_cools_down_and_returns(installation: Installation) -> None:
    """Other Services get another address, or wait and see until when; the previous Service gets it at once."""
    installation.start()
    create_pool_and_group(installation, "192.0.2.128/31", seconds=3600)
    installation.apply(served("web"))
    assert wait_for_addresses(installation, "web") == ["192.0.2.128"]
    cooldown = delete(installation, "web")
    assert cooldown["address"] == "192.0.2.128"
    done = installation.try_apply(served("wish", **{"kavip.io/addresses": "192.0.2.128"}))
    assert done.returncode == 0, done.stderr
    words = f"address 192.0.2.128 cools down until {cooldown['until']} for Service shop/web, which freed it"
    assert words in done.stderr
    installation.apply(served("other"))
    assert wait_for_addresses(installation, "other") == ["192.0.2.129"]
    reported = wait_for("the request is answered", lambda: installation.condition("wish"))
    assert (reported["reason"], reported["message"].startswith(words)) == ("AddressInUse", True)
    counts = {"total": 2, "assigned": 1, "available": 0}
    wait_for("the pool counts", lambda: installation.get("vippool", "edge")["status"]["ipv4"] == counts)
    installation.apply(served("web"))
    assert wait_for_addresses(installation, "web") == ["192.0.2.128"]
    wait_for("no address cools down", lambda: not cooling(installation))
    wait_for("the wish hears of it", lambda: "used by Service shop/web" in installation.condition("wish")["message"])


def test_every_way_of_freeing_starts_a_cool_down(installation: Installation) -> None:
    """Another address, another type, no longer managed; foreign changes of status are corrected."""
    installation.start(webhook=False)
    create_pool_and_group(installation, "192.0.2.128/29", seconds=3600)
    names = ("moved", "typed", "left")
    installation.apply(*(served(name) for name in names))
    before = {f"shop/{name}": wait_for_addresses(installation, name)[0] for name in names}
    installation.apply(served("moved", **{"kavip.io/addresses": "192.0.2.133"}))
    change(installation, "service", "typed", {"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None}})
    change(installation, "service", "left", {"metadata": {"annotations": dict.fromkeys(GROUP)}})
    wait_for(
        "all freed addresses cool down",
        lambda: {each["service"]: each["address"] for each in cooling(installation)} == before,
    )
    right = cooling(installation)
    wrong = [{"address": "nonsense", "service": "?", "until": "2026-01-01T00:00:00Z"}]
    wrong += [{**right[0], "until": "9999-12-31T23:59:59Z"}]
    change(installation, "vippool", "edge", {"status": {"cooling": wrong}}, "--subresource=status")
    wait_for("status is right again", lambda: cooling(installation) == right)


def served(name: str, **annotations: str) -> dict[str, Any]:
    """A Service of the group."""
    return a_service(name, annotations={**GROUP, **annotations})


def change(installation: Installation, kind: str, name: str, patch: dict[str, Any], *flags: str) -> None:
    """Patch a pool or an object in namespace shop."""
    installation.plane.kubectl("patch", kind, name, "-n", "shop", "--type=merge", "-p", json.dumps(patch), *flags)


def test_a_cool_down_survives_a_restart(installation: Installation) -> None:
    """After a kill and a restart the waiting Service gets the address when the cool-down ends, and not before."""
    first = installation.start("--lease-seconds=3", webhook=False)
    create_pool_and_group(installation, "192.0.2.128/32", seconds=30)
    installation.apply(served("web"))
    wait_for_addresses(installation, "web")
    cooldown = delete(installation, "web")
    first.kill()
    installation.apply(served("next"))
    second = installation.start("--lease-seconds=3", webhook=False)
    wait_for("it leads", lambda: second.metric("kavip_leader") == 1.0)
    wait_for("next has a condition", lambda: installation.condition("next"))
    assert wait_for_addresses(installation, "next") == ["192.0.2.128"]
    assert installation.condition("next")["lastTransitionTime"] >= cooldown["until"]
    wait_for("no address cools down", lambda: not cooling(installation))


def test_the_next_leader_has_seen_what_was_freed(installation: Installation) -> None:
    """The stopped leader could not write that an address was freed; the next leader has seen it."""
    replicas = [installation.start("--lease-seconds=6", webhook=False)]
    create_pool_and_group(installation, "192.0.2.128/31", seconds=3600)
    replicas.append(installation.start("--lease-seconds=6", webhook=False))
    installation.apply(served("web"))
    wait_for_addresses(installation, "web")
    leader = installation.leader()
    (follower,) = (each for each in replicas if each is not leader)
    leader.process.send_signal(signal.SIGSTOP)
    wait_for("it is stopped", lambda: is_stopped(leader))
    assert cooling(installation) == []
    installation.plane.kubectl("delete", "service", "web", "-n", "shop")
    leader.kill()
    installation.apply(served("other"))
    assert wait_for_addresses(installation, "other") == ["192.0.2.129"]
    wait_for("the follower leads", lambda: follower.metric("kavip_leader") == 1.0)
    found = wait_for("the cool-down is in the status", lambda: cooling(installation))
    assert [(each["address"], each["service"]) for each in found] == [("192.0.2.128", "shop/web")]


def is_stopped(replica: Replica) -> bool:
    """Whether the process is stopped."""
    tasks = Path(f"/proc/{replica.process.pid}/task").glob("*/stat")
    return all(each.read_text().rpartition(")")[2].split()[0] in "Tt" for each in tasks)


@pytest.mark.parametrize("restarted", [False, True], ids=["", "API server restarted"])
def test_what_was_freed_while_no_controller_ran_cools_down(installation: Installation, restarted: bool) -> None:
    """The next leader compares with the version in the Lease of the killed one before it assigns anything."""
    first = installation.start("--lease-seconds=3", webhook=False)
    create_pool_and_group(installation, "192.0.2.128/31", seconds=3600)
    installation.apply(served("web"))
    wait_for_addresses(installation, "web")
    at = int(installation.get("service", "web", "-n", "shop")["metadata"]["resourceVersion"])
    wait_for("the Lease records a later version", lambda: recorded(installation) >= at)
    first.kill()
    installation.plane.kubectl("delete", "service", "web", "-n", "shop")
    if restarted:
        installation.plane.restart()
    installation.apply(served("other"))
    second = installation.start("--lease-seconds=3", webhook=False)
    assert wait_for_addresses(installation, "other") == ["192.0.2.129"]
    found = wait_for("the cool-down is in the status", lambda: cooling(installation))
    assert [(each["address"], each["service"]) for each in found] == [("192.0.2.128", "shop/web")]
    results = {each: second.metric(f'kavip_cooldown_recoveries_total{{result="{each}"}}') for each in RESULTS}
    assert results == {**dict.fromkeys(RESULTS, 0.0), "partial" if restarted else "complete": 1.0}


def recorded(installation: Installation) -> int:
    """The version in the Lease up to which cool-downs are persisted; 0 without one."""
    lease = installation.get("lease", "kavip-controller", "-n", "kavip")
    return int(lease["metadata"].get("annotations", {}).get("kavip.io/cooldowns-resource-version", 0))
