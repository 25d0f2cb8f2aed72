"""Random histories: no address has two holders, moves without cause, or stays free while a Service waits for it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kavip import names
from kavip.api.address import Address, parse_address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation
from kavip.ipam.ledger.sharing import can_share
from kavip.ipam.request import read_request
from kavip.names import Reason
from tests.ipam.simulatedcontroller import SimulatedController, WriteResult, entered
from tests.support.build import pool, service

pytestmark = pytest.mark.slow

KEYS = st.sampled_from([f"{namespace}/{name}" for namespace in ("a", "b") for name in ("p", "q", "r", "s")])
POOLS = (
    pool("dual", "192.0.2.0/31", "2001:db8::/127"),
    pool("four", "198.51.100.0-198.51.100.2", priority=200, max_per_namespace=2),
    pool("named", "203.0.113.0/31", auto_assign=False),
)
WIDER = (pool("dual", "192.0.2.0/30", "2001:db8::/126"), *POOLS[1:])
STACKS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"families": ("IPv4",), "ip_family_policy": "SingleStack"},
        {"families": ("IPv6",), "ip_family_policy": "SingleStack"},
        {"families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"},
        {"families": ("IPv6", "IPv4"), "ip_family_policy": "RequireDualStack"},
    ]
)
WISHES = st.sampled_from(
    ["", "", "", "192.0.2.1", "192.0.2.0, 2001:db8::1", "192.0.2.1, 192.0.2.2", "203.0.113.1", "not an address"]
)
NUMBERS = st.sampled_from(["", "", "", "2", "3", "many"])
NAMED = st.sampled_from(["", "", "", "four", "named", "gone"])


@st.composite
def services(draw: st.DrawFn, key: str | None = None) -> Service:
    """A Service with random requests."""
    notes = {names.SHARING_KEY_ANNOTATION: draw(st.sampled_from(["", "", "web"]))}
    notes[names.COUNT_ANNOTATION] = draw(NUMBERS)
    return service(
        key or draw(KEYS),
        pool=draw(NAMED),
        wants=draw(WISHES),
        port=draw(st.sampled_from([80, 443])),
        annotations={key: value for key, value in notes.items() if value} or None,
        created=f"2026-01-01T00:00:0{draw(st.integers(0, 9))}Z",
        **draw(STACKS),
    )


class Histories(RuleBasedStateMachine):
    """Users, an API server, a lagging cache and a controller that is restarted, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = SimulatedController(POOLS)
        self.edited: set[str] = set()
        self.judged = 0

    @rule(new=services())
    def apply(self, new: Service) -> None:
        """A user creates or edits a Service."""
        if new.key in self.simulation.services:
            self.edited.add(new.key)
        self.simulation.apply(new)

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        """A user deletes a Service."""
        self.edited.discard(key)
        self.simulation.delete(key)

    @precondition(lambda self: self.simulation.unseen)
    @rule(data=st.data())
    def see(self, data: st.DataObject) -> None:
        """The watch delivers one change, in any order between Services."""
        self.simulation.see(data.draw(st.sampled_from(self.simulation.unseen)))

    @precondition(lambda self: self.simulation.todo)
    @rule(data=st.data(), result=st.sampled_from(WriteResult))
    def work(self, data: st.DataObject, result: WriteResult) -> None:
        """A worker takes a key; its write is done, lost or refused."""
        self.simulation.work(data.draw(st.sampled_from(sorted(self.simulation.todo))), result)

    @precondition(lambda self: self.simulation.cache)
    @rule(data=st.data())
    def work_without_cause(self, data: st.DataObject) -> None:
        """A worker plans a Service again, from a copy that may be stale."""
        self.simulation.work(data.draw(st.sampled_from(sorted(self.simulation.cache))))

    @rule()
    def restart(self) -> None:
        """Another controller takes over."""
        self.simulation.restart()

    @rule(wide=st.booleans())
    def edit_pools(self, wide: bool) -> None:
        """An administrator grows a pool, or shrinks it under its holders."""
        self.simulation.set_pools(WIDER if wide else POOLS)

    @rule()
    def finish(self) -> None:
        """Deliver all events and finish all work: no Service waits for a free address, and no plan has a write."""
        self.simulation.run()
        fresh = entered(self.simulation.pools, self.simulation.services.values())
        for each in self.simulation.services.values():
            outcome = self.simulation.settled(each, fresh)
            addresses = () if isinstance(outcome, Refusal) else outcome.addresses
            assert addresses == each.ingress_addresses, f"{each.key} has {each.ingress_addresses}, could have {outcome}"
            self.has_what_it_requests(each, outcome)
        self.never_moved()
        self.edited.clear()
        self.never_two()
        with_reason = self.simulation.outcomes
        # a request that is not served yet may be served at any time, and move its Service
        self.edited = {key for key, each in with_reason.items() if isinstance(each, Allocation) and each.refusal}
        for grown in self.simulation.pools.in_force:
            assert self.simulation.ledger.usage(grown.name) == fresh.usage(grown.name)

    def has_what_it_requests(self, found: Service, outcome: Allocation | Refusal) -> None:
        """A Service has the number that it requests, or the condition says why not; never more."""
        request, findings = read_request(found)
        held = found.ingress_addresses
        if findings or not held or outcome.reason is Reason.FOREIGN_STATUS:
            return
        numbers = [sum(address.family == family for address in held) for family in request.families]
        assert max(numbers) <= max(request.number, min(request.most, len(held)))
        is_whole = all(number >= request.number for number in numbers)
        is_enough = is_whole or (not request.require_all and max(numbers) >= request.number)
        is_refused = isinstance(outcome, Refusal) or outcome.refusal is not None
        assert is_enough or is_refused, (numbers, outcome)

    @invariant()
    def never_two(self) -> None:
        """No address is in the status of two Services that do not share it."""
        holders: dict[Address, list[Service]] = {}
        for each in self.simulation.services.values():
            for address in each.ingress_addresses:
                holders.setdefault(address, []).append(each)
        for address, found in holders.items():
            terms = [read_request(each)[0].terms for each in found]
            clean = all(each.key not in self.edited for each in found)  # an edit may end the sharing of an address
            for at, one in enumerate(terms):
                for other in terms[at + 1 :]:
                    assert can_share(one, other) or not clean, f"{address}: {one.key} and {other.key}"

    @invariant()
    def never_too_many(self) -> None:
        """No write gives a Service an address twice, or more than 32."""
        for write in self.simulation.writes[self.judged :]:
            assert len(set(write.after)) == len(write.after) <= names.MAX_VIPS

    @invariant()
    def never_moved(self) -> None:
        """A write takes an address away only after an edit of that Service, or of one that shared the address."""
        for write in self.simulation.writes[self.judged :]:
            for address in set(write.before) - set(write.after):
                fellows = (each.key for each in self.simulation.services.values() if address in each.ingress_addresses)
                assert self.edited & {write.key, *fellows}, write
        self.judged = len(self.simulation.writes)


class Contests(Histories):
    """The same, with late writes of a former leader."""

    @precondition(lambda self: self.simulation.services)
    @rule(data=st.data(), address=st.sampled_from(["192.0.2.0", "192.0.2.1", "2001:db8::"]))
    def write_of_former_leader(self, data: st.DataObject, address: str) -> None:
        """A write of a former leader succeeds: two Services may hold one address until the leader sees it."""
        key = data.draw(st.sampled_from(sorted(self.simulation.services)))
        self.simulation.overwrite(key, parse_address(address))
        holders = (
            each.key for each in self.simulation.services.values() if parse_address(address) in each.ingress_addresses
        )
        self.edited |= {key, *holders}


PACE = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))

TestHistories = Histories.TestCase
TestHistories.settings = PACE
TestContests = Contests.TestCase
TestContests.settings = PACE
