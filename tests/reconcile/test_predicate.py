"""What comes back of our own status writes is known as such, and nothing else is."""

from typing import Any, cast

import msgspec
import pytest

from kavip.api.meta import Condition
from kavip.api.service import Ingress, LoadBalancer, Service
from kavip.caches import Caches
from kavip.kube.client import Client
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from kavip.reconcile.predicate import is_own_write
from tests.reconcile.world import GROUP, World, cluster
from tests.support import build

WEB, EDGE, POOL = Key(KeyKind.SERVICE, "shop/web"), Key(KeyKind.GROUP, GROUP), Key(KeyKind.POOL, "edge")
THEIRS = Condition(type="example.com/Told", status="True", reason="Theirs")


def written(**more: Any) -> tuple[World, StatusPatch, Service, Service]:
    """A Service, the first status write of its plan, and what an API server makes of it."""
    service = build.service("shop/web", group=GROUP, **more)
    status = msgspec.structs.replace(service.status, conditions=[THEIRS, *(service.status.conditions or ())])
    before = msgspec.structs.replace(service, status=status)
    world = World(cluster(build.group(), build.pool(), before))
    (sent,) = world.service("shop/web").writes
    assert isinstance(sent, StatusPatch)
    return world, sent, before, world.snapshot.services["shop/web"]


def touched(service: Service, **changes: Any) -> Service:
    """*service*, of which something else is different."""
    return msgspec.structs.replace(service, **changes)


def test_our_own_write_is_an_echo() -> None:
    """The address and both conditions come back as they were sent; a condition of others stands beside them."""
    _, sent, before, after = written()
    assert after.ingress_addresses
    assert is_own_write(sent, before, after)


def test_a_write_of_conditions_alone_is_an_echo() -> None:
    """A further change of a condition says nothing about the address."""
    world, _, _, before = written()
    world.snapshot.drop("KeepalivedGroup", GROUP)
    (sent,) = world.service("shop/web").writes
    assert isinstance(sent, StatusPatch)
    assert "loadBalancer" not in sent.body["status"]
    assert is_own_write(sent, before, world.snapshot.services["shop/web"])


def other_address(service: Service) -> Service:
    """Another address than the one that was sent."""
    balancer = LoadBalancer(ingress=[Ingress(ip="192.0.2.200", ip_mode="VIP")])
    return touched(service, status=msgspec.structs.replace(service.status, load_balancer=balancer))


def other_condition(service: Service) -> Service:
    """A condition of somebody else has changed as well."""
    rest = [each for each in service.status.conditions or () if each != THEIRS]
    return touched(service, status=msgspec.structs.replace(service.status, conditions=rest))


def other_label(service: Service) -> Service:
    """Somebody has labelled it."""
    return touched(service, metadata=msgspec.structs.replace(service.metadata, labels={"a": "b"}))


def other_spec(service: Service) -> Service:
    """Somebody has edited it."""
    return touched(service, spec=msgspec.structs.replace(service.spec, load_balancer_ip="192.0.2.130"))


@pytest.mark.parametrize("change", [other_address, other_condition, other_label, other_spec])
def test_whatever_else_has_changed_makes_it_none(change: Any) -> None:
    """Then there is something to decide."""
    _, sent, before, after = written()
    assert not is_own_write(sent, before, change(after))


def test_a_write_that_was_decided_on_another_version_is_none() -> None:
    """What the cache showed then is not what it showed last: something came between."""
    _, sent, before, after = written()
    metadata = msgspec.structs.replace(before.metadata, resource_version="77")
    assert not is_own_write(sent, touched(before, metadata=metadata), after)


def test_an_echo_wakes_group_and_pool_and_not_its_service() -> None:
    """The VIP goes into the text and is counted; of the Service nothing is left to decide."""
    world, sent, before, after = written()
    assert set(enqueue.of(world.snapshot, before, after, sent=sent)) == {EDGE, POOL}
    assert set(enqueue.of(world.snapshot, before, after)) == {WEB, EDGE, POOL}


@pytest.mark.slow
def test_the_caches_know_an_echo_once() -> None:
    """The same change without a write of ours before it wakes the Service."""
    _, sent, before, after = written()
    caches, woken = Caches(cast(Client, None), owned=False), set[Key]()
    for each in (build.group(), build.pool(), before):
        caches._update(None, each)
    caches.lead(woken.add)
    caches.pending.send(sent)
    caches._update(before, after)
    assert woken == {EDGE, POOL}
    caches._update(before, after)
    assert woken == {WEB, EDGE, POOL}
