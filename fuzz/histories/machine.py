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

from fuzz.histories import line, tale, users
from fuzz.histories.judge import Judge
from fuzz.histories.line import Fate, Request
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
from kavip.snapshot import KINDS
from tests.support import build

COUNTS: Counter[str] = Counter()
"""Counts of this process: histories, steps, writes, idle checks."""

WATCHED = sorted(KINDS.values())
CALM = 12
"""The fewest steps between two idle checks, so that faults can accumulate."""


class Histories(RuleBasedStateMachine):
    """One history."""

    def __init__(self) -> None:
        """A cluster with three pools, one group, and a controller that leads."""
        super().__init__()
        COUNTS["histories"] += 1
        self.loop = Loop()
        self.server = Server()
        self.judge = Judge(self.server)
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
            self.judge.pool(pool)
        self.steps = 0  # since the last idle check
        self.story: list[str] = []
        self.leader = self._new()
        self.standby = self._new()
        self.leader.lead()

    def tell(self, *what: object) -> None:
        """Record an event for the report of a finding."""
        self.story.append(" ".join(map(str, what)))

    def _new(self) -> Replica:
        self.born += 1
        return Replica(self.server, self.loop, f"replica {self.born}")

    def teardown(self) -> None:
        """Every history must reach an idle state."""
        try:
            self.rest()
        except AssertionError as error:
            error.add_note("\n".join(self.story))
            raise
        finally:
            COUNTS["writes"] += len(self.server.writes)
            COUNTS["stale"] += self.judge.stale
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
            self.tell("pool", tale.of(wire))
        for key in users.KEYS[:count]:
            self.apply(data, key)
        self.leader.line.deliver_all()
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
            self.tell("create", tale.of(self.server.services[key]))
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
        self.tell("edit", tale.of(self.server.services[new.key]))
        self.judge.edited(old, self.server.services[new.key])

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
        self.tell("delete", tale.of(found))
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
            self.tell("drop pool", name)
            self.server.drop(names.VIP_POOL, name)
            return
        self.made += 1
        self.server.put(new := data.draw(users.pools(name, self.made)))
        self.judge.pool(new)
        self.tell("pool", tale.of(new))

    @rule(space=st.sampled_from(users.SPACES))
    def relabel(self, space: str) -> None:
        """A namespace changes its label from prod to test, or back."""
        old = self.server.objects[names.NAMESPACE][space].metadata.label("env")
        self.server.put(new := build.namespace(space, env="test" if old == "prod" else "prod"))
        self.tell("put", tale.of(new))

    @rule(new=st.one_of(users.node(), users.group()), stays=st.integers(0, 4))
    def surroundings(self, new: Any, stays: int) -> None:
        """A node or a group gets different addresses, or is deleted."""
        kind, key = KINDS[type(new)], new.metadata.key
        if not stays:
            if key in self.server.objects[kind]:
                self.tell("drop", kind, key)
                self.server.drop(kind, key)
        else:
            self.tell("put", tale.of(new))
            self.server.put(new)
            self._owned()
        if kind == names.KEEPALIVED_GROUP:
            self.judge.free()

    def _owned(self) -> None:
        """A Service may lose an address that a node or a group has itself."""
        for kind in (names.NODE, names.KEEPALIVED_GROUP):
            for each in self.server.objects[kind].values():
                self.judge.contested |= users.own(each)

    @precondition(lambda self: self.server.services)
    @rule(data=st.data(), address=st.sampled_from((*users.ADDRESSES, users.OUTSIDE)), ours=st.booleans())
    def intrude(self, data: st.DataObject, address: str, ours: bool) -> None:
        """Another controller, or a kavip that lost its lease, writes an address into a status."""
        found = self.server.services[data.draw(st.sampled_from(sorted(self.server.services)))]
        if not found.is_load_balancer:
            return
        told = Condition(
            type=names.ConditionType.ADDRESS_ASSIGNED,
            status="True",
            reason=Reason.ASSIGNED,
            message=write_assigned((parse_address(address),), "old"),
            last_transition_time="2026-01-01T00:00:00Z",
        )
        status = ServiceStatus(
            load_balancer=LoadBalancer(ingress=[Ingress(ip=address, ip_mode=names.IP_MODE_VIP)]),
            conditions=[told] if ours else found.status.conditions,
        )
        if status != found.status:
            self.server.overwrite(msgspec.structs.replace(found, status=status))
        self.tell("intrude", tale.of(self.server.services[found.key]))
        self.judge.intruded(found.key)

    # --- watches ------------------------------------------------------------------------------------------------------
    @rule(data=st.data(), count=st.integers(1, 4))
    def deliver_more(self, data: st.DataObject, count: int) -> None:
        """As :meth:`deliver`."""
        self.deliver(data, count)

    @rule(data=st.data(), count=st.integers(1, 4))
    def deliver(self, data: st.DataObject, count: int) -> None:
        """A watch delivers a few events, of any kind, to any replica."""
        found = [(each, kind) for each in (self.leader, self.leader, self.standby) for kind in each.line.backlog()]
        if found:
            replica, kind = data.draw(st.sampled_from(found))
            self.tell("deliver", count, kind, "to", replica.name)
            replica.line.deliver(kind, count)

    @rule(kind=st.sampled_from(WATCHED), fault=st.sampled_from((line.BROKEN, line.EXPIRED)), rewind=st.integers(0, 3))
    def disturb(self, kind: str, fault: Any, rewind: int) -> None:
        """A watch breaks and repeats events, or expires so that the informer must LIST."""
        self.tell("disturb", kind, fault, rewind)
        self.leader.line.disturb(kind, fault, rewind=rewind)

    @rule()
    def proceed(self) -> None:
        """Deliver all events and answer all writes, three times."""
        self.tell("proceed")
        for _ in range(3):
            self.leader.line.deliver_all()
            self.loop.spin()
            for request in list(self.leader.line.requests):
                self.leader.line.settle(request, Fate.DONE)
            self.loop.spin()

    # --- writes -------------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.leader.line.requests)
    @rule(data=st.data(), fate=st.sampled_from((Fate.DONE, Fate.DONE, *Fate)))
    def answer(self, data: st.DataObject, fate: Fate) -> None:
        """A write ends with a result."""
        requests = self.leader.line.requests
        request = requests[data.draw(st.integers(0, len(requests) - 1))]
        self.tell("answer", request.by, tale.asked(request.key, request.body), fate)
        self.leader.line.settle(request, fate)

    @precondition(lambda self: self.leader.line.requests)
    @rule(data=st.data(), fate=st.sampled_from((Fate.DONE, Fate.DONE, *Fate)))
    def answer_more(self, data: st.DataObject, fate: Fate) -> None:
        """As :meth:`answer`."""
        self.answer(data, fate)

    @precondition(lambda self: self.leader.line.requests)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """A write succeeds, but its response is lost; the writes that follow succeed."""
        self.answer(data, Fate.LOST)
        self.loop.spin()
        for request in list(self.leader.line.requests):
            self.tell("answer", request.by, tale.asked(request.key, request.body), Fate.DONE)
            self.leader.line.settle(request, Fate.DONE)

    @precondition(lambda self: self.leader.line.adrift)
    @rule()
    def arrive(self) -> None:
        """The server processes a write that the leader has given up."""
        self.leader.line.perform(request := self.leader.line.adrift.pop(0))
        self.tell("arrive", tale.asked(request.key, request.body), isinstance(request.answer, ApiError))

    @precondition(lambda self: self.adrift)
    @rule()
    def haunt(self) -> None:
        """The server processes a write of a former replica."""
        self.leader.line.perform(request := self.adrift.pop(0))
        self.tell("haunt", tale.asked(request.key, request.body), isinstance(request.answer, ApiError))
        self.judge.intruded(request.key)

    # --- replicas -----------------------------------------------------------------------------------------------------
    @rule(dies=st.booleans())
    def change(self, dies: bool) -> None:
        """Another replica becomes the leader; writes of the old one may still be open."""
        old, new = self.leader, self.standby
        self.tell("change, the old one dies" if dies else "change")
        if dies:
            old.die()
            self.adrift += old.line.cut()
            self.leader, self.standby = new, self._new()
        else:
            old.resign()
            self.adrift += old.line.cut()
            self.leader, self.standby = new, old
        self.leader.lead()

    @rule(seconds=st.sampled_from((0.1, 1.0, 5.0)))
    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.loop.skip(seconds)

    # --- invariants ---------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.steps >= CALM)
    @rule()
    def rest(self) -> None:
        """Deliver all events and answer all writes until the controller is idle, then check it."""
        self.steps = 0
        COUNTS["rests"] += 1
        self.tell("rest")
        self.adrift.clear()
        for _ in range(500):
            self.loop.spin()
            self.leader.line.deliver_all()
            for request in list(self.leader.line.requests):
                self.tell("  done", tale.asked(request.key, request.body))
                self.leader.line.settle(request, Fate.DONE)
            self.judge.writes(self.leader.now)
            if (
                self.leader.leads
                and not self.leader.line.requests
                and not self.leader.line.backlog()
                and self._is_idle()
            ):
                break
        else:
            raise AssertionError("the controller does not become idle")
        self.leader.check()
        self.judge.late(self.leader.line.adrift)
        self.leader.line.adrift.clear()
        self.judge.rest(self.leader.caches.snapshot, self.leader.now, random.Random(self.server.version))

    def _is_idle(self) -> bool:
        """Let the back-offs expire; whether no write and no error follows."""
        writes, version = len(self.leader.line.requests), self.server.version
        self.loop.skip(3.0)
        troubled = any(each.current_error for each in self.leader.caches.informers)
        return not troubled and (writes, version) == (len(self.leader.line.requests), self.server.version)

    @invariant()
    def always(self) -> None:
        """Check the invariants after every step."""
        COUNTS["steps"] += 1
        self.steps += 1
        self.loop.spin()
        self.judge.writes(self.leader.now)
        self.leader.check()
        assert not (forgotten := self.leader.forgotten()), f"forgotten: {forgotten}"
        assert not self.loop.faults, self.loop.faults
