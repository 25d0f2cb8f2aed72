"""``kavip plan``: a table that a user reads, the same whatever the order of the files."""

import random
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.admission.chain import PolicyOptions
from kavip.api.pool import Cooling, PoolStatus
from kavip.cli.views import simulate, tables
from kavip.snapshot import Object
from tests.cli.test_explain import new
from tests.ipam.deciding import PREFER, SHARE, ours
from tests.support.build import group, namespace, node, pool, service

AROUND = (namespace("shop"), group("lb/edge", default=True), node("n1", "192.0.2.11"))


def table(*objects: Object) -> list[list[str]]:
    """The rows of Services, cell by cell, without the head."""
    lines = tables.text(simulate.plan([*AROUND, *objects])).partition("\n\n")[0].splitlines()
    starts = [lines[0].index(word) for word in lines[0].split()]
    return [[line[at:end].strip() for at, end in zip(starts, [*starts[1:], None], strict=True)] for line in lines[1:]]


def test_every_service_has_a_row_with_its_address_or_the_reason() -> None:
    """Given, shared, half served, waiting, refused, not managed, brought along; what is plain needs no words."""
    rows = table(
        pool("edge", "192.0.2.128/31"),
        pool("dual", "198.51.100.0/30", "2001:db8::/64", auto_assign=False),
        *(new(service(f"shop/{name}", annotations=SHARE, port=port)) for name, port in (("a", 80), ("b", 443))),
        new(service("shop/c")),
        new(service("shop/d")),
        new(service("shop/e", pool="dual", **PREFER)),
        new(service("shop/f", pool="dula")),
        new(service("shop/g", load_balancer_class="example.com/other")),
        new(service("shop/h", type="ClusterIP")),
        new(service("shop/i", wants="198.51.100.1", **PREFER)),
        new(service("shop/j", group="lb/edge", type="ClusterIP", external_ips=["2001:db8::9"])),
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
    assert words["shop/g"] == "its loadBalancerClass example.com/other is another controller's"


def test_what_kavip_does_not_assign_it_does_not_plan() -> None:
    """With --ipam never no Service gets an address, and each says so."""
    manner = PolicyOptions(ipam="never")
    text = tables.text(simulate.plan([*AROUND, pool("edge", "192.0.2.128/31"), new(service("shop/a"))], manner=manner))
    assert "LeftToPlatform" in text
    assert "0 of 2" in text


def test_how_full_the_pools_would_be_stands_below() -> None:
    """By family; a pool that is not in force says why."""
    text = tables.text(simulate.plan([*AROUND, pool("edge", "192.0.2.128/31"), new(service("shop/a"))]))
    assert "edge  100       1 of 2         -" in text


@pytest.mark.parametrize("seed", range(8))
def test_the_order_of_the_objects_means_nothing(seed: int) -> None:
    """Shuffled: the same table and the same JSON, refusals of pools and groups that contradict each other included."""
    objects: list[Any] = [
        *AROUND,
        pool("edge", "192.0.2.128/30"),
        pool("late", "192.0.2.130/31", "198.51.100.0/31"),
        group("lb/zone", default=True),
        *(service(f"shop/{name}") for name in "fedcba"),
        service("shop/z", wants="192.0.2.128"),
        service("shop/y", wants="192.0.2.128"),
    ]
    objects = [new(each) if each not in AROUND else each for each in objects]
    first = simulate.plan(objects)
    random.Random(seed).shuffle(objects)
    second = simulate.plan(objects)
    assert tables.text(first) == tables.text(second)
    assert simulate.as_data(first) == simulate.as_data(second)
    assert [(each.kind, each.name) for each in first.refused] == [("KeepalivedGroup", "zone"), ("VIPPool", "late")]


def test_what_stands_in_status_stays() -> None:
    """Of a dump of a cluster every Service keeps its address, and newcomers get what is left."""
    rows = table(pool("edge", "192.0.2.128/31"), new(service("shop/a")), ours("shop/b", ["192.0.2.128"]))
    assert [row[3] for row in rows] == ["192.0.2.129", "192.0.2.128"]


def test_what_stands_in_a_cluster_stays_though_it_would_be_refused_today() -> None:
    """A Service with a bad annotation keeps its address, and nobody else is given it; the refusal is told besides."""
    bad = {names.VERBATIM_ANNOTATION: "{", names.GROUP_ANNOTATION: "lb/edge"}
    edge, holder = pool("edge", "192.0.2.128/31"), ours("shop/b", ["192.0.2.128"], annotations=bad)
    planned = simulate.plan([*AROUND, edge, new(service("shop/a")), holder])
    assert [each.name for each in planned.refused] == ["b"]
    assert [row[3:5] for row in table(edge, new(service("shop/a")), holder)] == [
        ["192.0.2.129", "Assigned"],
        ["192.0.2.128", "Assigned"],
    ]


def test_what_cools_down_in_the_files_is_given_to_nobody_else() -> None:
    """As the controller reads ``status.cooling``: it rests, but not for the Service that freed it."""
    resting = [Cooling(address="192.0.2.128", service="shop/b", until="2026-01-01T00:00:00Z")]
    edge = pool("edge", "192.0.2.128/30", cooldown_seconds=60)
    edge = msgspec.structs.replace(edge, status=PoolStatus(cooling=resting))
    assert [row[3] for row in table(edge, new(service("shop/a")), new(service("shop/b")))] == [
        "192.0.2.129",
        "192.0.2.128",
    ]
