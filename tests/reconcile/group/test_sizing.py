"""A Service with too many VIPs, or too many Services, never stop a group: the youngest are excluded, and report it."""

from typing import Any

import pytest

from kavip import names
from kavip.api.group import Instances
from kavip.reconcile.plan import Key, KeyKind
from kavip.vrrp import config
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

WEB, HUGE = "shop/web", "shop/huge"
PROGRAMMED = names.ConditionType.SERVICE_PROGRAMMED


def serving(key: str, *vips: str, **more: Any) -> Any:
    """A Service with externalIPs, which are its VIPs without a pool."""
    return build.service(key, group=GROUP, type="ClusterIP", external_ips=list(vips), **more)


def aged(count: int, *, vips: int = 1, **group: Any) -> SimulatedCluster:
    """A group of *count* Services with *vips* VIPs each, the oldest one first."""
    services = [
        serving(
            f"shop/s{n:03}",
            *(f"198.18.{(n * vips + k) // 250}.{(n * vips + k) % 250 + 1}" for k in range(vips)),
            created=f"2026-01-01T{n // 60:02}:{n % 60:02}:00Z",
        )
        for n in range(count)
    ]
    return SimulatedCluster(cluster(build.group(**group), *services))


def message_of(simulation: SimulatedCluster, key: str) -> str:
    """The message of Programmed of the Service *key*."""
    found = simulation.snapshot.services[key].status.conditions or ()
    return next(each.message for each in found if each.type == PROGRAMMED)


def test_a_service_has_at_most_32_vips() -> None:
    """Of 3,200 externalIPs the first 32 are served, and the condition reports it. The other Service has its VIP."""
    vips = [f"198.18.{n // 256}.{n % 256}" for n in range(3_200, 0, -1)]
    simulation = SimulatedCluster(cluster(build.group(), serving(HUGE, *vips), serving(WEB, "192.0.2.130")))
    simulation.settle(Key(KeyKind.SERVICE, HUGE), Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    assert "192.0.2.130/32" in simulation.text()
    assert simulation.text().count(" 198.18.") == names.MAX_VIPS
    assert all(f" {vip}/32" in simulation.text() for vip in vips[: names.MAX_VIPS])
    assert simulation.condition(HUGE, PROGRAMMED) == ("False", "Pending")
    assert message_of(simulation, HUGE).startswith(
        "the Service has 3,200 VIPs, of which 32 are served: remove the last 3,168"
    )


def test_external_ips_that_were_not_validated_are_not_served() -> None:
    """While the mutating webhook is down, the externalIPs of a plain Service are not validated."""
    plain = build.service(WEB, external_ips=["203.0.113.1"])
    simulation = SimulatedCluster(cluster(build.group(default=True), build.pool(), plain))
    simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    assert "192.0.2.128/32" in simulation.text()
    assert "203.0.113.1" not in simulation.text()
    assert simulation.condition(WEB, PROGRAMMED) == ("False", "Pending")
    assert "annotate the Service with keepalived-operator.redhat-cop.io/keepalivedgroup: lb/edge" in message_of(
        simulation, WEB
    )


def test_assigned_addresses_come_before_external_ips() -> None:
    """A Service with too many externalIPs keeps its address from a pool."""
    extra = [f"198.18.0.{n}" for n in range(1, 41)]
    simulation = SimulatedCluster(
        cluster(build.group(), build.service(WEB, group=GROUP, external_ips=extra), build.pool())
    )
    simulation.settle(Key(KeyKind.SERVICE, WEB), Key(KeyKind.GROUP, GROUP))
    assert "192.0.2.128/32" in simulation.text()
    assert simulation.text().count(" 198.18.") == names.MAX_VIPS - 1


@pytest.mark.parametrize("mode", ["PerService", "Shared"])
def test_the_youngest_services_are_excluded(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """A text that is too large excludes as few of the youngest Services as possible; each reports the numbers."""
    simulation = aged(40, instances=Instances(mode=mode, count=4))
    keys = sorted(simulation.snapshot.services)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    whole = len(simulation.text())
    monkeypatch.setattr(config, "MOST_BYTES", whole - 600)
    simulation.settle(*(Key(KeyKind.SERVICE, key) for key in keys), Key(KeyKind.GROUP, GROUP))
    served = [f" 198.18.0.{n + 1}/32" in simulation.text() for n in range(40)]
    count = served.index(False)
    assert served == [n < count for n in range(40)]
    assert whole - 600 - 700 < len(simulation.text()) <= whole - 600
    message = message_of(simulation, "shop/s039")
    assert f"would need {whole:,} bytes, and a ConfigMap holds {whole - 600:,}; " in message
    assert message.startswith(f"KeepalivedGroup {GROUP} has no room for the {40 - count} youngest of its 40 Services: ")
    assert simulation.condition("shop/s039", PROGRAMMED) == ("False", "Pending")
    assert message_of(simulation, keys[count - 1]).startswith("0 of 2 nodes")
    accepted = [each for each in simulation.snapshot.groups[GROUP].status.conditions or () if each.type == "Accepted"]
    assert accepted[0].status == "True"


def test_room_is_reserved_for_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Service reserves room for endpoints on every node, so one more endpoint excludes no Service."""
    local = [serving(f"shop/s{n:03}", f"198.18.0.{n + 1}", external_traffic_policy="Local") for n in range(20)]
    nodes = [f"n{number}" for number in range(1, 9)]
    monkeypatch.setattr(config, "MOST_BYTES", 8_000)
    served = []
    for ready in (nodes, nodes[:1]):
        ends = [build.endpoints(each.key, *ready) for each in local]
        simulation = SimulatedCluster(cluster(build.group(), *local, *ends, nodes=len(nodes)))
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        data = simulation.objects.configmaps[GROUP].data or {}
        assert sum(map(len, data.values())) < config.MOST_BYTES + 200
        served.append(data[names.CONFIG_KEY].count("vrrp_instance "))
    assert served[0] == served[1]
    assert 5 < served[0] < len(local)


def test_an_excluded_service_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an older Service is deleted there is room, and the message reports the progress."""
    simulation = aged(6)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    monkeypatch.setattr(config, "MOST_BYTES", len(simulation.text()) - 10)
    young = Key(KeyKind.SERVICE, "shop/s005")
    simulation.settle(young, Key(KeyKind.GROUP, GROUP))
    assert "has no room for" in message_of(simulation, young.name)
    simulation.snapshot.drop(names.SERVICE, "shop/s000")
    simulation.group()
    plan = simulation.group()
    assert young in plan.also_low_priority
    simulation.settle(young, Key(KeyKind.GROUP, GROUP))
    assert message_of(simulation, young.name).startswith("0 of 2 nodes")
    assert " 198.18.0.6/32" in simulation.text()


def test_a_group_whose_own_vips_do_not_fit_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group is not accepted where it is too large without any Service."""
    simulation = aged(2)
    monkeypatch.setattr(config, "MOST_BYTES", 100)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    accepted = [each for each in simulation.snapshot.groups[GROUP].status.conditions or () if each.type == "Accepted"]
    assert (accepted[0].status, accepted[0].reason) == ("False", "Invalid")
    assert "a ConfigMap holds 100;" in accepted[0].message
