"""A waiting Service is requeued only by a change that can help it."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from kavip import names
from kavip.api.group import GroupVirtualIP
from kavip.api.meta import LabelSelector
from kavip.api.pool import PoolStatus, Reservation, Usage
from kavip.ipam.request import read_request
from kavip.names import Reason
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import KINDS, Object
from tests.reconcile.service.planning import ASSIGNED, WEB, web, with_condition
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

VIP = "192.0.2.128"
PROD = LabelSelector(match_labels={"env": "prod"})
SHARE = {names.SHARING_KEY_ANNOTATION: "k"}
DUAL: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"}


class SynchronousController:
    """A controller without an event loop: a change enqueues keys, and their plans are applied at once."""

    def __init__(self, *objects: Object) -> None:
        """Plan every key once."""
        self.simulation = SimulatedCluster(cluster(build.group(), *objects))
        self.snapshot = self.simulation.snapshot
        self.reconciles: Counter[str] = Counter()
        self.snapshot.ledger.cooldown.lead(self.simulation.now)
        self._work(list(enqueue.everything(self.snapshot)))

    def put(self, *objects: Object) -> None:
        """Create or replace *objects*, one after the other."""
        for obj in objects:
            old = self._stored(type(obj), obj.metadata.key)
            self.snapshot.put(obj)
            self._changed(old, obj)

    def drop(self, obj: Object) -> None:
        """Delete *obj*."""
        old = self._stored(type(obj), obj.metadata.key)
        self.snapshot.drop(KINDS[type(obj)], obj.metadata.key)
        self._changed(old, None)

    def later(self, seconds: float) -> None:
        """Advance the clock, and end cool-downs that are over."""
        self.simulation.now += timedelta(seconds=seconds)
        self.snapshot.ledger.cooldown.expire(self.simulation.now)
        self._work([Key(KeyKind.SERVICE, key) for key in self.snapshot.ledger.drain_requeues()])

    def address_condition(self) -> tuple[str, str] | None:
        """Status and reason of ``AddressAssigned``."""
        return self.simulation.condition(WEB, ASSIGNED)

    def _stored(self, kind: type, key: str) -> Any:
        return self.snapshot._stores[KINDS[kind]].get(key)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        self.snapshot.ledger.cooldown.start(self.simulation.now)
        self._work(list(enqueue.of(self.snapshot, old, new)))

    def _work(self, keys: list[Key]) -> None:
        queue = [key for key in dict.fromkeys(keys) if key.kind is KeyKind.SERVICE]
        while queue:
            key = queue.pop(0).name
            before = self.snapshot.services.get(key)
            if before is None:
                continue
            self.reconciles[key] += 1
            plan = self.simulation.service(key)
            if plan.waits is not None:
                request, _ = read_request(before, group=self.snapshot.group_of(before))
                self.snapshot.ledger.wait(request, plan.waits, reason=plan.unmet)
            self.snapshot.ledger.waiters.answer(key)
            after = self.snapshot.services[key]
            found = enqueue.of(self.snapshot, before, after) if after != before else ()
            called = [Key(KeyKind.SERVICE, each) for each in self.snapshot.ledger.drain_requeues()]
            queue += [each for each in (*found, *called) if each.kind is KeyKind.SERVICE and each.name != key]


Change = Callable[[SynchronousController], None]


class Row(NamedTuple):
    """*waiter* waits with *reason* while *objects* exist; *helps* serves it, and *does_not* must not requeue it."""

    name: str
    reason: Reason
    waiter: Any
    objects: tuple[Object, ...]
    helps: Change
    does_not: Change


def drop(obj: Object) -> Change:
    """The change that deletes *obj*."""
    return lambda controller: controller.drop(obj)


def put(*objects: Object) -> Change:
    """The change that creates or replaces *objects*."""
    return lambda controller: controller.put(*objects)


def holder(name: str = "shop/a", address: str = VIP, **more: Any) -> Any:
    """A Service that holds *address*."""
    found = build.service(name, group=GROUP, holds=[address] if address else [], **more)
    return with_condition(found, ASSIGNED, "True", "Assigned")


def pool(*addresses: str, **more: Any) -> Any:
    """The pool edge, by default with one address."""
    return build.pool("edge", *(addresses or (VIP,)), **more)


def external(*addresses: str) -> Any:
    """A ClusterIP Service with externalIPs."""
    return build.service("shop/ext", group=GROUP, type="ClusterIP", external_ips=list(addresses))


LAB = build.pool("lab", "198.51.100.0/30", namespace_selector=PROD)
ELSEWHERE = holder("shop/lab", "198.51.100.1")


def counted(obj: Any) -> Any:
    """The pool *obj* with a status that kavip has just written."""
    metadata = msgspec.structs.replace(obj.metadata, resource_version="77")
    return msgspec.structs.replace(obj, metadata=metadata, status=PoolStatus(ipv4=Usage(total=1, assigned=1)))


def beat() -> Object:
    """A heartbeat of a node."""
    node = build.node("n1", "192.0.2.11")
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, resource_version="77"))


FULL, MISMATCH, IN_USE = Reason.POOL_EXHAUSTED, Reason.POOL_SELECTOR_MISMATCH, Reason.ADDRESS_IN_USE
ROWS = (
    Row("address freed", FULL, web(), (pool(), holder(), LAB, ELSEWHERE), drop(holder()), drop(ELSEWHERE)),
    Row("holder leaves", FULL, web(), (pool(), holder()), put(build.service("shop/a", type="ClusterIP")), put(beat())),
    Row("taken elsewhere", FULL, web(), (pool(), holder(), LAB), drop(holder()), put(ELSEWHERE)),
    Row("pool added", Reason.NO_POOL, web(), (), put(pool()), put(holder("shop/b", "203.0.113.9"))),
    Row("pool enlarged", FULL, web(), (pool(), holder()), put(pool("192.0.2.128/31")), put(counted(pool()))),
    Row(
        "named pool added",
        Reason.POOL_NOT_FOUND,
        web(pool="late"),
        (pool(), holder()),
        put(build.pool("late", "198.51.100.0/30")),
        drop(holder()),
    ),
    Row("pool selects", MISMATCH, web(), (LAB,), put(build.pool("lab", "198.51.100.0/30")), put(counted(LAB))),
    Row(
        "named pool selects",
        MISMATCH,
        web(pool="lab"),
        (LAB, ELSEWHERE),
        put(build.pool("lab", "198.51.100.0/30")),
        drop(ELSEWHERE),
    ),
    Row("pool assigns", Reason.NO_POOL, web(), (pool(auto_assign=False),), put(pool()), put(holder("shop/b"))),
    Row(
        "exclude removed",
        FULL,
        web(),
        (pool("192.0.2.128/31", exclude=["192.0.2.129"]), holder()),
        put(pool("192.0.2.128/31")),
        put(counted(pool("192.0.2.128/31", exclude=["192.0.2.129"]))),
    ),
    Row(
        "namespace labelled",
        MISMATCH,
        web(),
        (LAB, build.namespace("shop"), build.namespace("other")),
        put(build.namespace("shop", env="prod")),
        put(build.namespace("other", env="prod")),
    ),
    Row(
        "quota freed",
        Reason.QUOTA_EXCEEDED,
        web(),
        (pool("192.0.2.128/28", max_per_namespace=1), holder(), holder("other/a", "192.0.2.129")),
        drop(holder()),
        drop(holder("other/a", "192.0.2.129")),
    ),
    Row(
        "quota raised",
        Reason.QUOTA_EXCEEDED,
        web(),
        (pool("192.0.2.128/28", max_per_namespace=1), holder()),
        put(pool("192.0.2.128/28", max_per_namespace=2)),
        put(holder("other/a", "192.0.2.129")),
    ),
    Row(
        "default group changed",
        MISMATCH,
        build.service(WEB, load_balancer_class=names.LOAD_BALANCER_CLASS),
        (pool(groups=["lb/new"]), build.group("lb/old", default=True)),
        put(build.group("lb/old"), build.group("lb/new", default=True)),
        put(build.group("lb/old", default=True, router_ids={"shop/x": 7})),
    ),
    Row(
        "group annotation edited",
        MISMATCH,
        web(),
        (pool(groups=["lb/new"]), build.group("lb/new")),
        put(build.service(WEB, group="lb/new")),
        put(build.service("shop/b", group="lb/new", wants="10.0.0.1")),
    ),
    Row(
        "partner's port removed",
        FULL,
        web(annotations=SHARE),
        (pool(), holder(annotations=SHARE)),
        put(holder(annotations=SHARE, port=81)),
        put(holder(annotations=SHARE, labels={"a": "b"})),
    ),
    Row(
        "fellow deleted",
        Reason.SHARING_REFUSED,
        web(annotations=SHARE, wants=VIP),
        (pool("192.0.2.128/28"), holder(annotations=SHARE), holder("shop/b", "192.0.2.129", annotations=SHARE)),
        drop(holder()),
        drop(holder("shop/b", "192.0.2.129")),
    ),
    Row("node gone", FULL, web(), (pool(), build.node("n9", VIP)), drop(build.node("n9")), put(beat())),
    Row(
        "node renumbered",
        Reason.ADDRESS_NOT_ALLOWED,
        web(wants=VIP),
        (pool(), build.node("n9", VIP)),
        put(build.node("n9", "192.0.2.99")),
        put(build.node("n8", "192.0.2.98")),
    ),
    Row(
        "group's own address gone",
        FULL,
        web(),
        (pool(), build.group("lb/api", virtual_ips=[GroupVirtualIP(address=VIP)])),
        put(build.group("lb/api")),
        put(build.group("lb/api", virtual_ips=[GroupVirtualIP(address=VIP)], router_ids={"lb/api": 3})),
    ),
    Row("externalIPs gone", FULL, web(), (pool(), external(VIP)), put(external("203.0.113.9")), put(beat())),
    Row(
        "reservation removed",
        FULL,
        web(),
        (pool(reservations=[Reservation(address=VIP, service="shop/b")]),),
        put(pool()),
        put(build.service("shop/c", group=GROUP, wants="10.0.0.1")),
    ),
    Row(
        "platform stops",
        Reason.LEFT_TO_PLATFORM,
        web(),
        (pool("192.0.2.128/28"), build.network("203.0.113.0/24")),
        put(build.network()),
        put(holder("shop/b")),
    ),
    Row(
        "platform rejects less",
        Reason.ADDRESS_NOT_ALLOWED,
        web(wants=VIP),
        (pool("192.0.2.128/28"), build.network(rejected_cidrs=["192.0.2.128/30"])),
        put(build.network(rejected_cidrs=["192.0.2.129/32"])),
        put(holder("shop/b", "192.0.2.140")),
    ),
    Row(
        "pool of the address added",
        Reason.ADDRESS_NOT_IN_POOL,
        web(wants="198.51.100.2"),
        (pool(), holder()),
        put(build.pool("lab", "198.51.100.0/30")),
        drop(holder()),
    ),
    Row(
        "pool of an address left to the platform",
        Reason.LEFT_TO_PLATFORM,
        web(wants=VIP),
        (build.network("203.0.113.0/24"),),
        put(pool()),
        put(holder("shop/b", "203.0.113.9")),
    ),
    Row(
        "requests another",
        IN_USE,
        web(wants=VIP),
        (pool("192.0.2.128/28"), holder()),
        put(web(wants="192.0.2.130")),
        put(holder("shop/b", "192.0.2.129")),
    ),
    Row(
        "requested address freed",
        IN_USE,
        web(wants=VIP),
        (pool("192.0.2.128/28"), holder(), holder("shop/b", "192.0.2.129")),
        drop(holder()),
        drop(holder("shop/b", "192.0.2.129")),
    ),
    Row(
        "contradiction mended",
        Reason.ADDRESS_NOT_IN_POOL,
        web(wants="198.51.100.2", pool="edge"),
        (pool("192.0.2.128/28"), build.pool("lab", "198.51.100.0/30"), ELSEWHERE),
        put(web(pool="edge")),
        drop(ELSEWHERE),
    ),
    Row(
        "policy mended",
        Reason.FAMILY_NOT_AVAILABLE,
        web(ip_family_policy="RequireDualStack"),
        (pool("192.0.2.128/31"), holder()),
        put(web()),
        drop(holder()),
    ),
    Row(
        "annotation mended",
        Reason.INVALID_REQUEST,
        web(wants="10.0.0"),
        (pool("192.0.2.128/31"), holder()),
        put(web()),
        drop(holder()),
    ),
)


def controller(row: Row) -> SynchronousController:
    """A controller in which the Service of *row* waits."""
    found = SynchronousController(*row.objects, row.waiter)
    before = found.address_condition()
    assert before is not None
    assert before[1] == row.reason, found.snapshot.services[WEB].status.conditions
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_change_that_helps_serves_the_service(row: Row) -> None:
    """The Service has its address without any other change."""
    found = controller(row)
    row.helps(found)
    assert found.address_condition() == ("True", "Assigned")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_change_that_does_not_help_requeues_nothing(row: Row) -> None:
    """The Service is not planned once."""
    found = controller(row)
    reconciles = found.reconciles[WEB]
    row.does_not(found)
    assert found.reconciles[WEB] == reconciles


def test_the_end_of_a_cool_down_serves_the_service() -> None:
    """Not before the end, and then without another change."""
    found = SynchronousController(pool(cooldown_seconds=60), holder(), web())
    found.drop(holder())
    assert found.address_condition() == ("False", FULL)
    reconciles = found.reconciles[WEB]
    found.later(59)
    assert found.reconciles[WEB] == reconciles
    found.later(1)
    assert found.address_condition() == ("True", "Assigned")


def test_a_service_without_its_second_family_waits_for_that_family() -> None:
    """A PreferDualStack Service is not requeued for an IPv4 address, but for an IPv6 address."""
    six = holder("shop/six", "2001:db8::1", families=("IPv6",))
    found = SynchronousController(
        pool("192.0.2.128/30", "2001:db8::1"), holder("shop/a", "192.0.2.130"), six, web(**DUAL)
    )
    reconciles = found.reconciles[WEB]
    found.drop(holder("shop/a", "192.0.2.130"))
    assert found.reconciles[WEB] == reconciles
    found.drop(six)
    assert [str(each) for each in found.snapshot.services[WEB].ingress_addresses] == [VIP, "2001:db8::1"]


def addresses(found: SynchronousController) -> list[str]:
    """The addresses of the waiting Service."""
    return [str(each) for each in found.snapshot.services[WEB].ingress_addresses]


def test_a_service_that_requests_another_pool_waits_for_any_family_of_it() -> None:
    """PreferDualStack: a kept address of the old pool does not count as a family of the requested pool."""
    web_ = with_condition(web(holds=[VIP], pool="lab", **DUAL), ASSIGNED, "True", "Assigned")
    found = SynchronousController(pool(), build.pool("lab", "198.51.100.1", "2001:db8::/127"), ELSEWHERE, web_)
    assert addresses(found) == ["2001:db8::"]
    found = SynchronousController(pool(), build.pool("lab", "198.51.100.1"), ELSEWHERE, web_)
    assert (found.address_condition(), addresses(found)) == (("False", FULL), [VIP])
    found.drop(ELSEWHERE)
    assert (found.address_condition(), addresses(found)) == (("True", "Assigned"), ["198.51.100.1"])
