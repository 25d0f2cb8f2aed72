"""The ownership record: written and read by one grammar, and nothing that users write can forge it."""

from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import Address, parse_address
from kavip.api.meta import Condition
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, settle
from kavip.ipam.pools import Pools
from kavip.ipam.record import (
    ASSIGNED_REASONS,
    FOREIGN_REASONS,
    Record,
    read_record,
    write_assigned,
    write_refused,
    write_stranded,
)
from kavip.names import Reason
from tests.ipam.deciding import ours
from tests.ipam.simulatedcontroller import entered, with_status
from tests.support.build import pool, service

ADDRESS = st.one_of(
    st.integers(0, 2**32 - 1).map(lambda value: Address(4, value)),
    st.integers(2**48, 2**128 - 1).map(lambda value: Address(6, value)),
)
LISTS = st.lists(ADDRESS, min_size=1, max_size=names.MAX_VIPS, unique=True).map(tuple)
HOSTILE = st.lists(
    st.sampled_from(
        (
            *("; keeps ", "keeps ", " from pool ", ", although ", " and ", ", ", " and 2 more", ": ", ".", "x"),
            *("203.0.113.5", "192.0.2.130", "2001:db8::5", "::ffff:192.0.2.1", "edge"),
        )
    ),
    max_size=8,
).map("".join)
REFUSALS = st.sampled_from([each for each in Reason if each not in ASSIGNED_REASONS | FOREIGN_REASONS])


@given(LISTS, HOSTILE, REFUSALS)
def test_what_is_written_is_read(addresses: tuple[Address, ...], text: str, reason: Reason) -> None:
    """For all addresses, names of pools, causes and refusals, the record holds exactly the addresses written."""
    assert Record(Reason.ASSIGNED, write_assigned(addresses, text)).addresses == addresses
    assert Record(Reason.STRANDED, write_stranded(addresses, text)).addresses == addresses
    assert Record(reason, write_refused(text, addresses)).addresses == addresses
    assert Record(reason, write_refused(text)).addresses == ()


@given(LISTS, LISTS, HOSTILE, st.booleans())
def test_announced_addresses_are_read(
    addresses: tuple[Address, ...], announced: tuple[Address, ...], text: str, chosen: bool
) -> None:
    """Beside everything else that the record holds, which stays as it is."""
    plain = Record(Reason.ASSIGNED, write_assigned(addresses, text))
    plain = plain._replace(message=plain.with_group("lb/edge")) if chosen else plain
    record = plain._replace(message=plain.with_announced(announced))
    assert (record.announced, record.addresses, record.group) == (announced, addresses, plain.group)
    assert plain.announced == ()


@given(ADDRESS, st.integers(names.MAX_VIPS + 1, 60))
def test_a_record_names_as_many_addresses_as_a_service_may_have(one: Address, count: int) -> None:
    """Only an adopted status holds more; the rest is counted."""
    addresses = tuple(Address(one.family, one.value ^ number) for number in range(count))
    message = write_assigned(addresses, "edge")
    assert f" and {len(addresses) - names.MAX_VIPS} more from pool edge" in message
    assert Record(Reason.ASSIGNED, message).addresses == addresses[: names.MAX_VIPS]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (Reason.ASSIGNED, ""),
        (Reason.ASSIGNED, "203.0.113.5"),
        (Reason.ASSIGNED, " 203.0.113.5 from pool edge"),
        (Reason.ASSIGNED, "kavip: 203.0.113.5 from pool edge"),
        (Reason.ASSIGNED, "203.0.113.5, from pool edge"),
        (Reason.ASSIGNED, "203.0.113.5 and 203.0.113.5 from pool edge"),
        (Reason.ASSIGNED, "203.0.113.5, 203.0.113.6 from pool edge"),
        (Reason.ASSIGNED, "203.0.113.5 and 2 more from pool edge"),
        (Reason.ASSIGNED, "203.0.113.5/32 from pool edge"),
        (Reason.ASSIGNED, "203.0.113.05 from pool edge"),
        (Reason.ASSIGNED, "2001:DB8::5 from pool edge"),
        (Reason.ASSIGNED, "2001:db8:0::5 from pool edge"),
        (Reason.ASSIGNED, "::ffff:203.0.113.5 from pool edge"),
        (Reason.ASSIGNED, "fe80::5%eth0 from pool edge"),
        (Reason.ASSIGNED, "keeps 203.0.113.5, although it is in no pool"),
        (Reason.STRANDED, "203.0.113.5 from pool edge"),
        (Reason.STRANDED, "keeps 203.0.113.5"),
        (Reason.STRANDED, "203.0.113.5, although it is in no pool"),
        (Reason.ADDRESS_IN_USE, "203.0.113.5 from pool edge"),
        (Reason.ADDRESS_IN_USE, "keeps 203.0.113.5"),
        (Reason.ADDRESS_IN_USE, "address 192.0.2.1 is used; keeps 203.0.113.5."),
        (Reason.ADDRESS_IN_USE, "address 192.0.2.1 is used; keeps 203.0.113.5 and nothing else"),
        (Reason.FOREIGN_STATUS, "203.0.113.5 from pool edge"),
        (Reason.FOREIGN_STATUS, "left alone; keeps 203.0.113.5"),
        (Reason.LEFT_TO_PLATFORM, "203.0.113.5 from pool edge"),
        ("", "203.0.113.5 from pool edge"),
        ("Unknown", "203.0.113.5 from pool edge"),
    ],
)
def test_other_text_holds_no_record(reason: str, message: str) -> None:
    """The grammar is strict: other spellings, places and reasons name no address."""
    assert Record(reason, message).addresses == ()


# --- a forged record gains nothing --------------------------------------------------------------------------------
EDGE = pool("edge", "192.0.2.128/29", "2001:db8::/125")
POOLS = Pools.of([EDGE, pool("named", "203.0.113.0/29", auto_assign=False)])
BEYOND = "10.9.9.9"  # in no pool


@given(
    st.dictionaries(st.sampled_from(names.SERVICE_ANNOTATIONS), HOSTILE | st.text(max_size=40), max_size=4),
    HOSTILE,
    st.sampled_from(["", "192.0.2.130", "10.9.9.9"]),
    st.sampled_from([("IPv4",), ("IPv4", "IPv6")]),
)
def test_a_user_who_may_not_write_status_cannot_forge_a_record(
    annotations: dict[str, str], wanted: str, held: str, families: tuple[str, ...]
) -> None:
    """With any annotations and fields, kavip's message records only the addresses of its decision."""
    more: dict[str, Any] = {"annotations": annotations, "load_balancer_ip": wanted, "families": families}
    subject = ours("a/web", [held], **more) if held else service("a/web", **more)
    outcome = settle(subject, POOLS, entered(POOLS, [subject]), group="lb/edge")
    addresses = outcome.addresses if isinstance(outcome, Allocation) else ()
    assume(outcome.reason is not Reason.FOREIGN_STATUS)
    assert Record(outcome.reason, outcome.message).addresses == addresses


def forged(subject: Service, reason: str, message: str, status: str = "True") -> Service:
    """*subject* with a condition of a user who may write its status."""
    condition = Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status=status, reason=reason, message=message)
    return msgspec.structs.replace(subject, status=msgspec.structs.replace(subject.status, conditions=[condition]))


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("Assigned", "{} from pool edge"),
        ("Stranded", "keeps {}, although it is in no pool"),
        ("AddressInUse", "address 192.0.2.1 is used; keeps {}"),
    ],
)
@pytest.mark.parametrize("address", ["192.0.2.128", "192.0.2.135", "192.0.2.140", "203.0.113.1", BEYOND])
def test_a_forged_record_gains_no_address(reason: str, message: str, address: str) -> None:
    """
    A record without the address in status gives what a request by name gives, and nothing more.

    An address of another Service, one outside the pools and one of a pool that must be named are not given.
    """
    holder = ours("a/holder", ["192.0.2.128"], created="2025-01-01T00:00:00Z")
    subject = forged(service("a/web"), reason, message.format(address))
    found = settle(subject, POOLS, entered(POOLS, [holder, subject]))
    honest = settle(service("a/web"), POOLS, entered(POOLS, [holder]))
    named = settle(service("a/web", wants=address), POOLS, entered(POOLS, [holder]))
    assert isinstance(found, Allocation) and isinstance(honest, Allocation)
    assert found.addresses == honest.addresses or (
        isinstance(named, Allocation) and found.addresses == named.addresses == (parse_address(address),)
    )
    assert {str(each) for each in found.addresses}.isdisjoint({"192.0.2.128", "203.0.113.1", BEYOND})


@pytest.mark.parametrize("address", ["192.0.2.128", "192.0.2.130", BEYOND])
def test_a_status_writer_reaches_no_more_with_a_record_than_with_the_status_itself(address: str) -> None:
    """With or without a record, the address stays in status, and an older holder of it does not lose it."""
    holder = ours("a/holder", ["192.0.2.128"], created="2025-01-01T00:00:00Z")
    bare = service("a/web", holds=[address])
    recorded = forged(bare, "Assigned", f"{address} from pool edge")
    found = []
    for subject in (bare, recorded):
        ledger = entered(POOLS, [holder, subject])
        outcome = settle(subject, POOLS, ledger)
        assert not isinstance(outcome, Refusal)
        kept = settle(holder, POOLS, ledger)
        assert isinstance(kept, Allocation) and [str(each) for each in kept.addresses] == ["192.0.2.128"]
        found.append(outcome.addresses)
    assert found[0] == found[1]


def test_the_record_of_a_service_is_that_of_its_own_condition() -> None:
    """Conditions of other controllers are not read as records, and a Service without the condition has none."""
    other = Condition(type="example.com/Assigned", status="True", reason="Assigned", message="10.0.0.1 from pool x")
    base = service("a/web")
    assert (
        read_record(base)
        == Record()
        == read_record(msgspec.structs.replace(base, status=msgspec.structs.replace(base.status, conditions=[other])))
    )
    outcome = settle(base, POOLS, entered(POOLS, [base]))
    assert isinstance(outcome, Allocation)
    assert read_record(with_status(base, outcome.addresses, outcome)).addresses == outcome.addresses


def test_an_adopted_address_stays_adopted() -> None:
    """The record says so as long as the Service has the address; another one is kavip's own."""
    pools = Pools.of([pool("edge", "192.0.2.128/28")])
    subject = service("shop/web", holds=["192.0.2.130"])
    for _ in range(3):
        found = settle(subject, pools, entered(pools, [subject]))
        assert isinstance(found, Allocation)
        assert found.message == "192.0.2.130 from pool edge, written by another controller first"
        subject = with_status(subject, found.addresses, found)
        assert read_record(subject).is_adopted
        assert read_record(subject).addresses == (parse_address("192.0.2.130"),)
    edited = service("shop/web", holds=["192.0.2.130"], wants="192.0.2.131")
    moved = msgspec.structs.replace(edited, status=subject.status)
    found = settle(moved, pools, entered(pools, [moved]))
    assert isinstance(found, Allocation) and found.message == "192.0.2.131 from pool edge"
    assert not read_record(with_status(moved, found.addresses, found)).is_adopted
