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
    """One Service holds the address and one waits; after the deletion of the first, the second gets the address."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", reason="PoolExhausted")
    log.delete("web")
    log.give("late", A)
    findings = log.judged()
    assert found(findings) == []
    assert (findings.counts["addresses given"], findings.counts["services at the end"]) == (2, 1)


def test_an_address_that_is_given_twice_is_found_with_its_time(log: Logbook) -> None:
    """The finding has the repair too, in which the younger Service loses."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", A)
    log.give("late", reason="AddressInUse")
    (double,) = log.judged().doubles
    assert (str(double.address), double.holders, double.by, double.passes) == (A, ("shop/late", "shop/web"), "kavip", 0)
    assert double.seconds == pytest.approx(1.0)
    assert found(log.judged()) == ["doubles"]


def test_an_address_that_two_hold_at_the_end_is_not_repaired(log: Logbook) -> None:
    """It is counted separately."""
    log.service("late", born=2)
    log.give("late", A)
    log.count(1)
    assert len(log.judged().unrepaired) == 1


def test_a_repair_that_takes_more_than_one_pass_is_found(log: Logbook) -> None:
    """A status write of the loser kept the address."""
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


def test_a_holder_counts_until_its_deletion_is_requested(log: Logbook) -> None:
    """
    An assignment before the request is a double. An assignment after the request is not, even before the response.
    """
    log.service("late", born=2)
    log.give("late", A)
    log.delete("web")
    log.count(1)
    assert found(log.judged()) == ["doubles"]
    deletion, give = log.lines[-2], log.lines[-3]
    deletion["requestReceivedTimestamp"] = give["requestReceivedTimestamp"]
    assert found(log.judged()) == []


def test_sharing_is_no_double_until_an_edit_ends_it() -> None:
    """Two Services with one key and two ports share. With one port they conflict, and the younger one is moved."""
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
def test_two_holders_that_may_not_share_are_a_double(one: dict[str, Any], two: dict[str, Any]) -> None:
    """Each clause of the rule is checked."""
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


def test_an_edited_or_deleted_pool_moves_no_service(log: Logbook) -> None:
    """Its holders are stranded and keep their addresses."""
    log.pool("edge", "198.51.100.1-198.51.100.1")
    log.give("web", "198.51.100.1")
    assert log.judged().moves


def test_a_sharing_that_ends_during_a_write_is_caused_by_the_edit() -> None:
    """kavip could not know the edit, and repairs. Seconds later it should have known."""
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


def test_a_deletion_of_the_older_holder_during_a_write_excuses_it(log: Logbook) -> None:
    """The younger Service may lose the address to a holder that is deleted at the same moment."""
    log.pool("edge", f"{A}-{B}")
    log.service("late", born=2)
    log.give("late", A)
    log.delete("web")
    log.give("late", B)
    log.count(1)
    assert found(log.judged()) == ["doubles"]


def test_a_deletion_of_the_pool_during_a_write_excuses_it(log: Logbook) -> None:
    """The Service requested another pool while its own still existed. A second later this is no excuse."""
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


def test_an_older_holder_may_move_for_its_own_cause(log: Logbook) -> None:
    """A conflict with a younger Service does not bind the older one to the address."""
    log.pool("more", "198.51.100.1-198.51.100.1")
    log.service("late", born=2)
    log.give("late", A)
    log.service("web", born=1, notes={"kavip.io/pool": "more"})
    log.give("web", "198.51.100.1")
    log.count(1)
    log.count(1, pool="more")
    assert found(log.judged()) == ["doubles"]


def test_a_write_that_changes_nothing_is_found(log: Logbook) -> None:
    """The time of a condition is not a change, for a Service and for a pool."""
    log.give("web", A)
    log.count(1)
    assert found(log.judged()) == ["needless"]
    log.count(1)
    assert len(log.judged().needless) == 2


def test_an_edit_that_changes_nothing_is_not_kavips_needless_write(log: Logbook) -> None:
    """The response has the version that kavip has just written, and may be logged first."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", reason="PoolExhausted")
    edit = {**log.lines[-1], "userAgent": "users", "verb": "patch"}
    log.lines.insert(-1, edit)
    assert found(log.judged()) == []


def test_writes_of_other_clients_do_not_count(log: Logbook) -> None:
    """Only writes with kavip's user agent count as moves or as needless."""
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
def test_a_service_that_waits_while_an_address_is_free_is_found(
    log: Logbook, spec: dict[str, Any], waits: bool
) -> None:
    """A request that cannot be served is no finding."""
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
    """A dual-stack Service with one address waits only for the other family of that pool."""
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
    """A Service that is no longer of type LoadBalancer must not hold an address."""
    log.count(1)
    log.service("web", born=1, type="ClusterIP")
    assert found(log.judged()) == ["kept"]


def test_a_pool_that_counts_wrongly_is_found(log: Logbook) -> None:
    """A leak in the ledger appears here first."""
    assert found(log.judged()) == ["counters"]
    log.count(1)
    assert found(log.judged()) == []


def test_the_order_of_the_lines_does_not_matter(log: Logbook) -> None:
    """Lines are in the order of the responses; the versions give the order of the writes."""
    log.count(1)
    log.service("late", born=2)
    log.delete("web")
    log.give("late", A)
    forward = log.judged()
    log.lines.reverse()
    assert log.judged() == forward


def test_rejected_writes_do_not_count(log: Logbook) -> None:
    """A conflict is no write."""
    log.count(1)
    log.service("late", born=2)
    log.give("late", reason="PoolExhausted")
    log.give("late", A)
    log.lines[-1]["responseStatus"]["code"] = 409
    assert found(log.judged()) == []


@pytest.mark.parametrize("module", [checker, facts, rules])
def test_the_checker_imports_nothing_of_kavip(module: ModuleType) -> None:
    """Nothing of kavip is imported."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    names += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    assert names
    assert not [name for name in names if name.split(".")[0] == "kavip"]


def test_a_write_without_a_response_is_found_in_the_remaining_objects(log: Logbook) -> None:
    """The result of a last write without a response is no finding."""
    log.count(1)
    log.service("late", born=2)
    log.delete("web")
    log.lose("late", A)
    assert found(log.judged()) == []


def test_a_write_after_one_without_a_response_is_not_needless(log: Logbook) -> None:
    """It reverts a change that is not in the log. The next write without a change is a finding again."""
    log.count(1)
    log.lose("web", A, reason="Stranded")
    log.give("web", A)
    assert found(log.judged()) == []
    log.give("web", A)
    assert found(log.judged()) == ["needless"]
