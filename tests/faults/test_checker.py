"""The checker finds each defect in an artificial log with that defect, and none in a log without."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hack.faults import checker, facts, rules
from hack.faults.checker import Findings
from tests.faults.logbook import Logbook

A, B = "192.0.2.1", "192.0.2.2"
SHARED = {"kavip.io/sharing-key": "k"}


@pytest.fixture
def log() -> Logbook:
    """A pool with one address, and a Service that holds it."""
    made = Logbook()
    made.pool()
    made.service("web", born=1)
    made.give("web", A)
    return made


def found(findings: Findings) -> list[str]:
    """The findings, by the name of their list."""
    lists = ("doubles", "clashes", "moves", "needless", "waiting", "kept", "counters")
    return [name for name in lists if getattr(findings, name)]


def test_a_good_history_has_no_findings(log: Logbook) -> None:
    """One holds, one waits, the first goes, the second gets it: all as it should be."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", reason="PoolExhausted")
    log.delete("web")
    log.give("late", A)
    findings = log.judged()
    assert found(findings) == []
    assert (findings.counts["addresses given"], findings.counts["services at the end"]) == (2, 1)


def test_an_address_that_is_given_twice_is_found_with_its_time(log: Logbook) -> None:
    """The repair is recorded, too; the younger Service loses."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", A)
    log.give("late", reason="AddressInUse")
    (double,) = log.judged().doubles
    assert (str(double.address), double.holders, double.by, double.passes) == (A, ("shop/late", "shop/web"), "kavip", 0)
    assert double.seconds == pytest.approx(1.0)
    assert found(log.judged()) == ["doubles"]


def test_an_address_that_two_hold_at_the_end_is_not_repaired(log: Logbook) -> None:
    """It is counted apart."""
    log.service("late", born=2)
    log.give("late", A)
    log.count(1)
    assert len(log.judged().unrepaired) == 1


def test_a_repair_that_takes_more_than_one_pass_is_found(log: Logbook) -> None:
    """The loser was written, and kept what it may not have."""
    log.service("late", born=2)
    log.give("late", A)
    log.give("late", A, reason="Stranded")
    log.give("late", reason="AddressInUse")
    assert log.judged().doubles[0].passes == 1


def test_the_older_one_may_not_lose_a_contest(log: Logbook) -> None:
    """The older of the two keeps the address."""
    log.service("late", born=2)
    log.give("late", A)
    log.give("web", reason="AddressInUse")
    log.count(1)
    assert found(log.judged()) == ["doubles", "moves"]


def test_a_deleted_holder_is_a_holder_until_the_deletion_is_asked_for(log: Logbook) -> None:
    """An address that is given before that is given twice; one that is given while the DELETE is answered is not."""
    log.service("late", born=2)
    log.give("late", A)
    log.delete("web")
    log.count(1)
    assert found(log.judged()) == ["doubles"]
    deletion, give = log.lines[-2], log.lines[-3]
    deletion["requestReceivedTimestamp"] = give["requestReceivedTimestamp"]
    assert found(log.judged()) == []


def test_sharing_is_no_double_until_an_edit_ends_it() -> None:
    """Two with one key and two ports share; given one port they clash, and the younger is moved."""
    log = Logbook()
    log.pool("edge", f"{A}-{B}")
    log.service("one", notes=SHARED, born=1)
    log.service("two", notes=SHARED, born=2, ports=[{"port": 443}])
    log.give("one", A)
    log.give("two", A)
    log.count(1)
    assert found(log.judged()) == []
    log.service("one", notes=SHARED, born=1, ports=[{"port": 443}])
    assert len(log.judged().unrepaired) == 1
    log.give("two", B)
    log.count(2)
    findings = log.judged()
    assert (found(findings), findings.unrepaired) == (["clashes"], [])


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"notes": SHARED}, {"notes": {}}),
        ({"notes": SHARED}, {"notes": SHARED, "ports": [{"port": 80}]}),
        ({"notes": SHARED}, {"notes": SHARED, "externalTrafficPolicy": "Local"}),
        (
            {"notes": SHARED, "externalTrafficPolicy": "Local", "selector": {"app": "a"}},
            {"notes": SHARED, "externalTrafficPolicy": "Local", "selector": {"app": "b"}},
        ),
    ],
    ids=["no key", "one port", "one Local", "other selector"],
)
def test_who_may_not_share_is_a_double(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Each clause of the rule."""
    log = Logbook()
    log.pool()
    log.service("one", **{"ports": [{"port": 80}], **one})
    log.service("two", **{"ports": [{"port": 443}], **two})
    log.give("one", A)
    log.give("two", A)
    assert len(log.judged().doubles) == 1


@pytest.mark.parametrize(
    ("spec", "is_fine"),
    [
        ({}, False),
        ({"ports": [{"port": 81}]}, False),
        ({"type": "ClusterIP"}, True),
        ({"loadBalancerClass": "example.com/other"}, True),
        ({"ipFamilies": ["IPv6"]}, True),
        ({"notes": {"kavip.io/addresses": B}}, True),
        ({"notes": {"kavip.io/addresses": A}}, False),
        ({"notes": {"kavip.io/pool": "more"}}, True),
        ({"notes": {"kavip.io/pool": "edge"}}, False),
    ],
)
def test_an_address_moves_with_a_cause_or_not_at_all(log: Logbook, spec: dict[str, Any], is_fine: bool) -> None:
    """An edit is a cause only where what is held does not agree with it."""
    log.pool("more", "198.51.100.1-198.51.100.1")
    log.service("web", born=1, **spec)
    log.give("web", B)
    assert bool(log.judged().moves) is not is_fine


def test_a_pool_that_shrinks_or_goes_moves_nobody(log: Logbook) -> None:
    """Its holders are stranded, and keep what they have."""
    log.pool("edge", "198.51.100.1-198.51.100.1")
    log.give("web", "198.51.100.1")
    assert log.judged().moves


def test_a_sharing_that_ends_while_a_grant_is_on_its_way_is_an_edits_doing() -> None:
    """kavip could not know; it repairs. Seconds later it should have known."""
    log = Logbook()
    log.pool("edge", f"{A}-{B}")
    log.service("one", notes=SHARED, born=1)
    log.give("one", A)
    log.service("two", notes=SHARED, born=2, ports=[{"port": 443}])
    log.service("one", notes={}, born=1)
    log.give("two", A)
    log.give("two", B)
    log.count(2)
    assert found(log.judged()) == ["clashes"]
    grant = log.lines[-3]
    log.lines[-3] = {**grant, "requestReceivedTimestamp": log.lines[-1]["stageTimestamp"]}
    assert found(log.judged()) == ["doubles"]


def test_an_elder_that_goes_while_a_write_is_on_its_way_excuses_it(log: Logbook) -> None:
    """The younger one gives way to a holder that is deleted in the same moment."""
    log.pool("edge", f"{A}-{B}")
    log.service("late", born=2)
    log.give("late", A)
    log.delete("web")
    log.give("late", B)
    log.count(1)
    assert found(log.judged()) == ["doubles"]


def test_a_pool_that_goes_while_a_write_is_on_its_way_excuses_it(log: Logbook) -> None:
    """The Service asked for another pool while its own was still there; a second later that is no excuse."""
    log.pool("more", "198.51.100.1-198.51.100.1")
    log.service("web", born=1, notes={"kavip.io/pool": "more"})
    log.gone("edge")
    log.give("web", "198.51.100.1")
    for stamp in ("requestReceivedTimestamp", "stageTimestamp"):
        log.lines[-1][stamp] = log.lines[-2]["stageTimestamp"]
    log.count(1, pool="more")
    assert found(log.judged()) == []
    log.lines[-2]["requestReceivedTimestamp"] = log.lines[-1]["stageTimestamp"]
    assert found(log.judged()) == ["moves"]


def test_a_loser_may_move_for_a_cause_of_its_own(log: Logbook) -> None:
    """That it is contested by a younger one does not bind the older one to what it has."""
    log.pool("more", "198.51.100.1-198.51.100.1")
    log.service("late", born=2)
    log.give("late", A)
    log.service("web", born=1, notes={"kavip.io/pool": "more"})
    log.give("web", "198.51.100.1")
    log.count(1)
    log.count(1, pool="more")
    assert found(log.judged()) == ["doubles"]


def test_a_write_that_changes_nothing_is_found(log: Logbook) -> None:
    """The time of a condition is not a change, of a Service as of a pool."""
    log.give("web", A)
    log.count(1)
    assert found(log.judged()) == ["needless"]
    log.count(1)
    assert len(log.judged().needless) == 2


def test_an_edit_that_changes_nothing_is_not_kavips_needless_write(log: Logbook) -> None:
    """It is answered with the version that kavip has just made, and may be logged first."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", reason="PoolExhausted")
    edit = {**log.lines[-1], "userAgent": "users", "verb": "patch"}
    log.lines.insert(-1, edit)
    assert found(log.judged()) == []


def test_what_others_write_is_not_kavips_fault(log: Logbook) -> None:
    """Only what kavip's agent has written counts as a move or as needless."""
    log.count(1)
    log.give("web", A, agent="users")
    assert found(log.judged()) == []


@pytest.mark.parametrize(
    ("spec", "waits"),
    [
        ({}, True),
        ({"loadBalancerClass": "example.com/other"}, False),
        ({"ipFamilies": ["IPv6"]}, False),
        ({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "PreferDualStack"}, True),
        ({"ipFamilies": ["IPv6", "IPv4"], "ipFamilyPolicy": "RequireDualStack"}, False),
        ({"notes": {"kavip.io/addresses": B}}, True),
        ({"notes": {"kavip.io/addresses": A}}, False),
        ({"notes": {"kavip.io/addresses": "2001:db8::1"}}, False),
        ({"notes": {"kavip.io/addresses": "198.51.100.1"}}, False),
        ({"notes": {"kavip.io/pool": "edge"}}, True),
        ({"notes": {"kavip.io/pool": "nowhere"}}, False),
        ({"notes": {"kavip.io/pool": "more", "kavip.io/addresses": B}}, False),
    ],
)
def test_who_waits_while_an_address_is_free_is_found(log: Logbook, spec: dict[str, Any], waits: bool) -> None:
    """A request that cannot be met is no finding."""
    log.pool("edge", f"{A}-{B}")
    log.pool("more", "203.0.113.1-203.0.113.1", autoAssign=False)
    log.count(1)
    log.service("late", born=2, **spec)
    assert found(log.judged()) == (["waiting"] if waits else [])


def test_an_excluded_address_is_not_free(log: Logbook) -> None:
    """Its holder keeps it, and a pool does not count it."""
    log.pool("edge", f"{A}-{B}", exclude=[f"{B}/32", f"{A}/32"])
    log.service("late", born=2)
    assert found(log.judged()) == []


def test_the_second_family_comes_from_the_same_pool_or_not_at_all() -> None:
    """A dual-stack Service that has one address waits for the other of that pool alone."""
    log = Logbook()
    log.pool("four", f"{A}/32")
    log.pool("six", "2001:db8::1/128")
    log.service("web", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")
    log.give("web", A)
    log.count(1, pool="four")
    assert found(log.judged()) == []
    log.pool("four", f"{A}/32", "2001:db8:4::1/128")
    assert found(log.judged()) == ["waiting"]


def test_an_address_that_is_not_freed_is_found(log: Logbook) -> None:
    """A Service that is of type LoadBalancer no longer holds nothing."""
    log.count(1)
    log.service("web", born=1, type="ClusterIP")
    assert found(log.judged()) == ["kept"]


def test_a_pool_that_counts_wrongly_is_found(log: Logbook) -> None:
    """A leak in the ledger shows here first."""
    assert found(log.judged()) == ["counters"]
    log.count(1)
    assert found(log.judged()) == []


def test_the_order_of_the_lines_does_not_matter(log: Logbook) -> None:
    """Answers are logged as they are given; the version says what came first."""
    log.count(1)
    log.service("late", born=2)
    log.delete("web")
    log.give("late", A)
    forward = log.judged()
    log.lines.reverse()
    assert log.judged() == forward


def test_refused_writes_did_not_happen(log: Logbook) -> None:
    """A conflict is no write."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", reason="PoolExhausted")
    log.give("late", A)
    log.lines[-1]["responseStatus"]["code"] = 409
    assert found(log.judged()) == []


@pytest.mark.parametrize("module", [checker, facts, rules])
def test_the_judge_shares_no_code_with_the_judged(module: ModuleType) -> None:
    """Nothing of kavip is imported."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    names += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    assert names
    assert not [name for name in names if name.split(".")[0] == "kavip"]


def test_a_write_that_was_answered_to_nobody_is_seen_by_what_is_there(log: Logbook) -> None:
    """It is neither waiting in vain nor idle, what was written last and nobody heard of."""
    log.count(1)
    log.service("late", born=2)
    log.delete("web")
    log.lose("late", A)
    assert found(log.judged()) == []


def test_a_write_after_one_that_nobody_heard_of_is_not_needless(log: Logbook) -> None:
    """It takes back what the log does not tell; the next one that changes nothing is found as ever."""
    log.count(1)
    log.lose("web", A, reason="Stranded")
    log.give("web", A)
    assert found(log.judged()) == []
    log.give("web", A)
    assert found(log.judged()) == ["needless"]
