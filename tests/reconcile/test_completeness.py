"""
The keys that changes enqueue are enough: after any history of edits no other key has work to do.

kavip has no resync, so a key that no change enqueues stays as it was.
"""

import random
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.cluster import Namespace, Network, Node, ServiceCIDR
from kavip.api.group import GroupVirtualIP, Instances, KeepalivedGroup
from kavip.api.meta import LabelSelector
from kavip.api.pool import PoolRouting, VIPPool
from kavip.api.service import Service, ServiceStatus
from kavip.api.slice import EndpointSlice
from kavip.names import ConditionType
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Apply, GroupPlan, Key, KeyKind, Plan, ServicePlan, StatusPatch, Write
from kavip.reconcile.predicate import PendingWrites
from kavip.reconcile.service.allocation import record_waits
from kavip.snapshot import KINDS, Object
from tests.reconcile.simulatedcluster import SimulatedCluster, cluster
from tests.support import build

SPACES, GROUPS, POOLS = ("shop", "web"), ("lb/edge", "lb/other"), ("p1", "p2")
PROD = LabelSelector(match_labels={"env": "prod"})
HISTORIES, EDITS = 150, 40


class EnqueuingCluster(SimulatedCluster):
    """A cluster in which only those keys are reconciled that changes and plans enqueue."""

    def __init__(self, *objects: Object) -> None:
        """Start with *objects*, and with every key."""
        super().__init__(cluster(*objects, nodes=2))
        self.pending = PendingWrites()
        self.queue = dict.fromkeys(enqueue.everything(self.snapshot))

    def shown(self, kind: str, key: str) -> Object | None:
        """The object in the Snapshot."""
        stores: dict[type, Any] = {
            Service: self.snapshot.services,
            KeepalivedGroup: {**self.snapshot.groups, **self.snapshot.outside},
            VIPPool: self.snapshot.pools,
            Namespace: self.snapshot.namespaces,
            Node: self.snapshot.nodes,
            EndpointSlice: self.snapshot.slices,
            ServiceCIDR: self.snapshot.service_ranges,
            Network: self.snapshot.networks,
        }
        found: Object | None = {KINDS[each]: store for each, store in stores.items()}[kind].get(key)
        return found

    def stored(self, other: Object) -> Object | None:
        """The stored version of *other*."""
        return self.shown(KINDS[type(other)], other.metadata.key)

    def edit(self, new: Any) -> None:
        """What the watch does with an edited object; its status stays."""
        old: Any = self.stored(new)
        new = self.with_version(new)
        if old is not None and old.metadata.deletion_timestamp and not new.metadata.deletion_timestamp:
            return  # no object returns from its deletion
        if old is not None and isinstance(new, Service | KeepalivedGroup | VIPPool):
            new = msgspec.structs.replace(new, status=old.status)
        self.show(old, new)

    def empty_status(self, old: Service) -> None:
        """What the watch does with the Service *old* whose status another client has emptied."""
        self.show(old, self.with_version(msgspec.structs.replace(old, status=ServiceStatus())))

    def delete(self, old: Object) -> None:
        """The same for an object that is gone."""
        self.show(old, None)

    def change(self, new: Object, luck: random.Random) -> None:
        """Edit an object into *new*, or delete it, or empty its status."""
        old = self.stored(new)
        if old is not None and luck.random() < 0.2 and not isinstance(new, Namespace):
            self.delete(old)
        elif isinstance(old, Service) and luck.random() < 0.1:
            self.empty_status(old)
        else:
            self.edit(new)

    def with_version(self, obj: Any) -> Any:
        """*obj* with the next resourceVersion."""
        self._version += 1
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self._version))
        return msgspec.structs.replace(obj, metadata=metadata)

    def show(self, old: Object | None, new: Object | None) -> None:
        """Enter a change in the Snapshot."""
        if new is not None:
            self.snapshot.put(new)
        elif old is not None:
            self.snapshot.drop(KINDS[type(old)], old.metadata.key)
        self._follow(old, new)

    def _follow(self, old: Object | None, new: Object | None) -> None:
        changed = new or old
        sent = self.pending.pop_sent(changed.metadata.key) if isinstance(changed, Service) else None
        self.snapshot.ledger.cooldown.start(self.now)
        self.queue.update(dict.fromkeys(enqueue.of(self.snapshot, old, new, sent=sent)))

    def _put(self, obj: Any, kind: type, join: Any, write: StatusPatch) -> None:
        self.pending.send(write)
        super()._put(obj, kind, join, write)
        store: Any = {KeyKind.SERVICE: self.snapshot.services, KeyKind.POOL: self.snapshot.pools}.get(write.kind)
        groups = {**self.snapshot.groups, **self.snapshot.outside}
        self._follow(obj, (groups if store is None else store)[write.key])

    def _apply(self, write: Apply) -> None:
        super()._apply(write)
        self.queue[Key(KeyKind.GROUP, write.key)] = None
        for before, after in self.changes:  # of what objects in deletion hold
            self.queue.update(dict.fromkeys(enqueue.of(self.snapshot, before, after)))

    def service(self, key: str) -> ServicePlan:
        """Plan the Service *key*, record what it waits for, and carry the plan out."""
        plan = self.plan_service(key)
        if (service := self.snapshot.services.get(key)) is not None:
            record_waits(self.snapshot, service, plan)
            waiting = self.snapshot.ledger.drain_requeues()
            self.queue.update(dict.fromkeys(Key(KeyKind.SERVICE, each) for each in waiting))
        self._carry_out(plan)
        return plan

    def drain(self, most: int = 2_000) -> None:
        """Reconcile *most* of the enqueued keys, and of those that these enqueue."""
        for _ in range(most):
            if not self.queue:
                return
            key = next(iter(self.queue))
            del self.queue[key]
            plan = self.work(key)
            self._record(key, plan)
        assert most < 2_000, f"the queue is never empty: {list(self.queue)}"

    def _record(self, key: Key, plan: Plan) -> None:
        """What the worker does with a plan, besides its writes."""
        self.queue.update(dict.fromkeys(plan.also))
        if isinstance(plan, GroupPlan):
            self.queue.update(dict.fromkeys(plan.also_low_priority))


def missed(found: EnqueuingCluster) -> dict[Key, tuple[Write, ...]]:
    """
    The writes of keys that nothing has enqueued. The clock stands still, so none of them waits for its time.

    Why a Service lacks an address may be outdated, for only what helps it enqueues it
    (:mod:`kavip.ipam.ledger.waiters`); so may a message.
    """
    plans = {key: found.plan(key) for key in enqueue.everything(found.snapshot)}
    return {key: plan.writes for key, plan in plans.items() if plan.writes and not _says_only_why(plan)}


def _says_only_why(plan: Plan) -> bool:
    """Whether the plan of a Service changes nothing but a message, or why it lacks an address."""
    if not isinstance(plan, ServicePlan):
        return False
    (status,) = (write.body["status"] for write in plan.writes if isinstance(write, StatusPatch))
    states = {(each["type"], each.get("status")) for each in status.get("conditions", ())}
    return plan.is_rewording or ("loadBalancer" not in status and states == {(ConditionType.ADDRESS_ASSIGNED, "False")})


# --- edits ------------------------------------------------------------------------------------------------------------
def service(luck: random.Random, key: str) -> Service:
    """A Service as users may write it."""
    kind = luck.choice(("LoadBalancer", "LoadBalancer", "LoadBalancer", "ClusterIP"))
    more: dict[str, Any] = {}
    if kind == "ClusterIP" and luck.random() < 0.7:
        more["external_ips"] = [f"198.51.100.{luck.randint(1, 3)}"]
    if luck.random() < 0.2:
        more["load_balancer_class"] = luck.choice((names.LOAD_BALANCER_CLASS, "example.com/other"))
    notes = {
        names.SPREAD_ANNOTATION: "true" if luck.random() < 0.1 else "",
        names.REASSIGN_ANNOTATION: "true" if luck.random() < 0.1 else "",
        names.SHARING_KEY_ANNOTATION: "k" if luck.random() < 0.1 else "",
    }
    if luck.random() < 0.1:
        more["external_traffic_policy"] = "Local"
    found = build.service(
        key,
        type=kind,
        group=luck.choice((*GROUPS, "", "lb/absent")),
        pool=luck.choice(("", "", "", *POOLS, "p3")),
        wants=luck.choice(("", "", "", "192.0.2.129", "192.0.2.140")),
        families=luck.choice((("IPv4",), ("IPv4",), ("IPv6",), ("IPv4", "IPv6"))),
        annotations={name: value for name, value in notes.items() if value},
        created=f"2026-01-{luck.randint(1, 9):02}T00:00:00Z",
        **more,
    )
    return build.in_deletion(found) if luck.random() < 0.05 else found


def group(luck: random.Random, key: str) -> KeepalivedGroup:
    """A group as administrators may write it."""
    more: dict[str, Any] = {}
    if luck.random() < 0.3:
        more["allowed_namespaces"] = PROD
    if luck.random() < 0.3:
        more["instances"] = Instances(mode="Shared", count=luck.randint(1, 3))
    if luck.random() < 0.2:
        more["virtual_ips"] = [GroupVirtualIP(address=f"192.0.2.{luck.randint(128, 131)}/24")]
    if luck.random() < 0.3:
        more["segment"] = "s"
    if luck.random() < 0.3:
        more["blacklist_router_ids"] = list(range(luck.randint(1, 3), luck.randint(250, 256)))
    if luck.random() < 0.2:
        more["unicast_enabled"] = True
    found = build.group(key, default=luck.random() < 0.3, **more)
    return build.in_deletion(found) if luck.random() < 0.05 else found


def pool(luck: random.Random, name: str) -> VIPPool:
    """A pool as administrators may write it."""
    ranges = luck.choice(
        (["192.0.2.128/31"], ["192.0.2.128/30"], ["192.0.2.132/31", "2001:db8::/127"], ["192.0.2.140"])
    )
    more: dict[str, Any] = {"cooldown_seconds": 0}
    if luck.random() < 0.2:
        more["auto_assign"] = False
    if luck.random() < 0.2:
        more["priority"] = luck.randint(0, 3)
    if luck.random() < 0.2:
        more["groups"] = [luck.choice(GROUPS)]
    if luck.random() < 0.2:
        more["namespace_selector"] = PROD
    if luck.random() < 0.2:
        more["max_per_namespace"] = 1
    if luck.random() < 0.2:
        more["exclude"] = ["192.0.2.128"]
    if luck.random() < 0.2:
        more["interface"] = luck.choice(("vlan1", "vlan2"))
        if luck.random() < 0.5:
            more["routing"] = PoolRouting(gateway="192.0.2.250", table=luck.choice((100, 101)))
    if luck.random() < 0.2:
        more["conflict_detection"] = names.OFF
    return build.pool(name, *ranges, **more)


def edited(luck: random.Random) -> Object:
    """A version of some object."""
    match luck.randrange(12):
        case 0 | 1 | 2 | 3 | 4:
            return service(luck, f"{luck.choice(SPACES)}/s{luck.randint(1, 3)}")
        case 5 | 6:
            return group(luck, luck.choice(GROUPS))
        case 7:
            return pool(luck, luck.choice(POOLS))
        case 8:
            return build.namespace(luck.choice(SPACES), env=luck.choice(("prod", "test")))
        case 9:
            return luck.choice(
                (
                    build.service_range(luck.choice(("10.96.0.0/12", "192.0.2.128/31", "2001:db8::/112"))),
                    build.network(*luck.choice(((), ("198.51.100.0/24",)))),
                    build.network(rejected_cidrs=["192.0.2.128/31"]),
                    build.endpoints(f"{luck.choice(SPACES)}/s{luck.randint(1, 3)}", luck.choice(("n1", "n2"))),
                    build.endpoints(names.API_SERVER_SERVICE, addresses=[luck.choice(("192.0.2.129", "192.0.2.9"))]),
                )
            )
        case _:
            place = luck.choice(("192.0.2.12", "192.0.2.129", "198.51.100.1"))
            node = build.node(luck.choice(("n2", "n3")), place, pod_cidrs=luck.choice(((), ("192.0.2.128/30",))))
            return build.not_ready(node) if luck.random() < 0.3 else node


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_key_that_has_work_to_do_is_left_out(seed: int) -> None:
    """After each edit, once the queue is empty, the plans of all other keys are empty too."""
    luck = random.Random(seed)
    found = EnqueuingCluster(group(luck, GROUPS[0]), pool(luck, POOLS[0]))
    found.drain()
    for step in range(EDITS):
        new = edited(luck)
        found.change(new, luck)
        if luck.random() < 0.3:
            continue  # several changes before the first reconcile
        found.drain()
        assert not missed(found), (step, new)


def test_a_service_that_loses_its_address_gets_one_in_the_group_that_serves_it_from_now_on() -> None:
    """A Service that names no group keeps the group that kavip chose only with an address."""
    found = EnqueuingCluster(build.group("lb/edge", default=True), build.pool("p1"), build.service("shop/web"))
    found.drain()
    (first,) = found.snapshot.services["shop/web"].ingress_addresses
    found.edit(build.group("lb/other"))
    found.edit(build.pool("p1", groups=["lb/other"]))
    found.edit(build.group("lb/edge", virtual_ips=[GroupVirtualIP(address=f"{first}/24")]))
    found.edit(build.group("lb/other", default=True))
    found.drain()
    assert not missed(found)
    (second,) = found.snapshot.services["shop/web"].ingress_addresses
    assert second != first and found.snapshot.group_of(found.snapshot.services["shop/web"]) == "lb/other"
