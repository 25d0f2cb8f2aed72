"""Requeues for an address that not all of its holders may keep."""

from typing import Any

import msgspec

from kavip import names
from kavip.api.address import parse_address
from kavip.api.service import Service
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from tests.support.build import pool, service

ADDRESS = "192.0.2.0"
SHARE = {names.SHARING_KEY_ANNOTATION: "web"}


def old(version: str, **changes: Any) -> Service:
    """The oldest Service, which shares with ``b/young``."""
    return _made("b/old", "2026-01-01T00:00:01Z", version, annotations=SHARE, port=80, **changes)


def middle(version: str, **changes: Any) -> Service:
    """A Service without a sharing key."""
    return _made("a/middle", "2026-01-01T00:00:02Z", version, **changes)


def young(version: str, **changes: Any) -> Service:
    """The youngest Service, which shares with ``b/old``."""
    return _made("b/young", "2026-01-01T00:00:03Z", version, annotations=SHARE, port=443, **changes)


def _made(key: str, created: str, version: str, **addresses_for: Any) -> Service:
    made = service(key, created=created, **addresses_for)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, resource_version=version))


def test_a_sharer_of_the_oldest_holder_is_requeued_when_the_holder_is_deleted() -> None:
    """Without the oldest holder, the middle Service is older than the one that shared: the youngest loses."""
    ledger = Ledger(Pools.of([pool("edge", "192.0.2.0/29")]))
    for each in (old("1", holds=[ADDRESS]), middle("2", holds=[ADDRESS]), young("3", holds=[ADDRESS])):
        ledger.observe(each.key, each)
    assert ledger.drain_requeues() == ("a/middle",)
    ledger.observe("b/old", None)
    assert ledger.drain_requeues() == ("b/young",)


def test_a_sharer_of_a_write_that_was_not_done_is_requeued() -> None:
    """An edit has overtaken the write, so it was not done, and the Service that was to share may lose the address."""
    ledger = Ledger(Pools.of([pool("edge", "192.0.2.0/29")]))
    for each in (old("1"), young("2")):
        ledger.observe(each.key, each)
        ledger.expect(each.key, [parse_address(ADDRESS)], resource_version=each.metadata.resource_version)
    assert ledger.drain_requeues() == ()
    ledger.observe("a/middle", middle("3", holds=[ADDRESS]))
    assert ledger.drain_requeues() == ("a/middle",)
    ledger.observe("b/old", old("4"))
    assert ledger.drain_requeues() == ("b/young",)
