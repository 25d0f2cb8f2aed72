"""
The state machine: users, an API server, lagging watches, failing writes, and controllers that start and end.

Only hypothesis chooses the events. After each event the loop runs everything that can run.
"""

import random
from collections import Counter
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fuzz.histories import describe, fakeclient, users
from fuzz.histories.fakeclient import Request, WriteResult
from fuzz.histories.invariants import InvariantChecker
from fuzz.histories.loop import Loop
from fuzz.histories.replica import Replica
from fuzz.histories.server import Server
from kavip import names
from kavip.api.address import parse_address
from kavip.api.meta import Condition
from kavip.api.service import Ingress, LoadBalancer, Service, ServiceStatus
from kavip.errors import ApiError
from kavip.ipam.record import write_assigned
from kavip.names import Reason
from kavip.reconcile.service.throttle import INTERVAL
from kavip.snapshot import KINDS
from tests.support import build

COUNTS: Counter[str] = Counter()
"""Counts of this process: histories, steps, writes, idle checks."""

WATCHED = sorted(KINDS.values())
MIN_STEPS = 12
"""The fewest steps between two idle checks, so that faults can accumulate."""


class Histories(RuleBasedStateMachine):
    """One history."""

    def __init__(self) -> None:
        """A cluster with three pools, one group, and a controller that leads."""
        super().__init__()
        COUNTS["histories"] += 1
        self.loop = Loop()
        self.server = Server()
        self.checker = InvariantChecker(self.server)
        self.adrift: list[Request] = []  # open writes of former replicas
        self.made = 0
        for each in (
            *users.FIRST,
            build.group(users.GROUP, node_selector={"none": "such"}),
            build.node("n1", "10.0.0.1", "198.51.100.1"),
            build.namespace("a", env="prod"),
            build.namespace("b", env="test"),
        ):
            self.server.put(each)
        self.born = 0
        for pool in users.FIRST:
            self.checker.pool_edited(pool)
        self.steps = 0  # since the last idle check
        self.events: list[str] = []
        self.leader = self._new()
        self.standby = self._new()
        self.leader.lead()

    def record(self, *what: object) -> None:
        """Record an event for the report of a finding."""
        self.events.append(" ".join(map(str, what)))

    def _new(self) -> Replica:
        self.born += 1
        return Replica(self.server, self.loop, f"replica {self.born}")

    def teardown(self) -> None:
        """Every history must reach an idle state."""
        try:
            self.become_idle()
        except AssertionError as error:
            error.add_note("\n".join(self.events))
            raise
        finally:
            COUNTS["writes"] += len(self.server.writes)
            COUNTS["stale"] += self.checker.stale
            for each in (self.leader, self.standby):
                each.die()
            self.loop.close()

    @initialize(data=st.data(), count=st.integers(0, 8), calm=st.booleans(), cools=st.booleans())
    def begin(self, data: st.DataObject, count: int, calm: bool, cools: bool) -> None:
        """Begin with *count* Services, already served if *calm*; with *cools*, a pool has a long cool-down."""
        if cools:
            wire = users.FIRST[0]
            wire = msgspec.structs.replace(wire, spec=msgspec.structs.replace(wire.spec, cooldown_seconds=600))
            self.server.put(wire)
            self.record("pool", describe.obj(wire))
        for key in users.KEYS[:count]:
            self.apply(data, key)
        self.leader.client.deliver_all()
        if calm:
            self.proceed()

    # --- users --------------------------------------------------------------------------------------------------------
    @rule(data=st.data(), key=st.sampled_from(users.KEYS))
    def apply_another(self, data: st.DataObject, key: str) -> None:
        """As :meth:`apply`, to make it the most frequent event."""
        self.apply(data, key)

    @rule(data=st.data(), key=st.sampled_from(users.KEYS))
    def apply_one_more(self, data: st.DataObject, key: str) -> None:
        """As :meth:`apply`."""
        self.apply(data, key)

    @rule(data=st.data(), key=st.sampled_from(users.KEYS))
    def apply(self, data: st.DataObject, key: str) -> None:
        """A user creates a Service, or edits a part of it."""
        old = self.server.services.get(key)
        if old is None:
            self.made += 1
            self.server.put(data.draw(users.services(key, self.made)))
            self.record("create", describe.obj(self.server.services[key]))
            return
        if old.metadata.deletion_timestamp:
            return
        facet = data.draw(st.sampled_from(users.FACETS))
        self._edit(old, users.edited(old, data.draw(users.services(key, self.made)), facet))

    def _edit(self, old: Service, new: Service) -> None:
        if not new.is_load_balancer and old.is_load_balancer:
            self._wipe(new)
        else:
            self.server.put(new)
        self.record("edit", describe.obj(self.server.services[new.key]))
        self.checker.service_edited(old, self.server.services[new.key])

    def _wipe(self, new: Service) -> None:
        """Clear the addresses of a Service that is no longer a LoadBalancer, as the API server does."""
        self.server.put(new)
        stored = self.server.services[new.key]
        status = msgspec.structs.replace(stored.status, load_balancer=LoadBalancer())
        if status != stored.status:
            self.server.overwrite(msgspec.structs.replace(stored, status=status))

    @precondition(lambda self: self.server.services)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        """A user deletes a Service; a finalizer may hold it."""
        key = data.draw(st.sampled_from(sorted(self.server.services)))
        found = self.server.services[key]
        self.record("delete", describe.obj(found))
        if not found.metadata.deletion_timestamp:
            self.server.drop(names.SERVICE, key)
            return
        bare = msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, finalizers=None))
        self.server.put(bare)
        self.server.drop(names.SERVICE, key)

    @rule(data=st.data(), name=st.sampled_from(users.POOLS))
    def pool(self, data: st.DataObject, name: str) -> None:
        """An administrator adds, edits or deletes a pool, also one with holders."""
        if name in self.server.objects[names.VIP_POOL] and data.draw(st.integers(0, 4)) == 0:
            self.record("drop pool", name)
            self.server.drop(names.VIP_POOL, name)
            return
        self.made += 1
        self.server.put(new := data.draw(users.pools(name, self.made)))
        self.checker.pool_edited(new)
        self.record("pool", describe.obj(new))

    @rule(space=st.sampled_from(users.SPACES))
    def relabel(self, space: str) -> None:
        """A namespace changes its label from prod to test, or back."""
        old = self.server.objects[names.NAMESPACE][space].metadata.label("env")
        self.server.put(new := build.namespace(space, env="test" if old == "prod" else "prod"))
        self.record("put", describe.obj(new))

    @rule(new=st.one_of(users.node(), users.group()), stays=st.integers(0, 4))
    def change_node_or_group(self, new: Any, stays: int) -> None:
        """A node or a group gets different addresses, or is deleted."""
        kind, key = KINDS[type(new)], new.metadata.key
        if not stays:
            if key in self.server.objects[kind]:
                self.record("drop", kind, key)
                self.server.drop(kind, key)
        else:
            self.record("put", describe.obj(new))
            self.server.put(new)
            self._owned()
        if kind == names.KEEPALIVED_GROUP:
            self.checker.default_group_changed()

    def _owned(self) -> None:
        """A Service may lose an address that a node or a group has itself."""
        for kind in (names.NODE, names.KEEPALIVED_GROUP):
            for each in self.server.objects[kind].values():
                self.checker.contested |= users.own(each)

    @precondition(lambda self: self.server.services)
    @rule(data=st.data(), address=st.sampled_from((*users.ADDRESSES, users.OUTSIDE)), ours=st.booleans())
    def other_writer(self, data: st.DataObject, address: str, ours: bool) -> None:
        """Another controller, or a kavip that lost its lease, writes an address into a status."""
        found = self.server.services[data.draw(st.sampled_from(sorted(self.server.services)))]
        if not found.is_load_balancer:
            return
        reported = Condition(
            type=names.ConditionType.ADDRESS_ASSIGNED,
            status="True",
            reason=Reason.ASSIGNED,
            message=write_assigned((parse_address(address),), "old"),
            last_transition_time="2026-01-01T00:00:00Z",
        )
        status = ServiceStatus(
            load_balancer=LoadBalancer(ingress=[Ingress(ip=address, ip_mode=names.IP_MODE_VIP)]),
            conditions=[reported] if ours else found.status.conditions,
        )
        if status != found.status:
            self.server.overwrite(msgspec.structs.replace(found, status=status))
        self.record("other_writer", describe.obj(self.server.services[found.key]))
        self.checker.status_overwritten(found.key)

    # --- watches ------------------------------------------------------------------------------------------------------
    @rule(data=st.data(), count=st.integers(1, 4))
    def deliver_more(self, data: st.DataObject, count: int) -> None:
        """As :meth:`deliver`."""
        self.deliver(data, count)

    @rule(data=st.data(), count=st.integers(1, 4))
    def deliver(self, data: st.DataObject, count: int) -> None:
        """A watch delivers a few events, of any kind, to any replica."""
        found = [(each, kind) for each in (self.leader, self.leader, self.standby) for kind in each.client.backlog()]
        if found:
            replica, kind = data.draw(st.sampled_from(found))
            self.record("deliver", count, kind, "to", replica.name)
            replica.client.deliver(kind, count)

    @rule(
        kind=st.sampled_from(WATCHED),
        fault=st.sampled_from((fakeclient.BROKEN, fakeclient.EXPIRED)),
        rewind=st.integers(0, 3),
    )
    def disturb(self, kind: str, fault: Any, rewind: int) -> None:
        """A watch breaks and repeats events, or expires so that the informer must LIST."""
        self.record("disturb", kind, fault, rewind)
        self.leader.client.disturb(kind, fault, rewind=rewind)

    @rule()
    def proceed(self) -> None:
        """Deliver all events and answer all writes, three times."""
        self.record("proceed")
        for _ in range(3):
            self.leader.client.deliver_all()
            self.loop.spin()
            for request in list(self.leader.client.requests):
                self.leader.client.finish(request, WriteResult.DONE)
            self.loop.spin()

    # --- writes -------------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.leader.client.requests)
    @rule(data=st.data(), result=st.sampled_from((WriteResult.DONE, WriteResult.DONE, *WriteResult)))
    def answer(self, data: st.DataObject, result: WriteResult) -> None:
        """A write ends with a result."""
        requests = self.leader.client.requests
        request = requests[data.draw(st.integers(0, len(requests) - 1))]
        self.record("answer", request.by, describe.patch(request.key, request.body), result)
        self.leader.client.finish(request, result)

    @precondition(lambda self: self.leader.client.requests)
    @rule(data=st.data(), result=st.sampled_from((WriteResult.DONE, WriteResult.DONE, *WriteResult)))
    def answer_more(self, data: st.DataObject, result: WriteResult) -> None:
        """As :meth:`answer`."""
        self.answer(data, result)

    @precondition(lambda self: self.leader.client.requests)
    @rule(data=st.data())
    def lose_response(self, data: st.DataObject) -> None:
        """A write succeeds, but its response is lost; the writes that follow succeed."""
        self.answer(data, WriteResult.LOST)
        self.loop.spin()
        for request in list(self.leader.client.requests):
            self.record("answer", request.by, describe.patch(request.key, request.body), WriteResult.DONE)
            self.leader.client.finish(request, WriteResult.DONE)

    @precondition(lambda self: self.leader.client.adrift)
    @rule()
    def late_write_arrives(self) -> None:
        """The server processes a write that the leader has given up."""
        self.leader.client.process(request := self.leader.client.adrift.pop(0))
        self.record(
            "late_write_arrives", describe.patch(request.key, request.body), isinstance(request.answer, ApiError)
        )

    @precondition(lambda self: self.adrift)
    @rule()
    def former_leader_write_arrives(self) -> None:
        """The server processes a write of a former replica."""
        self.leader.client.process(request := self.adrift.pop(0))
        self.record(
            "former_leader_write_arrives",
            describe.patch(request.key, request.body),
            isinstance(request.answer, ApiError),
        )
        self.checker.status_overwritten(request.key)

    # --- replicas -----------------------------------------------------------------------------------------------------
    @rule(dies=st.booleans())
    def change_leader(self, dies: bool) -> None:
        """Another replica becomes the leader; writes of the old one may still be open."""
        old, new = self.leader, self.standby
        self.record("change, the old one dies" if dies else "change")
        if dies:
            old.die()
            self.adrift += old.client.disconnect()
            self.leader, self.standby = new, self._new()
        else:
            old.resign()
            self.adrift += old.client.disconnect()
            self.leader, self.standby = new, old
        self.leader.lead()

    @rule(seconds=st.sampled_from((0.1, 1.0, 5.0)))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.loop.skip(seconds)

    # --- invariants ---------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.steps >= MIN_STEPS)
    @rule()
    def become_idle(self) -> None:
        """Deliver all events and answer all writes until the controller is idle, then check it."""
        self.steps = 0
        COUNTS["idle checks"] += 1
        self.record("idle")
        self.adrift.clear()
        for _ in range(500):
            self.loop.spin()
            self.leader.client.deliver_all()
            for request in list(self.leader.client.requests):
                self.record("  done", describe.patch(request.key, request.body))
                self.leader.client.finish(request, WriteResult.DONE)
            self.checker.check_writes(self.leader.now)
            if self.leader.leads and self._is_idle():
                break
        else:
            raise AssertionError("the controller does not become idle")
        self.leader.raise_errors()
        self.checker.check_open_writes(self.leader.client.adrift)
        self.leader.client.adrift.clear()
        self.checker.check_idle(self.leader.caches.snapshot, self.leader.now, random.Random(self.server.version))

    def _is_idle(self) -> bool:
        """Let the back-offs and the write budgets expire; whether no write, no event and no error follows."""
        client, end = self.leader.client, self.loop.time() + INTERVAL
        while not client.requests and not client.backlog():
            if self.loop.time() > end:
                return not any(each.current_error for each in self.leader.caches.informers)
            self.loop.skip(3.0)  # not longer: a write that is not answered meanwhile fails
        return False

    @invariant()
    def always(self) -> None:
        """Check the invariants after every step."""
        COUNTS["steps"] += 1
        self.steps += 1
        self.loop.spin()
        self.checker.check_writes(self.leader.now)
        self.leader.raise_errors()
        assert not (forgotten := self.leader.forgotten()), f"forgotten: {forgotten}"
        assert not self.loop.faults, self.loop.faults
