"""A changed ``kavip.io/address-count``: a Service grows, shrinks, and takes addresses that are freed."""

import msgspec

from kavip import names
from kavip.api.meta import Condition
from kavip.ipam.record import Record
from kavip.names import Reason
from tests.ipam.deciding import PREFER, REASSIGN, assigned_addresses, ours, outcome, with_reason
from tests.ipam.simulatedcontroller import SimulatedController
from tests.ipam.test_count import SMALL, addresses, counted
from tests.support.build import service


# --- growing and shrinking --------------------------------------------------------------------------------------------
def test_growing_adds_and_shrinking_takes_the_last() -> None:
    """Addresses that stay keep their place in the status."""
    simulation = SimulatedController([SMALL])
    for number, expected in (
        (1, ["192.0.2.0"]),
        (3, ["192.0.2.0", "192.0.2.1", "192.0.2.2"]),
        (2, ["192.0.2.0", "192.0.2.1"]),
        (4, ["192.0.2.0", "192.0.2.1", "192.0.2.2", "192.0.2.3"]),
    ):
        simulation.apply(counted(number))
        simulation.run()
        assert simulation.held("a/web") == expected
    simulation.apply(service("a/web"))
    simulation.run()
    assert simulation.held("a/web") == ["192.0.2.0"]
    assert simulation.outcomes["a/web"].message == "192.0.2.0 from pool edge"


def test_shrinking_keeps_the_addresses_that_are_named() -> None:
    """The last ones that are not named go first."""
    holds = ["192.0.2.0", "192.0.2.1", "192.0.2.2", "2001:db8::", "2001:db8::1", "2001:db8::2"]
    shrunk = counted(1, holds=holds, **PREFER, wants="192.0.2.2")
    assert assigned_addresses(shrunk, pools=(SMALL,)) == ["192.0.2.2", "2001:db8::"]
    named = counted(2, holds=holds, **PREFER, wants="192.0.2.2")
    assert assigned_addresses(named, pools=(SMALL,)) == ["192.0.2.0", "192.0.2.2", "2001:db8::", "2001:db8::1"]


def test_naming_a_new_address_replaces_the_last_one() -> None:
    """The number stays the same."""
    found = counted(2, holds=["192.0.2.0", "192.0.2.1"], wants="192.0.2.3")
    assert assigned_addresses(found, pools=(SMALL,)) == ["192.0.2.0", "192.0.2.3"]


def test_a_number_that_cannot_be_read_takes_nothing() -> None:
    """The Service keeps what it has, and the record stays until the number is valid or removed."""
    holds = ["192.0.2.0", "192.0.2.1"]
    given = counted(2, holds=holds)
    condition = Condition(
        type=names.ConditionType.ADDRESS_ASSIGNED,
        status="True",
        reason="Assigned",
        message="192.0.2.0 and 192.0.2.1 from pool edge (kavip.io/address-count: 2)",
    )
    status = msgspec.structs.replace(given.status, conditions=[condition])
    broken = msgspec.structs.replace(counted("many", holds=holds), status=status)
    found = outcome(broken, pools=(SMALL,))
    assert (found.reason, addresses(found)) == (Reason.INVALID_REQUEST, holds)
    assert Record(found.reason, found.message).number == 2
    removed = msgspec.structs.replace(service("a/web", holds=holds), status=status)
    assert assigned_addresses(removed, pools=(SMALL,)) == ["192.0.2.0"]


def test_a_number_that_is_removed_with_a_bad_wish_is_forgotten_later() -> None:
    """The Service keeps its addresses while the wish is invalid, and loses the surplus when it is not."""
    simulation = SimulatedController([SMALL])
    for wish in (counted(2), service("a/web", wants="192.0.2.3,192.0.2.2")):
        simulation.apply(wish)
        simulation.run()
        assert simulation.held("a/web") == ["192.0.2.0", "192.0.2.1"]
    simulation.apply(service("a/web"))
    simulation.run()
    assert simulation.held("a/web") == ["192.0.2.0"]


def test_several_addresses_of_another_controller_stay_without_a_number() -> None:
    """As in earlier releases; a number takes the surplus of what kavip has adopted, and adopts no surplus itself."""
    holds = ["192.0.2.0", "192.0.2.1", "192.0.2.2"]
    assert assigned_addresses(ours("a/web", holds), pools=(SMALL,)) == holds
    assert assigned_addresses(counted(2, holds=holds), pools=(SMALL,)) == holds[:2]
    foreign = service("a/web", holds=holds, annotations={names.COUNT_ANNOTATION: "2"})
    found = outcome(foreign, pools=(SMALL,))
    assert (found.reason, addresses(found)) == (Reason.FOREIGN_STATUS, holds)
    assert "192.0.2.2 would be too many (kavip.io/address-count)" in found.message
    assert assigned_addresses(service("a/web", holds=holds), pools=(SMALL,)) == holds


# --- stranded, reassigned, lost ---------------------------------------------------------------------------------------
def test_a_stranded_service_grows_only_where_it_is_served() -> None:
    """Outside every pool there is nowhere to grow to; reassign moves all."""
    holds = ["203.0.113.1", "203.0.113.2"]
    found = outcome(counted(3, holds=holds), pools=(SMALL,))
    assert (found.reason, addresses(found)) == (Reason.STRANDED, holds)
    assert "203.0.113.1 and 203.0.113.2 is in no pool that more addresses could come from" in found.message
    moved = assigned_addresses(counted(3, holds=holds, annotations=REASSIGN), pools=(SMALL,))
    assert moved == ["192.0.2.0", "192.0.2.1", "192.0.2.2"]


def test_a_stranded_service_shrinks() -> None:
    """Fewer addresses need no pool."""
    found = outcome(counted(1, holds=["203.0.113.1", "203.0.113.2"]), pools=(SMALL,))
    assert (found.reason, addresses(found)) == (Reason.STRANDED, ["203.0.113.1"])


def test_addresses_that_another_controller_removes_come_back() -> None:
    """All that the record names, up to the number."""
    given = with_reason(counted(3), Reason.ASSIGNED, message="192.0.2.3, 192.0.2.1, 192.0.2.2 from pool edge")
    assert assigned_addresses(given, pools=(SMALL,)) == ["192.0.2.3", "192.0.2.1", "192.0.2.2"]
    fewer = with_reason(counted(2), Reason.ASSIGNED, message="192.0.2.3, 192.0.2.1, 192.0.2.2 from pool edge")
    assert assigned_addresses(fewer, pools=(SMALL,)) == ["192.0.2.3", "192.0.2.1"]


# --- waiting ----------------------------------------------------------------------------------------------------------
def test_a_service_grows_when_an_address_is_freed() -> None:
    """One freed address wakes it, and it takes that one."""
    simulation = SimulatedController([SMALL])
    for key in ("a/1", "a/2"):
        simulation.apply(service(key, created="2025-01-01T00:00:00Z"))
    simulation.run()
    simulation.apply(counted(4))
    simulation.run()
    assert simulation.held("a/web") == ["192.0.2.2", "192.0.2.3"]
    simulation.delete("a/1")
    simulation.run()
    assert simulation.held("a/web") == ["192.0.2.2", "192.0.2.3", "192.0.2.0"]
    simulation.delete("a/2")
    simulation.run()
    assert simulation.held("a/web") == ["192.0.2.2", "192.0.2.3", "192.0.2.0", "192.0.2.1"]
    assert simulation.outcomes["a/web"].reason is Reason.ASSIGNED
