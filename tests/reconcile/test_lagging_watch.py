"""
The keys that changes enqueue are enough, although watches lag: kinds arrive in any order, own writes late.

A write that is decided on an old version conflicts, and its key is tried again.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.errors import Conflict
from kavip.reconcile.plan import Key, KeyKind, Plan, ServicePlan, StatusPatch
from kavip.reconcile.service.allocation import record_waits
from kavip.snapshot import KINDS, Object
from tests.reconcile.test_completeness import GROUPS, POOLS, PROD, EnqueuingCluster, edited, group, missed, pool
from tests.support import build

HISTORIES, ROUNDS = 40, 60
KIND = {KeyKind.SERVICE: names.SERVICE, KeyKind.GROUP: names.KEEPALIVED_GROUP, KeyKind.POOL: names.VIP_POOL}


class LaggingCluster(EnqueuingCluster):
    """The same cluster behind watches: the Snapshot shows what is stored when :meth:`deliver` is called."""

    def __init__(self, *objects: Object) -> None:
        """Start with *objects* in the Snapshot."""
        super().__init__(*objects)
        everything: tuple[Any, ...] = (self.snapshot.groups, self.snapshot.pools, self.snapshot.nodes)
        self.server: dict[tuple[str, str], Any] = {
            (KINDS[type(each)], each.metadata.key): each for store in everything for each in store.values()
        }
        self.events = {kind: deque[tuple[str, Object | None]]() for kind in KINDS.values()}
        self.retried: dict[Key, None] = {}

    def stored(self, other: Object) -> Object | None:
        """The stored version of *other*, which the Snapshot may not show yet."""
        found: Object | None = self.server.get((KINDS[type(other)], other.metadata.key))
        return found

    def show(self, old: Object | None, new: Object | None) -> None:
        """Store a change; the watch shows it later."""
        changed = new or old
        assert changed is not None
        kind, key = KINDS[type(changed)], changed.metadata.key
        self.server.pop((kind, key), None)
        if new is not None:
            self.server[kind, key] = new
        self.events[kind].append((key, new))

    def deliver(self, kind: str) -> None:
        """Show the next change of *kind*."""
        key, new = self.events[kind].popleft()
        old = self.shown(kind, key)
        if new is not None or old is not None:
            super().show(old, new)

    def work(self, key: Key) -> Plan:
        """As the worker does it: a write waits until the watch has shown the last one of its object."""
        shown: Any = self.shown(KIND[key.kind], key.name)
        if shown is not None and self.pending.is_replaced(key, shown.metadata.resource_version):
            self.pending.requeue_on_return(key)
            return ServicePlan()
        self.pending.confirm(key)
        try:
            return super().work(key)
        except Conflict:
            self.retried[key] = None
            return ServicePlan()

    def service(self, key: str) -> ServicePlan:
        """Plan the Service *key*, expect what is written, and write."""
        ledger, plan = self.snapshot.ledger, self.plan_service(key)
        was_expecting = ledger.is_expecting(key)
        if (service := self.snapshot.services.get(key)) is None:
            return plan
        if plan.claims is not None:
            ledger.expect(key, plan.claims, resource_version=service.metadata.resource_version)
        record_waits(self.snapshot, service, plan)
        self._requeue_waiters()
        try:
            self._carry_out(plan)
        except Conflict:
            if plan.claims is not None and not was_expecting:
                ledger.abandon(key)
                self._requeue_waiters()
            raise
        return plan

    def _requeue_waiters(self) -> None:
        waiting = self.snapshot.ledger.drain_requeues()
        self.queue.update(dict.fromkeys(Key(KeyKind.SERVICE, each) for each in waiting))

    def _put(self, obj: Any, kind: type, join: Any, write: StatusPatch) -> None:
        self.pending.send(write)
        found = self.server.get((KIND[write.kind], write.key))
        if found is None or found.metadata.resource_version != obj.metadata.resource_version:
            raise Conflict(409, "Conflict", write.key)
        status: Any = msgspec.convert(join(msgspec.to_builtins(found.status), write.body["status"]), kind)
        new = msgspec.structs.replace(found, status=status)
        if status != found.status:
            new = self.with_version(new)
            self.show(found, new)
        self.pending.accept(write, new.metadata.resource_version)

    def settle_all(self) -> None:
        """Show everything that is stored, and reconcile until nothing follows."""
        for _ in range(100):
            for kind, events in self.events.items():
                while events:
                    self.deliver(kind)
            self.queue.update(self.retried)
            self.retried.clear()
            self.drain()
            if not (self.retried or any(self.events.values())):
                return
        raise AssertionError("the cluster never settles")


def choosing(luck: random.Random) -> Object:
    """A change of what decides which group serves a Service that names none."""
    match luck.randrange(6):
        case 0 | 1:
            return build.service(f"shop/s{luck.randint(1, 2)}", load_balancer_class=names.LOAD_BALANCER_CLASS)
        case 2 | 3:
            return build.namespace("shop", env=luck.choice(("prod", "test")))
        case _:
            allowed = PROD if luck.random() < 0.7 else None
            return build.group(luck.choice(GROUPS), default=luck.random() < 0.6, allowed_namespaces=allowed)


def step(found: LaggingCluster, luck: random.Random, change: Callable[[random.Random], Object]) -> None:
    """A change by a user, the delivery of some events, or the reconcile of some keys."""
    kinds = [kind for kind, events in found.events.items() if events]
    if kinds and luck.random() < 0.5:
        found.deliver(luck.choice(kinds))
        return
    if luck.random() < 0.5:
        found.queue.update(found.retried)
        found.retried.clear()
        found.drain(luck.randint(1, 4))
        return
    found.change(change(luck), luck)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("change", [edited, choosing])
def test_no_key_is_left_out_though_watches_lag(change: Callable[[random.Random], Object], seed: int) -> None:
    """Once all events are shown and the queue is empty, the plans of all keys are empty."""
    luck = random.Random(seed)
    found = LaggingCluster(group(luck, GROUPS[0]), build.pool("p3", "203.0.113.0/28"), pool(luck, POOLS[0]))
    found.settle_all()
    for _ in range(ROUNDS):
        for _ in range(luck.randint(1, 12)):
            step(found, luck, change)
        if luck.random() < 0.5:
            found.settle_all()
            assert not missed(found)
