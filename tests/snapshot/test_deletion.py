"""What an object in deletion holds: a tenant's finalizer keeps it, and no later edit takes an address from others."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.group import GroupStatus, GroupVirtualIP, GroupVirtualIPStatus, Instances
from kavip.api.meta import Metadata
from kavip.api.workload import ConfigMap
from kavip.caches import Caches
from kavip.kube.client import Client
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import Snapshot
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster
from tests.support import build
from tests.support.build import in_deletion

WEB, VICTIM, OTHER = "shop/web", "bank/web", "lb/other"
VIP = "192.0.2.130"


def external(key: str, *vips: str, group: str = GROUP, **more: Any) -> Any:
    """A Service with these external IPs."""
    return build.service(key, group=group, type="ClusterIP", external_ips=list(vips) or None, **more)


def settled(*objects: Any) -> SimulatedCluster:
    """A cluster in which the groups have published their configurations."""
    simulation = SimulatedCluster(cluster(*objects))
    simulation.settle(Key(KeyKind.GROUP, GROUP), Key(KeyKind.GROUP, OTHER))
    return simulation


def assigned(snapshot: Snapshot) -> int:
    """How many addresses of the pool are in use."""
    return snapshot.ledger.usage("edge")[4].assigned


@pytest.mark.parametrize("group", [GROUP, OTHER])
@pytest.mark.parametrize("instances", [Instances(), Instances(mode="Shared", count=4)], ids=lambda each: each.mode)
@pytest.mark.parametrize(
    "victim", [external(VICTIM, VIP, group=OTHER), build.service(VICTIM, group=OTHER, holds=[VIP])]
)
def test_a_service_in_deletion_takes_no_vip_from_a_service(victim: Any, instances: Instances, group: str) -> None:
    """An older Service that lists the VIP of another one only while it is in deletion does not hold it."""
    groups = [build.group(key, instances=instances) for key in (GROUP, OTHER)]
    older = external(WEB, created="2020-01-01T00:00:00Z")
    simulation = settled(*groups, build.pool(), older, victim)
    before = simulation.text(OTHER)
    assert f" {VIP}/32 " in before
    simulation.snapshot.put(in_deletion(external(WEB, VIP, group=group, created="2020-01-01T00:00:00Z")))
    simulation.settle(Key(KeyKind.GROUP, GROUP), Key(KeyKind.GROUP, OTHER))
    assert simulation.text(OTHER) == before
    assert VIP not in simulation.text(GROUP)
    assert not simulation.snapshot.ledger.disputing()


def test_addresses_that_were_never_served_use_up_no_pool() -> None:
    """A quota binds living Services; one in deletion with all addresses of a pool leaves them to others."""
    every = [f"192.0.2.{number}" for number in range(128, 144)]
    dying = in_deletion(external(WEB, *every))
    snapshot = Snapshot.from_objects([build.pool(max_per_namespace=1), build.group(), dying])
    assert assigned(snapshot) == 0
    assert snapshot.members(GROUP) == ()


@pytest.mark.parametrize("instances", [Instances(), Instances(mode="Shared", count=4)], ids=lambda each: each.mode)
@pytest.mark.parametrize("spread", ["false", "true"])
def test_a_service_in_deletion_keeps_what_its_instance_runs(instances: Instances, spread: str) -> None:
    """Its VIPs stay in the configuration and in use, and an address that it adds is not served."""
    how: dict[str, Any] = {"annotations": {names.SPREAD_ANNOTATION: spread}, "families": ("IPv4", "IPv6")}
    found = external(WEB, VIP, "2001:db8::5", **how)
    simulation = settled(build.group(instances=instances), build.group(OTHER), build.pool(), found)
    before = simulation.text()
    simulation.snapshot.put(in_deletion(external(WEB, VIP, "2001:db8::5", "192.0.2.131", **how)))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert simulation.text() == before
    assert assigned(simulation.snapshot) == 1
    claims = simulation.snapshot.ledger.claims
    assert [str(each) for each in claims.claimants(parse_address(VIP))] == [f"Service {WEB} (being deleted)"]
    simulation.snapshot.drop(names.SERVICE, WEB)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert VIP not in simulation.text()


def test_an_address_in_status_is_held() -> None:
    """The address that kavip assigned stays until the Service is gone, also where it is an external IP too."""
    dying = in_deletion(build.service(WEB, group=GROUP, holds=[VIP], external_ips=[VIP, "192.0.2.131"]))
    snapshot = Snapshot.from_objects([build.pool(), build.group(), dying])
    assert assigned(snapshot) == 1
    assert snapshot.services[WEB].spec.external_ips == [VIP]


def test_a_group_in_deletion_takes_no_address() -> None:
    """It keeps the virtual IPs that its status or its configuration shows; the Service keeps its address."""
    own = [GroupVirtualIP(address="192.0.2.140/24"), GroupVirtualIP(address="192.0.2.141")]
    victim = build.service(VICTIM, group=OTHER, holds=[VIP])
    simulation = settled(build.group(virtual_ips=own[:1]), build.group(OTHER), build.pool(), victim)
    before = simulation.text(OTHER)
    taken = [*own, GroupVirtualIP(address=VIP)]
    dying = in_deletion(build.group(virtual_ips=taken))
    simulation.snapshot.put(dying)
    simulation.settle(Key(KeyKind.GROUP, OTHER))
    assert simulation.text(OTHER) == before
    owners = {
        text: simulation.snapshot.ledger.owner(parse_address(text)) for text in ("192.0.2.140", "192.0.2.141", VIP)
    }
    assert owners == {"192.0.2.140": f"KeepalivedGroup {GROUP}", "192.0.2.141": "", VIP: ""}
    status = GroupStatus(virtual_ips=[GroupVirtualIPStatus(address="192.0.2.141")])
    snapshot = Snapshot.from_objects([msgspec.structs.replace(dying, status=status)])
    assert [str(each) for each in snapshot.groups[GROUP].virtual_ips] == ["192.0.2.141"]


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_events_does_not_matter(seed: int) -> None:
    """Services, the default group that serves them, and the published configuration may come in any order."""
    dying = build.service(WEB, type="LoadBalancer", external_ips=[VIP], load_balancer_class=names.LOAD_BALANCER_CLASS)
    objects: list[Any] = [build.group(default=True), build.group(OTHER), build.pool(), dying]
    text = settled(*objects).text()
    snapshot = Snapshot()
    events: list[Callable[[], object]] = [
        *(partial(snapshot.put, each) for each in (*objects[:3], in_deletion(dying))),
        partial(snapshot.publish, GROUP, text),
    ]
    random.Random(seed).shuffle(events)
    for event in events:
        event()
    assert assigned(snapshot) == 1
    snapshot.publish(GROUP, "")
    assert assigned(snapshot) == 0


def test_the_published_configuration_requeues_waiting_services() -> None:
    """The ConfigMap is read like any other object; an address that it no longer has is assigned to others."""
    caches, woken = Caches(cast(Client, None), owned=False, now=lambda: NOW), list[Key]()
    found = external(WEB, VIP)
    text = settled(build.group(), build.group(OTHER), found).text()
    namespace, _, name = GROUP.partition("/")
    metadata = Metadata(name=name, namespace=namespace, labels={names.GROUP_LABEL: name})
    published = ConfigMap(metadata=metadata, data={names.CONFIG_KEY: text})
    waits = build.service("shop/waits", group=GROUP, wants=VIP)
    for each in (build.group(), build.pool(), found, waits):
        caches._update(None, each)
    caches._update_owned(None, published)
    caches._update(found, in_deletion(found))
    caches.lead(woken.append)
    assert assigned(caches.snapshot) == 1
    caches._update_owned(published, ConfigMap(metadata=metadata, data={names.CONFIG_KEY: ""}))
    assert assigned(caches.snapshot) == 0
    assert Key(KeyKind.SERVICE, "shop/waits") in woken
    assert Key(KeyKind.POOL, "edge") in woken
