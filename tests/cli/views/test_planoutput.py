"""The output of ``kavip plan``, the same for any order of the files."""

import random
import re
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.admission.chain import PolicyOptions
from kavip.api.group import Instances
from kavip.api.pool import Cooling, PoolStatus
from kavip.cli.views import planoutput, simulate
from kavip.snapshot import Object
from kavip.vrrp import config
from tests.cli.manifest import manifest
from tests.ipam.deciding import PREFER, SHARE, ours
from tests.support.build import group, namespace, node, pool, service

CLUSTER = (namespace("shop"), group("lb/edge", default=True), node("n1", "192.0.2.11"))

PROGRAMMED = names.ConditionType.SERVICE_PROGRAMMED


def table(*objects: Object) -> list[list[str]]:
    """The cells of the rows of Services."""
    lines = planoutput.text(simulate.plan([*CLUSTER, *objects])).partition("\n\n")[0].splitlines()
    starts = [lines[0].index(word) for word in lines[0].split()]
    return [[line[at:end].strip() for at, end in zip(starts, [*starts[1:], None], strict=True)] for line in lines[1:]]


def test_every_service_has_a_row() -> None:
    """The row has the address or the reason; a Service with all its addresses needs no message."""
    rows = table(
        pool("edge", "192.0.2.128/31"),
        pool("dual", "198.51.100.0/30", "2001:db8::/64", auto_assign=False),
        *(manifest(service(f"shop/{name}", annotations=SHARE, port=port)) for name, port in (("a", 80), ("b", 443))),
        manifest(service("shop/c")),
        manifest(service("shop/d")),
        manifest(service("shop/e", pool="dual", **PREFER)),
        manifest(service("shop/f", pool="dula")),
        manifest(service("shop/g", load_balancer_class="example.com/other")),
        manifest(service("shop/h", type="ClusterIP")),
        manifest(service("shop/i", wants="198.51.100.1", **PREFER)),
        manifest(service("shop/j", group="lb/edge", type="ClusterIP", external_ips=["2001:db8::9"])),
    )
    assert [row[:5] for row in rows] == [
        ["shop/a", "lb/edge", "edge", "192.0.2.128", "Assigned"],
        ["shop/b", "lb/edge", "edge", "192.0.2.128", "Assigned"],
        ["shop/c", "lb/edge", "edge", "192.0.2.129", "Assigned"],
        ["shop/d", "lb/edge", "-", "-", "PoolExhausted"],
        ["shop/e", "lb/edge", "dual", "198.51.100.0,2001:db8::", "Assigned"],
        ["shop/f", "-", "-", "-", "refused"],
        ["shop/g", "-", "-", "-", "not managed"],
        ["shop/i", "lb/edge", "dual", "198.51.100.1,2001:db8::1", "Assigned"],
        ["shop/j", "lb/edge", "dual", "2001:db8::9", "ExternalIPs"],
    ]
    words = {row[0]: row[5] for row in rows}
    assert words["shop/a"] == words["shop/e"] == ""
    assert "pool edge is full: 2 of 2" in words["shop/d"]
    assert words["shop/f"] == 'pool "dula" does not exist; did you mean "dual"?'
    other = "its loadBalancerClass example.com/other belongs to another controller"
    assert words["shop/g"] == f"{other}; that of kavip is kavip.io/keepalived"


def test_with_ipam_never_nothing_is_planned() -> None:
    """No Service gets an address, and each has the reason LeftToPlatform."""
    settings = PolicyOptions(ipam="never")
    text = planoutput.text(
        simulate.plan([*CLUSTER, pool("edge", "192.0.2.128/31"), manifest(service("shop/a"))], settings=settings)
    )
    assert "LeftToPlatform" in text
    assert "0 of 2" in text


def test_the_usage_of_pools_is_shown() -> None:
    """The table shows it by family."""
    text = planoutput.text(simulate.plan([*CLUSTER, pool("edge", "192.0.2.128/31"), manifest(service("shop/a"))]))
    assert "edge  100       1 of 2         -" in text


def test_how_near_a_large_group_is_to_a_limit() -> None:
    """The table shows it for groups above 64 KiB, with the notation and why it is that one; JSON for every group."""
    crowd = [node(f"w{number}", f"192.0.2.{number}") for number in range(1, 30)]
    services = [
        service(f"shop/s{n:02}", group="lb/edge", type="ClusterIP", external_ips=[f"198.51.100.{n}"]) for n in range(40)
    ]

    def row(**spec: Any) -> tuple[list[str], dict[str, Any]]:
        edge = group("lb/edge", unicast_enabled=True, **spec)
        simulated = simulate.plan([namespace("shop"), edge, *crowd, *services])
        found = [line for line in planoutput.text(simulated).splitlines() if line.startswith("lb/edge ")]
        assert simulated.configurations["lb/edge"].startswith("# kavip: written by kavip for KeepalivedGroup lb/edge")
        return re.split(r" {2,}", found[0]), planoutput.plan_data(simulated)["groups"][0]

    cells, data = row()
    size = data["configMapBytes"]
    assert data["nearestLimit"] == {"kind": "configMap", "usedBytes": size, "mostBytes": 1_000_000}
    assert cells[0] == "lb/edge"
    assert cells[1] == f"{size:,} bytes"
    assert cells[2] == "2% of a ConfigMap"
    assert cells[4] == "compact, if every agent reads it"
    assert size < 30_000
    assert int(cells[3].removesuffix(" bytes").replace(",", "")) > 65_536
    cells, data = row(agent_image="example.org/kavip:0.1.0")
    assert cells[4] == "in full: spec.agentImage may not read a shorter notation"
    assert data["configMapBytes"] > 65_536
    services = [
        service(f"shop/s{n:03}", group="lb/edge", type="ClusterIP", external_ips=[f"198.18.{n}.{k}" for k in range(32)])
        for n in range(140)
    ]
    cells, data = row(instances=Instances(mode="Shared", count=4))
    assert cells[4] == "packed, if every agent reads it"
    assert data["configMapBytes"] < 40_000
    used = len(data["keepalivedConf"])
    assert data["nearestLimit"] == {"kind": "unpacked", "usedBytes": used, "mostBytes": 2_000_000}
    assert cells[2] == f"{used // 20_000}% of 2,000,000 bytes unpacked"


def test_a_small_group_has_no_row_about_its_configmap() -> None:
    """Nothing is said where nothing is near."""
    simulated = simulate.plan([*CLUSTER, pool("edge", "192.0.2.128/31"), manifest(service("shop/a"))])
    assert "CONFIGMAP" not in planoutput.text(simulated)
    assert 0 < planoutput.plan_data(simulated)["groups"][0]["configMapBytes"] < 2_000


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_objects_has_no_effect(seed: int) -> None:
    """Shuffled objects give the same table and JSON, including refusals of pools and groups that conflict."""
    objects: list[Any] = [
        *CLUSTER,
        pool("edge", "192.0.2.128/30"),
        pool("late", "192.0.2.130/31", "198.51.100.0/31"),
        group("lb/zone", default=True),
        *(service(f"shop/{name}") for name in "fedcba"),
        service("shop/z", wants="192.0.2.128"),
        service("shop/y", wants="192.0.2.128"),
    ]
    objects = [manifest(each) if each not in CLUSTER else each for each in objects]
    first = simulate.plan(objects)
    random.Random(seed).shuffle(objects)
    second = simulate.plan(objects)
    assert planoutput.text(first) == planoutput.text(second)
    assert planoutput.plan_data(first) == planoutput.plan_data(second)
    assert [(each.kind, each.name) for each in first.refused] == [("KeepalivedGroup", "zone"), ("VIPPool", "late")]


def test_addresses_in_status_are_kept() -> None:
    """In a dump of a cluster every Service keeps its address; new Services get free ones."""
    rows = table(pool("edge", "192.0.2.128/31"), manifest(service("shop/a")), ours("shop/b", ["192.0.2.128"]))
    assert [row[3] for row in rows] == ["192.0.2.129", "192.0.2.128"]


def test_a_service_of_a_cluster_stays_although_it_would_be_refused() -> None:
    """It keeps its address although its annotation is bad; its row says that it is refused, and why."""
    bad = {names.VERBATIM_ANNOTATION: "{", names.GROUP_ANNOTATION: "lb/edge"}
    edge, holder = pool("edge", "192.0.2.128/31"), ours("shop/b", ["192.0.2.128"], annotations=bad)
    planned = simulate.plan([*CLUSTER, edge, manifest(service("shop/a")), holder])
    assert [each.name for each in planned.refused] == ["b"]
    assert [row[3:5] for row in table(edge, manifest(service("shop/a")), holder)] == [
        ["192.0.2.129", "Assigned"],
        ["192.0.2.128", "refused"],
    ]
    text = planoutput.text(planned)
    assert text.splitlines()[-1] == "2 Services: 1 refused"
    assert "  refused   '{': want a JSON object of strings" in text


def test_an_address_in_cooldown_is_reserved() -> None:
    """``status.cooling`` reserves it for the Service that freed it."""
    cooling = [Cooling(address="192.0.2.128", service="shop/b", until="2026-01-01T00:00:00Z")]
    edge = pool("edge", "192.0.2.128/30", cooldown_seconds=60)
    edge = msgspec.structs.replace(edge, status=PoolStatus(cooling=cooling))
    assert [row[3] for row in table(edge, manifest(service("shop/a")), manifest(service("shop/b")))] == [
        "192.0.2.129",
        "192.0.2.128",
    ]


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [("PerService", "use instances.mode Shared, several groups, or"), ("Shared", "use several groups, or")],
)
def test_services_for_which_a_group_has_no_room_are_shown(
    monkeypatch: pytest.MonkeyPatch, mode: str, remedy: str
) -> None:
    """Their rows say why, a line about the group has the numbers, and JSON lists them; the older ones are Assigned."""
    instances = Instances(mode=mode, count=4)
    given = [
        namespace("shop"),
        group("lb/edge", default=True, instances=instances),
        *CLUSTER[2:],
        pool("edge", "192.0.2.128/26"),
        *(manifest(service(f"shop/s{number:02}")) for number in range(40)),
    ]
    whole = simulate.plan(given)
    assert not planoutput.exclusions(whole)
    assert not whole.excluded
    monkeypatch.setattr(config, "MOST_BYTES", 3_000)
    simulated = simulate.plan(given)
    excluded = planoutput.plan_data(simulated)["groups"][0]["excluded"]
    assert 0 < (count := len(excluded)) < 40
    assert excluded == [f"shop/s{number:02}" for number in range(40 - count, 40)]
    (line,) = planoutput.exclusions(simulated)
    assert line.startswith(f"KeepalivedGroup lb/edge has no room for the {count} youngest of its 40 Services: ")
    assert f"a ConfigMap holds 3,000; {remedy}" in line
    rows = [each for each in planoutput.text(simulated).splitlines() if each.startswith("shop/")]
    cells = [re.split(r" {2,}", each)[4:] for each in rows]
    assert cells == [["Assigned"]] * (40 - count) + [["excluded", line]] * count
    assert planoutput.text(simulated).splitlines()[-1] == f"40 Services: {count} excluded"
    services = planoutput.plan_data(simulated)["services"]
    states = [each for one in services for each in one["conditions"] if each["type"] == PROGRAMMED]
    assert [each["message"] == line for each in states] == [number >= 40 - count for number in range(40)]
