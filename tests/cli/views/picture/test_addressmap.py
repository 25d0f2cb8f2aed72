"""The addresses of a pool: who has what, in time that does not depend on the size of the pool."""

from datetime import UTC, datetime

import pytest

from kavip.api.pool import Cooling, PoolStatus, Reservation, VIPPool
from kavip.cli.views.picture import addressmap
from kavip.cli.views.picture.addressmap import AddressMap, address_map
from kavip.snapshot import Object, Snapshot
from tests.support import build


def mapped(pool: VIPPool, *objects: Object) -> AddressMap:
    """The map of *pool* beside *objects*."""
    snapshot = Snapshot.from_objects((pool, *objects))
    snapshot.ledger.cooldown.expire(datetime(2026, 5, 1, tzinfo=UTC))
    parsed = snapshot.parsed_pools.read(pool.name)
    assert parsed is not None
    return address_map(parsed, snapshot)


def spans(found: AddressMap) -> list[tuple[str, str, str, str]]:
    """First, last, use and holder of each span."""
    return [(each.first, each.last, each.use, each.holder) for each in found.spans]


def test_each_address_has_one_use() -> None:
    """What is assigned is not reserved, and the rest is free."""
    pool = build.pool(
        "edge",
        "192.0.2.128/29",
        exclude=["192.0.2.134-192.0.2.135"],
        cooldown_seconds=600,
        reservations=[Reservation("192.0.2.129", "shop/web"), Reservation("192.0.2.130", "shop/next")],
    )
    status = PoolStatus(cooling=[Cooling(address="192.0.2.132", service="shop/old", until="2030-01-01T00:00:00Z")])
    pool = VIPPool(metadata=pool.metadata, spec=pool.spec, status=status)
    web = build.service("shop/web", group="lb/edge", pool="edge", holds=["192.0.2.129"])
    found = mapped(pool, build.group(), web)
    assert spans(found) == [
        ("192.0.2.128", "192.0.2.128", "Free", ""),
        ("192.0.2.129", "192.0.2.129", "Assigned", "shop/web"),
        ("192.0.2.130", "192.0.2.130", "Reserved", "shop/next"),
        ("192.0.2.131", "192.0.2.131", "Free", ""),
        ("192.0.2.132", "192.0.2.132", "Cooling", "shop/old"),
        ("192.0.2.133", "192.0.2.133", "Free", ""),
        ("192.0.2.134", "192.0.2.135", "Excluded", ""),
    ]
    assert found.counts == {"Assigned": "1", "Cooling": "1", "Reserved": "1", "Excluded": "2", "Free": "3"}


def test_a_shared_address_names_all_its_services() -> None:
    """They are sorted."""
    notes = {"kavip.io/sharing-key": "k"}
    some = [
        build.service(f"shop/{name}", group="lb/edge", holds=["192.0.2.128"], annotations=notes, port=port)
        for name, port in (("b", 80), ("a", 443))
    ]
    assert spans(mapped(build.pool(), build.group(), *some))[0] == (
        "192.0.2.128",
        "192.0.2.128",
        "Assigned",
        "shop/a, shop/b",
    )


def test_a_large_pool_has_few_spans() -> None:
    """A /64 is one span, with its size as text."""
    found = mapped(build.pool("v6", "2001:db8::/64"))
    assert [(each.first, each.last, each.size) for each in found.spans] == [
        ("2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", str(1 << 64))
    ]


def test_avoided_addresses_are_excluded() -> None:
    """``avoidBuggyIPs`` skips .0 and .255."""
    found = mapped(build.pool("edge", "192.0.2.254-192.0.3.1", avoid_buggy_ips=True))
    assert [(each.first, each.use) for each in found.spans] == [
        ("192.0.2.254", "Free"),
        ("192.0.2.255", "Excluded"),
        ("192.0.3.0", "Excluded"),
        ("192.0.3.1", "Free"),
    ]


def test_spans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All addresses are counted, and the number of omitted spans is known."""
    monkeypatch.setattr(addressmap, "MOST_SPANS", 2)
    some = [build.service(f"a/{n}", group="lb/edge", holds=[f"192.0.2.{n}"]) for n in (129, 131)]
    found = mapped(build.pool(), build.group(), *some)
    assert (len(found.spans), found.omitted, found.counts["Assigned"], found.counts["Free"]) == (2, 3, "2", "14")
