"""Events of kavip's own status writes are recognised, and no other events are."""

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
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

WEB, EDGE, POOL = Key(KeyKind.SERVICE, "shop/web"), Key(KeyKind.GROUP, GROUP), Key(KeyKind.POOL, "edge")
THEIRS = Condition(type="example.com/Told", status="True", reason="Theirs")


def written(**more: Any) -> tuple[SimulatedCluster, StatusPatch, Service, Service]:
    """A Service, the first status write of its plan, and what an API server makes of it."""
    service = build.service("shop/web", group=GROUP, **more)
    status = msgspec.structs.replace(service.status, conditions=[THEIRS, *(service.status.conditions or ())])
    before = msgspec.structs.replace(service, status=status)
    simulation = SimulatedCluster(cluster(build.group(), build.pool(), before))
    (sent,) = simulation.service("shop/web").writes
    assert isinstance(sent, StatusPatch)
    return simulation, sent, before, simulation.snapshot.services["shop/web"]


def touched(service: Service, **changes: Any) -> Service:
    """*service* with one more difference."""
    return msgspec.structs.replace(service, **changes)


def test_an_own_write_is_recognised() -> None:
    """The address and both conditions are as sent, beside a condition of another controller."""
    _, sent, before, after = written()
    assert after.ingress_addresses
    assert is_own_write(sent, before, after)


def test_an_own_write_of_conditions_is_recognised() -> None:
    """A later change of a condition does not change the address."""
    simulation, _, _, before = written()
    simulation.snapshot.drop("KeepalivedGroup", GROUP)
    (sent,) = simulation.service("shop/web").writes
    assert isinstance(sent, StatusPatch)
    assert "loadBalancer" not in sent.body["status"]
    assert is_own_write(sent, before, simulation.snapshot.services["shop/web"])


def other_address(service: Service) -> Service:
    """A different address than the written one."""
    balancer = LoadBalancer(ingress=[Ingress(ip="192.0.2.200", ip_mode="VIP")])
    return touched(service, status=msgspec.structs.replace(service.status, load_balancer=balancer))


def other_condition(service: Service) -> Service:
    """A changed condition of another controller."""
    rest = [each for each in service.status.conditions or () if each != THEIRS]
    return touched(service, status=msgspec.structs.replace(service.status, conditions=rest))


def other_label(service: Service) -> Service:
    """A new label."""
    return touched(service, metadata=msgspec.structs.replace(service.metadata, labels={"a": "b"}))


def other_spec(service: Service) -> Service:
    """A changed spec."""
    return touched(service, spec=msgspec.structs.replace(service.spec, load_balancer_ip="192.0.2.130"))


@pytest.mark.parametrize("change", [other_address, other_condition, other_label, other_spec])
def test_any_other_change_is_no_own_write(change: Any) -> None:
    """The Service must be planned again."""
    _, sent, before, after = written()
    assert not is_own_write(sent, before, change(after))


def test_a_write_based_on_another_version_is_no_own_write() -> None:
    """The cache had a newer version before the event, so another change came between."""
    _, sent, before, after = written()
    metadata = msgspec.structs.replace(before.metadata, resource_version="77")
    assert not is_own_write(sent, touched(before, metadata=metadata), after)


def test_an_own_write_enqueues_group_and_pool_and_not_its_service() -> None:
    """The VIP goes into the text and is counted; nothing is left to decide for the Service."""
    simulation, sent, before, after = written()
    assert set(enqueue.of(simulation.snapshot, before, after, sent=sent)) == {EDGE, POOL}
    assert set(enqueue.of(simulation.snapshot, before, after)) == {WEB, EDGE, POOL}


@pytest.mark.slow
def test_the_caches_recognise_an_own_write_once() -> None:
    """The same change without an own write before it enqueues the Service."""
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
