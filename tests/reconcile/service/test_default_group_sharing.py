"""A Service without a group belongs to the default group, and may share with Services that name this group."""

import itertools
from typing import Any

import pytest

from kavip import names
from kavip.api.service import Service
from kavip.ipam.allocate import breaks_sharing
from kavip.ipam.request import read_request
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import Object, Snapshot
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster
from tests.support import build

SHARED = {names.SHARING_KEY_ANNOTATION: "web"}
VIP = "192.0.2.130"


def sharer(name: str, port: int, **more: Any) -> Service:
    """A Service with the sharing key."""
    return build.service(f"shop/{name}", annotations=SHARED, port=port, **more)


def holders(snapshot: Snapshot) -> list[str]:
    """The Services that keep the address."""
    address = snapshot.services["shop/a"].ingress_addresses[0]
    return [terms.key for terms in snapshot.ledger.claims.holders(address)]


OBJECTS: tuple[Object, ...] = (
    sharer("a", 80, holds=[VIP]),
    sharer("b", 81, holds=[VIP], group=GROUP),
    build.group(GROUP, default=True),
    build.pool("edge", f"{VIP}/31"),
)


@pytest.mark.parametrize("objects", list(itertools.permutations(OBJECTS)))
def test_a_service_shares_with_one_that_names_the_default_group(objects: tuple[Object, ...]) -> None:
    """Both belong to one group, so neither loses the address, in any order of events."""
    assert holders(Snapshot.from_objects(objects)) == ["shop/a", "shop/b"]


def test_a_service_gets_the_address_of_one_that_does_not_name_the_default_group() -> None:
    """The webhook writes the annotation. The first Service lacks it, but the second is not refused for this reason."""
    simulation = SimulatedCluster(Snapshot.from_objects([sharer("a", 80), sharer("b", 81, group=GROUP), *OBJECTS[2:]]))
    simulation.settle(Key(KeyKind.SERVICE, "shop/a"), Key(KeyKind.SERVICE, "shop/b"))
    found = [simulation.snapshot.services[key].ingress_addresses for key in ("shop/a", "shop/b")]
    assert found[0] == found[1] != ()


def test_writing_down_the_default_group_ends_no_sharing() -> None:
    """An edit is not refused because the mutating webhook adds the annotation."""
    snapshot = Snapshot.from_objects([sharer("a", 80, holds=[VIP]), sharer("b", 81, holds=[VIP]), *OBJECTS[2:]])
    edited, _ = read_request(sharer("b", 81, holds=[VIP], group=GROUP), group=GROUP)
    assert breaks_sharing(edited, snapshot.parsed_pools, snapshot.ledger) is None


def test_when_another_group_becomes_the_default_one_the_address_is_no_longer_shared() -> None:
    """Two groups would announce it from different nodes."""
    snapshot = Snapshot.from_objects(OBJECTS)
    snapshot.put(build.group("lb/other", default=True))
    snapshot.put(build.group(GROUP))
    assert holders(snapshot) == ["shop/a"]
    assert "shop/b" in snapshot.ledger.drain_requeues()


def test_without_a_default_group_no_service_loses_a_shared_address() -> None:
    """
    The label is removed from the group and added again. A Service that has the address only by its class keeps it.
    """
    by_class = sharer("c", 82, load_balancer_class=names.LOAD_BALANCER_CLASS, created="2026-02-01T00:00:00Z")
    simulation = SimulatedCluster(
        Snapshot.from_objects([*OBJECTS[1:], sharer("a", 80, holds=[VIP], group=GROUP), by_class])
    )
    simulation.settle(Key(KeyKind.SERVICE, "shop/c"))
    snapshot = simulation.snapshot
    snapshot.put(build.group(GROUP))
    simulation.settle(Key(KeyKind.SERVICE, "shop/c"))
    assert holders(snapshot) == ["shop/a", "shop/b", "shop/c"]
    snapshot.put(build.group(GROUP, default=True))
    simulation.settle(Key(KeyKind.SERVICE, "shop/c"))
    assert holders(snapshot) == ["shop/a", "shop/b", "shop/c"]


def test_a_service_that_kavip_does_not_manage_shares_with_no_other() -> None:
    """No group announces its externalIPs, the default group or another."""
    plain = build.service("shop/x", annotations=SHARED, type="ClusterIP", external_ips=[VIP], port=82)
    snapshot = Snapshot.from_objects([plain, *OBJECTS[2:]])
    request, _ = read_request(sharer("a", 80), group=GROUP)
    request = snapshot.ledger.with_default_group(request)
    (address,) = plain.external_addresses
    rival = snapshot.ledger.claims.rival(address, request.terms)
    assert rival is not None
    assert rival.key == "shop/x"
