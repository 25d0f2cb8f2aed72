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
from tests.reconcile.service.planning import ASSIGNED, WEB, told, web
from tests.reconcile.world import GROUP, World, cluster
from tests.support import build

VIP = "192.0.2.128"
PROD = LabelSelector(match_labels={"env": "prod"})
SHARE = {names.SHARING_KEY_ANNOTATION: "k"}
DUAL: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"}


class Desk:
    """A controller without its loop: a change enqueues keys, and their plans are applied at once."""

    def __init__(self, *objects: Object) -> None:
        """Plan every key once."""
        self.world = World(cluster(build.group(), *objects))
        self.snapshot = self.world.snapshot
        self.looks: Counter[str] = Counter()
        self.snapshot.ledger.cooldown.lead(self.world.now)
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
        self.world.now += timedelta(seconds=seconds)
        self.snapshot.ledger.cooldown.expire(self.world.now)
        self._work([Key(KeyKind.SERVICE, key) for key in self.snapshot.ledger.drain_requeues()])

    def told(self) -> tuple[str, str] | None:
        """Status and reason of ``AddressAssigned``."""
        return self.world.condition(WEB, ASSIGNED)

    def _stored(self, kind: type, key: str) -> Any:
        return self.snapshot._stores[KINDS[kind]].get(key)

    def _changed(self, old: Object | None, new: Object | None) -> None:
        self.snapshot.ledger.cooldown.start(self.world.now)
        self._work(list(enqueue.of(self.snapshot, old, new)))

    def _work(self, keys: list[Key]) -> None:
        queue = [key for key in dict.fromkeys(keys) if key.kind is KeyKind.SERVICE]
        while queue:
            key = queue.pop(0).name
            before = self.snapshot.services.get(key)
            if before is None:
                continue
            self.looks[key] += 1
            plan = self.world.service(key)
            if plan.waits is not None:
                request, _ = read_request(before, group=self.snapshot.group_of(before))
                self.snapshot.ledger.wait(request, plan.waits, reason=plan.unmet)
            self.snapshot.ledger.waiters.answer(key)
            after = self.snapshot.services[key]
            found = enqueue.of(self.snapshot, before, after) if after != before else ()
            called = [Key(KeyKind.SERVICE, each) for each in self.snapshot.ledger.drain_requeues()]
            queue += [each for each in (*found, *called) if each.kind is KeyKind.SERVICE and each.name != key]


Change = Callable[[Desk], None]


class Row(NamedTuple):
    """*waiter* waits with *reason* while *objects* exist; *helps* serves it, and *does_not* must not requeue it."""

    name: str
    reason: Reason
    waiter: Any
    objects: tuple[Object, ...]
    helps: Change
    does_not: Change


def gone(obj: Object) -> Change:
    """The change that deletes *obj*."""
    return lambda desk: desk.drop(obj)


def now(*objects: Object) -> Change:
    """The change that creates or replaces *objects*."""
    return lambda desk: desk.put(*objects)


def holder(name: str = "shop/a", address: str = VIP, **more: Any) -> Any:
    """A Service that holds *address*."""
    found = build.service(name, group=GROUP, holds=[address] if address else [], **more)
    return told(found, ASSIGNED, "True", "Assigned")


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
    Row("address freed", FULL, web(), (pool(), holder(), LAB, ELSEWHERE), gone(holder()), gone(ELSEWHERE)),
    Row("holder leaves", FULL, web(), (pool(), holder()), now(build.service("shop/a", type="ClusterIP")), now(beat())),
    Row("taken elsewhere", FULL, web(), (pool(), holder(), LAB), gone(holder()), now(ELSEWHERE)),
    Row("pool added", Reason.NO_POOL, web(), (), now(pool()), now(holder("shop/b", "203.0.113.9"))),
    Row("pool enlarged", FULL, web(), (pool(), holder()), now(pool("192.0.2.128/31")), now(counted(pool()))),
    Row(
        "named pool added",
        Reason.POOL_NOT_FOUND,
        web(pool="late"),
        (pool(), holder()),
        now(build.pool("late", "198.51.100.0/30")),
        gone(holder()),
    ),
    Row("pool selects", MISMATCH, web(), (LAB,), now(build.pool("lab", "198.51.100.0/30")), now(counted(LAB))),
    Row(
        "named pool selects",
        MISMATCH,
        web(pool="lab"),
        (LAB, ELSEWHERE),
        now(build.pool("lab", "198.51.100.0/30")),
        gone(ELSEWHERE),
    ),
    Row("pool assigns", Reason.NO_POOL, web(), (pool(auto_assign=False),), now(pool()), now(holder("shop/b"))),
    Row(
        "exclude removed",
        FULL,
        web(),
        (pool("192.0.2.128/31", exclude=["192.0.2.129"]), holder()),
        now(pool("192.0.2.128/31")),
        now(counted(pool("192.0.2.128/31", exclude=["192.0.2.129"]))),
    ),
    Row(
        "namespace labelled",
        MISMATCH,
        web(),
        (LAB, build.namespace("shop"), build.namespace("other")),
        now(build.namespace("shop", env="prod")),
        now(build.namespace("other", env="prod")),
    ),
    Row(
        "quota freed",
        Reason.QUOTA_EXCEEDED,
        web(),
        (pool("192.0.2.128/28", max_per_namespace=1), holder(), holder("other/a", "192.0.2.129")),
        gone(holder()),
        gone(holder("other/a", "192.0.2.129")),
    ),
    Row(
        "quota raised",
        Reason.QUOTA_EXCEEDED,
        web(),
        (pool("192.0.2.128/28", max_per_namespace=1), holder()),
        now(pool("192.0.2.128/28", max_per_namespace=2)),
        now(holder("other/a", "192.0.2.129")),
    ),
    Row(
        "default group changed",
        MISMATCH,
        build.service(WEB, load_balancer_class=names.LOAD_BALANCER_CLASS),
        (pool(groups=["lb/new"]), build.group("lb/old", default=True)),
        now(build.group("lb/old"), build.group("lb/new", default=True)),
        now(build.group("lb/old", default=True, router_ids={"shop/x": 7})),
    ),
    Row(
        "group annotation edited",
        MISMATCH,
        web(),
        (pool(groups=["lb/new"]), build.group("lb/new")),
        now(build.service(WEB, group="lb/new")),
        now(build.service("shop/b", group="lb/new", wants="10.0.0.1")),
    ),
    Row(
        "partner's port removed",
        FULL,
        web(annotations=SHARE),
        (pool(), holder(annotations=SHARE)),
        now(holder(annotations=SHARE, port=81)),
        now(holder(annotations=SHARE, labels={"a": "b"})),
    ),
    Row(
        "fellow deleted",
        Reason.SHARING_REFUSED,
        web(annotations=SHARE, wants=VIP),
        (pool("192.0.2.128/28"), holder(annotations=SHARE), holder("shop/b", "192.0.2.129", annotations=SHARE)),
        gone(holder()),
        gone(holder("shop/b", "192.0.2.129")),
    ),
    Row("node gone", FULL, web(), (pool(), build.node("n9", VIP)), gone(build.node("n9")), now(beat())),
    Row(
        "node renumbered",
        Reason.ADDRESS_NOT_ALLOWED,
        web(wants=VIP),
        (pool(), build.node("n9", VIP)),
        now(build.node("n9", "192.0.2.99")),
        now(build.node("n8", "192.0.2.98")),
    ),
    Row(
        "group's own address gone",
        FULL,
        web(),
        (pool(), build.group("lb/api", virtual_ips=[GroupVirtualIP(address=VIP)])),
        now(build.group("lb/api")),
        now(build.group("lb/api", virtual_ips=[GroupVirtualIP(address=VIP)], router_ids={"lb/api": 3})),
    ),
    Row("externalIPs gone", FULL, web(), (pool(), external(VIP)), now(external("203.0.113.9")), now(beat())),
    Row(
        "reservation removed",
        FULL,
        web(),
        (pool(reservations=[Reservation(address=VIP, service="shop/b")]),),
        now(pool()),
        now(build.service("shop/c", group=GROUP, wants="10.0.0.1")),
    ),
    Row(
        "platform stops",
        Reason.LEFT_TO_PLATFORM,
        web(),
        (pool("192.0.2.128/28"), build.network("203.0.113.0/24")),
        now(build.network()),
        now(holder("shop/b")),
    ),
    Row(
        "platform rejects less",
        Reason.ADDRESS_NOT_ALLOWED,
        web(wants=VIP),
        (pool("192.0.2.128/28"), build.network(rejected_cidrs=["192.0.2.128/30"])),
        now(build.network(rejected_cidrs=["192.0.2.129/32"])),
        now(holder("shop/b", "192.0.2.140")),
    ),
    Row(
        "pool of the address added",
        Reason.ADDRESS_NOT_IN_POOL,
        web(wants="198.51.100.2"),
        (pool(), holder()),
        now(build.pool("lab", "198.51.100.0/30")),
        gone(holder()),
    ),
    Row(
        "pool of an address left to the platform",
        Reason.LEFT_TO_PLATFORM,
        web(wants=VIP),
        (build.network("203.0.113.0/24"),),
        now(pool()),
        now(holder("shop/b", "203.0.113.9")),
    ),
    Row(
        "asks for another",
        IN_USE,
        web(wants=VIP),
        (pool("192.0.2.128/28"), holder()),
        now(web(wants="192.0.2.130")),
        now(holder("shop/b", "192.0.2.129")),
    ),
    Row(
        "address asked for freed",
        IN_USE,
        web(wants=VIP),
        (pool("192.0.2.128/28"), holder(), holder("shop/b", "192.0.2.129")),
        gone(holder()),
        gone(holder("shop/b", "192.0.2.129")),
    ),
    Row(
        "contradiction mended",
        Reason.ADDRESS_NOT_IN_POOL,
        web(wants="198.51.100.2", pool="edge"),
        (pool("192.0.2.128/28"), build.pool("lab", "198.51.100.0/30"), ELSEWHERE),
        now(web(pool="edge")),
        gone(ELSEWHERE),
    ),
    Row(
        "policy mended",
        Reason.FAMILY_NOT_AVAILABLE,
        web(ip_family_policy="RequireDualStack"),
        (pool("192.0.2.128/31"), holder()),
        now(web()),
        gone(holder()),
    ),
    Row(
        "annotation mended",
        Reason.INVALID_REQUEST,
        web(wants="10.0.0"),
        (pool("192.0.2.128/31"), holder()),
        now(web()),
        gone(holder()),
    ),
)


def desk(row: Row) -> Desk:
    """A controller in which the Service of *row* waits."""
    found = Desk(*row.objects, row.waiter)
    told_ = found.told()
    assert told_ is not None
    assert told_[1] == row.reason, found.snapshot.services[WEB].status.conditions
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_change_that_helps_serves_the_service(row: Row) -> None:
    """The Service has its address without any other change."""
    found = desk(row)
    row.helps(found)
    assert found.told() == ("True", "Assigned")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_change_that_does_not_help_requeues_nothing(row: Row) -> None:
    """The Service is not planned once."""
    found = desk(row)
    looks = found.looks[WEB]
    row.does_not(found)
    assert found.looks[WEB] == looks


def test_the_end_of_a_cool_down_serves_the_service() -> None:
    """Not before the end, and then without another change."""
    found = Desk(pool(cooldown_seconds=60), holder(), web())
    found.drop(holder())
    assert found.told() == ("False", FULL)
    looks = found.looks[WEB]
    found.later(59)
    assert found.looks[WEB] == looks
    found.later(1)
    assert found.told() == ("True", "Assigned")


def test_a_service_without_its_second_family_waits_for_that_family() -> None:
    """A PreferDualStack Service is not requeued for an IPv4 address, but for an IPv6 address."""
    six = holder("shop/six", "2001:db8::1", families=("IPv6",))
    found = Desk(pool("192.0.2.128/30", "2001:db8::1"), holder("shop/a", "192.0.2.130"), six, web(**DUAL))
    looks = found.looks[WEB]
    found.drop(holder("shop/a", "192.0.2.130"))
    assert found.looks[WEB] == looks
    found.drop(six)
    assert [str(each) for each in found.snapshot.services[WEB].ingress_addresses] == [VIP, "2001:db8::1"]


def addresses(found: Desk) -> list[str]:
    """The addresses of the waiting Service."""
    return [str(each) for each in found.snapshot.services[WEB].ingress_addresses]


def test_a_service_that_requests_another_pool_waits_for_any_family_of_it() -> None:
    """PreferDualStack: a kept address of the old pool does not count as a family of the requested pool."""
    web_ = told(web(holds=[VIP], pool="lab", **DUAL), ASSIGNED, "True", "Assigned")
    found = Desk(pool(), build.pool("lab", "198.51.100.1", "2001:db8::/127"), ELSEWHERE, web_)
    assert addresses(found) == ["2001:db8::"]
    found = Desk(pool(), build.pool("lab", "198.51.100.1"), ELSEWHERE, web_)
    assert (found.told(), addresses(found)) == (("False", FULL), [VIP])
    found.drop(ELSEWHERE)
    assert (found.told(), addresses(found)) == (("True", "Assigned"), ["198.51.100.1"])
