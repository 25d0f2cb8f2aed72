"""An explanation has the decision, and its rules have the reasons."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.pool import Cooling, Reservation
from kavip.api.refusal import Refusal
from kavip.ipam.allocate import settle
from kavip.ipam.explain import ExplainedPool, Explanation, PoolRole, explain
from kavip.ipam.pools import Pools
from kavip.names import Reason
from tests.ipam.deciding import EDGE, FULL, LAB, PREFER, REASSIGN, REQUIRE, SELECTIVE, SHARE, ours, with_reason
from tests.ipam.simulatedcontroller import SimulatedController, entered
from tests.ipam.test_histories import services
from tests.support.build import pool, service
from tests.support.examples import examples


def look(subject: Any, *others: Any, pools: Any = (EDGE, LAB), **more: Any) -> Explanation:
    """The explanation of *subject* beside *others*."""
    parsed = Pools.of(pools)
    return explain(subject, parsed, entered(parsed, (subject, *others)), **more)


def rules(found: Explanation, name: str) -> dict[str, tuple[bool | None, str]]:
    """Rule -> whether it holds, and why, of one pool."""
    (looked,) = (each for each in found.pools if each.name == name)
    return {step.rule: (step.holds, step.text) for step in looked.rules}


MANY = (
    pool("dual", "192.0.2.0/31", "2001:db8::/127"),
    pool("four", "198.51.100.0/31", priority=200),
    pool("named", "203.0.113.0/31", auto_assign=False),
    pool("tight", "198.51.100.64/31", "2001:db8:1::/127", priority=300, max_per_namespace=1),
)


@pytest.mark.slow
@examples(200)
@given(
    crowd=st.lists(services(), max_size=9),
    subject=services(),
    worked=st.integers(0, 9),
    held=st.sampled_from([(), (), ("192.0.2.1",), ("2001:db8::1",), ("192.0.2.1", "2001:db8::1"), ("10.0.0.1",)]),
    reason=st.sampled_from([Reason.ASSIGNED, Reason.POOL_EXHAUSTED, None]),
    reassign=st.booleans(),
)
def test_the_explanation_is_the_decision(
    crowd: list[Any], subject: Any, worked: int, held: tuple[str, ...], reason: Reason | None, reassign: bool
) -> None:
    """The verdict is that of the decision, and the rules and the role of every pool agree with it."""
    simulation = SimulatedController(MANY)
    for each in crowd[:worked]:
        simulation.apply(each)
    simulation.run()
    for each in crowd[worked:]:
        simulation.apply(each)
    if reassign:
        notes = {**(subject.metadata.annotations or {}), **REASSIGN}
        subject = msgspec.structs.replace(
            subject, metadata=msgspec.structs.replace(subject.metadata, annotations=notes)
        )
    if held:
        status = service(subject.key, holds=held).status
        subject = type(subject)(metadata=subject.metadata, spec=subject.spec, status=status)
        subject = with_reason(subject, reason) if reason else subject
    ledger = entered(
        simulation.pools, [*(each for each in simulation.services.values() if each.key != subject.key), subject]
    )
    labels = simulation.labels(subject)
    found = explain(subject, simulation.pools, ledger, namespace_labels=labels)
    assert found.outcome == settle(subject, simulation.pools, ledger, namespace_labels=labels)
    for each in found.pools:
        agrees(each)
    roles = [each.role for each in found.pools]
    has = () if isinstance(found.outcome, Refusal) else found.outcome.addresses
    new = [each for each in found.addresses if str(each.address) not in held]
    assert tuple(each.address for each in found.addresses) == has
    assert {each.name for each in found.pools if each.role is PoolRole.GIVES} == {each.pool for each in new}
    if not found.is_asked:
        assert not new
    elif not new:
        assert not {PoolRole.COULD, PoolRole.PARTLY} & set(roles), "a pool that could serve is not passed over"
    elif len({each.address.family for each in found.addresses}) == len(found.request.families):
        assert PoolRole.COULD not in roles[: roles.index(PoolRole.GIVES)], "the first pool that can gives"
    else:
        assert PoolRole.COULD not in roles, "no Service gets fewer addresses than a pool could give"


def agrees(looked: ExplainedPool) -> None:
    """The rules of a pool say what its role says; what it holds for a Service already may be against its rules."""
    broken = [step.rule for step in looked.rules if step.holds is False]
    match looked.role:
        case PoolRole.GIVES | PoolRole.COULD | PoolRole.PARTLY:
            assert not broken, looked
        case PoolRole.LACKS | PoolRole.CLOSED | PoolRole.OFF:
            assert broken, looked


DUAL = pool("dual", "203.0.113.128/28", "2001:db8:1::/124")
TAKEN = service("a/old", holds=["192.0.2.130"], annotations=SHARE, created="2025-01-01T00:00:00Z")
FIRST = "192.0.2.128"


@pytest.mark.parametrize(
    ("subject", "others", "pools", "reason", "where", "rule", "words"),
    [
        (service("a/web"), FULL, (EDGE,), "PoolExhausted", "edge", "IPv4", "0 of 16 free, 16 assigned"),
        (service("a/web", pool="egde"), (), (EDGE,), "PoolNotFound", "edge", "named", "the Service names egde"),
        (service("a/web"), (), (SELECTIVE,), "PoolSelectorMismatch", "team", "namespaceSelector", "cannot serve"),
        (service("a/web"), (), (pool("x", auto_assign=False),), "NoPool", "x", "autoAssign", "false: only for"),
        (service("a/web", wants="10.0.0.1"), (), (EDGE,), "AddressNotInPool", "edge", "address", "is not in this pool"),
        (
            service("a/web", wants="192.0.2.130"),
            (TAKEN,),
            (EDGE,),
            "AddressInUse",
            "edge",
            "192.0.2.130",
            "Service a/old",
        ),
        (
            service("a/web", wants="192.0.2.130", annotations=SHARE),
            (TAKEN,),
            (EDGE,),
            "SharingRefused",
            "edge",
            "192.0.2.130",
            "both use TCP/80",
        ),
        (
            service("a/web", wants=FIRST),
            (),
            (pool("edge", "192.0.2.128/28", exclude=[FIRST]),),
            "AddressNotAllowed",
            "edge",
            FIRST,
            "is excluded from pool edge",
        ),
        (service("a/web", **REQUIRE), (), (EDGE,), "FamilyNotAvailable", "edge", "IPv6", "no addresses of this family"),
        (
            service("a/web"),
            (service("a/old", holds=["192.0.2.140"]),),
            (pool("edge", "192.0.2.128/28", max_per_namespace=1),),
            "QuotaExceeded",
            "edge",
            "maxPerNamespace",
            "namespace a holds 1 of 1",
        ),
        (
            service("a/web", **REQUIRE),
            (),
            (pool("edge", "192.0.2.128/30", max_per_namespace=0),),
            "FamilyNotAvailable",
            "edge",
            "maxPerNamespace",
            "namespace a holds 0 of 0",
        ),
        (service("a/web"), (), (pool("edge", "192.0.2.1/24"),), "NoPool", "edge", "in force", "has host bits set"),
    ],
    ids=lambda value: value if isinstance(value, str) and value[:1].isupper() else "",
)
def test_the_failed_rule_names_the_cause(
    subject: Any, others: Any, pools: Any, reason: str, where: str, rule: str, words: str
) -> None:
    """For each reason, the failed rule of the pool has a message with numbers and names."""
    found = look(subject, *others, pools=pools)
    assert (found.outcome.reason, found.addresses) == (reason, ())
    holds, text = rules(found, where)[rule]
    assert holds is False
    assert words in text


def test_an_invalid_request_is_explained_with_all_its_findings() -> None:
    """No pool is evaluated for an invalid Service. All its faults are reported."""
    found = look(service("a/web", wants="192.0.2.300", annotations={names.REASSIGN_ANNOTATION: "perhaps"}))
    assert (found.outcome.reason, found.is_asked, len(found.findings)) == ("InvalidRequest", False, 2)


def test_each_address_has_its_cause() -> None:
    """Requested, reserved, shared, first free, held, or of another controller."""
    kept = pool("edge", "192.0.2.128/28", reservations=[Reservation("192.0.2.135", "a/web")])
    partner = service("a/old", holds=["192.0.2.130"], annotations=SHARE, port=443)
    for subject, pools, words in (
        (service("a/web", wants="192.0.2.131"), (EDGE,), "192.0.2.131 requested by name"),
        (service("a/web"), (kept,), "192.0.2.135 reserved for this Service"),
        (service("a/web", annotations=SHARE), (EDGE,), "192.0.2.130 shared under kavip.io/sharing-key"),
        (service("a/web"), (EDGE,), "192.0.2.128 the first free address of pool edge"),
        (ours("a/web", ["192.0.2.133"]), (EDGE,), "192.0.2.133 held already; kavip moves no address without cause"),
        (service("a/web", holds=["10.0.0.1"]), (EDGE,), "10.0.0.1 written by another controller"),
    ):
        (had,) = look(subject, partner, pools=pools).addresses
        assert f"{had.address} {had.why}" == words
        assert had.shared_with == (("a/old",) if "shared" in words else ())


def test_the_second_family_comes_from_the_pool_of_the_first() -> None:
    """The rules of every other pool report that it is closed to the Service."""
    found = look(ours("a/web", ["192.0.2.133"], **REQUIRE), pools=(EDGE, DUAL))
    assert rules(found, "dual")["one pool"] == (False, "its other address, 192.0.2.133, is in pool edge")
    assert rules(found, "edge")["IPv6"] == (False, "the pool has no addresses of this family")
    assert "IPv4" not in rules(found, "edge"), "no pool is evaluated for a held address"
    nowhere = look(ours("a/web", ["10.0.0.1"], **REQUIRE), pools=(DUAL,))
    assert rules(nowhere, "dual")["one pool"] == (False, "its other address, 10.0.0.1, is in no pool")


def test_a_missing_family_does_not_close_a_pool() -> None:
    """For PreferDualStack a pool of one family could serve a part, and a pool of both serves all."""
    found = look(service("a/web", **PREFER), pools=(EDGE, DUAL, LAB))
    assert [(each.name, each.role) for each in found.pools] == [
        ("dual", PoolRole.GIVES),
        ("edge", PoolRole.PARTLY),
        ("lab", PoolRole.COULD),
    ]
    assert rules(found, "edge")["IPv6"] == (None, "the pool has no addresses of this family")


@pytest.mark.slow
def test_pools_that_a_request_by_name_could_use_are_listed() -> None:
    """The pools that would serve the Service if it named them; none if it lacks nothing."""
    spare = pool("spare", "198.51.100.0/30", auto_assign=False)
    assert look(service("a/web"), *FULL, pools=(EDGE, spare)).others == ("spare",)
    assert look(service("a/web"), pools=(EDGE, spare)).others == ()


def test_a_stranded_address_names_the_broken_rule() -> None:
    """
    The address stays, and the explanation has its pool and the broken rule. With reassign it has the new address too.
    """
    narrow = pool("edge", "192.0.2.128/28", exclude=["192.0.2.133"])
    found = look(ours("a/web", ["192.0.2.133"]), pools=(narrow,))
    assert (found.outcome.reason, found.pools[0].role, found.is_asked) == ("Stranded", PoolRole.HOLDS, False)
    assert found.addresses[0].flaw == "is excluded from pool edge"
    moved = look(ours("a/web", ["192.0.2.133"], annotations=REASSIGN), pools=(narrow,))
    assert (moved.pools[0].role, moved.addresses[0].flaw) == (PoolRole.GIVES, "")


def test_very_large_sizes_are_not_printed() -> None:
    """A /64 has more addresses than a reader can count."""
    found = look(service("a/web", families=("IPv6",)), pools=(LAB,))
    assert rules(found, "lab")["IPv6"][1].startswith("over 10 million of over 10 million free, 0 assigned; next")


def test_a_cool_down_is_explained() -> None:
    """
    It is counted, it has an end for a Service that requests the address, and its own Service gets the address back.
    """
    edge = pool("edge", "192.0.2.128/31", cooldown_seconds=60)
    parsed = Pools.of([edge])
    ledger = entered(parsed, [])
    ledger.cooldown.learn("edge", [Cooling(address="192.0.2.128", service="a/web", until="2026-03-01T00:00:00Z")])
    back = explain(service("a/web"), parsed, ledger)
    assert back.addresses[0].why == "this Service had it before, and it cools down for all others"
    other = explain(service("a/new"), parsed, ledger)
    assert (
        rules(other, "edge")["IPv4"][1] == "1 of 2 free, 0 assigned, 1 cooling down; next for this Service: 192.0.2.129"
    )
    wish = explain(service("a/new", wants="192.0.2.128"), parsed, ledger)
    assert rules(wish, "edge")["192.0.2.128"][0] is False
    assert "cools down until 2026-03-01T00:00:00Z for Service a/web" in rules(wish, "edge")["192.0.2.128"][1]


def test_an_address_that_another_machine_has_is_explained() -> None:
    """It is counted by itself, and the rule says until when it rests, and for which Service that was found."""
    parsed = Pools.of([pool("edge", "192.0.2.128/31")])
    ledger = entered(parsed, [])
    taken = Cooling(address="192.0.2.128", service="a/web", until="2026-03-01T00:00:00Z", reason="AddressConflict")
    ledger.cooldown.learn("edge", [taken])
    found = rules(explain(service("a/web"), parsed, ledger), "edge")
    assert found["IPv4"][1] == (
        "1 of 2 free, 0 assigned, 1 in use by other machines on the LAN; next for this Service: 192.0.2.129"
    )
    why = "because another machine on the LAN has it (found for Service a/web)"
    assert found["conflictDetection"] == (None, f"192.0.2.128 is in cool-down until 2026-03-01T00:00:00Z, {why}")
