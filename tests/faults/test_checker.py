"""The checker finds each defect in an artificial log with that defect, and none in a log without."""

import ast
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hack.faults import checker, facts, rules
from hack.faults.checker import Findings
from tests.faults.fakeauditlog import FakeAuditLog

A, B = "192.0.2.1", "192.0.2.2"
SHARED = {"kavip.io/sharing-key": "k"}


@pytest.fixture
def log() -> FakeAuditLog:
    """A pool with one address, and a Service that holds it."""
    made = FakeAuditLog()
    made.pool()
    made.service("web", born=1)
    made.assign("web", A)
    return made


def found(findings: Findings) -> list[str]:
    """The findings, by the name of their list."""
    lists = ("doubles", "clashes", "moves", "needless", "waiting", "kept", "counters")
    return [name for name in lists if getattr(findings, name)]


def test_a_good_history_has_no_findings(log: FakeAuditLog) -> None:
    """One Service holds the address and one waits; after the deletion of the first, the second gets the address."""
    log.count(1)
    log.service("late", born=2)
    log.assign("late", reason="PoolExhausted")
    log.delete("web")
    log.assign("late", A)
    findings = log.check()
    assert found(findings) == []
    assert (findings.counts["addresses given"], findings.counts["services at the end"]) == (2, 1)


def test_an_address_that_is_given_twice_is_found_with_its_time(log: FakeAuditLog) -> None:
    """The finding has the repair too, in which the younger Service loses."""
    log.count(1)
    log.service("late", born=2)
    log.assign("late", A)
    log.assign("late", reason="AddressInUse")
    (double,) = log.check().doubles
    assert (str(double.address), double.holders, double.by, double.passes) == (A, ("shop/late", "shop/web"), "kavip", 0)
    assert double.seconds == pytest.approx(1.0)
    assert found(log.check()) == ["doubles"]


def test_an_address_that_two_hold_at_the_end_is_not_repaired(log: FakeAuditLog) -> None:
    """It is counted separately."""
    log.service("late", born=2)
    log.assign("late", A)
    log.count(1)
    assert len(log.check().unrepaired) == 1


def test_a_repair_that_takes_more_than_one_pass_is_found(log: FakeAuditLog) -> None:
    """A status write of the loser kept the address."""
    log.service("late", born=2)
    log.assign("late", A)
    log.assign("late", A, reason="Stranded")
    log.assign("late", reason="AddressInUse")
    assert log.check().doubles[0].passes == 1


def test_the_older_one_may_not_lose_a_contest(log: FakeAuditLog) -> None:
    """The older of the two keeps the address."""
    log.service("late", born=2)
    log.assign("late", A)
    log.assign("web", reason="AddressInUse")
    log.count(1)
    assert found(log.check()) == ["doubles", "moves"]


def test_a_holder_counts_until_its_deletion_is_requested(log: FakeAuditLog) -> None:
    """
    An assignment before the request is a double. An assignment after the request is not, even before the response.
    """
    log.service("late", born=2)
    log.assign("late", A)
    log.delete("web")
    log.count(1)
    assert found(log.check()) == ["doubles"]
    deletion, assignment = log.lines[-2], log.lines[-3]
    deletion["requestReceivedTimestamp"] = assignment["requestReceivedTimestamp"]
    assert found(log.check()) == []


def test_sharing_is_no_double_until_an_edit_ends_it() -> None:
    """Two Services with one key and two ports share. With one port they conflict, and the younger one is moved."""
    log = FakeAuditLog()
    log.pool("edge", f"{A}-{B}")
    log.service("one", notes=SHARED, born=1)
    log.service("two", notes=SHARED, born=2, ports=[{"port": 443}])
    log.assign("one", A)
    log.assign("two", A)
    log.count(1)
    assert found(log.check()) == []
    log.service("one", notes=SHARED, born=1, ports=[{"port": 443}])
    assert len(log.check().unrepaired) == 1
    log.assign("two", B)
    log.count(2)
    findings = log.check()
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
    log = FakeAuditLog()
    log.pool()
    log.service("one", **{"ports": [{"port": 80}], **one})
    log.service("two", **{"ports": [{"port": 443}], **two})
    log.assign("one", A)
    log.assign("two", A)
    assert len(log.check().doubles) == 1


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
def test_an_address_moves_with_a_cause_or_not_at_all(log: FakeAuditLog, spec: dict[str, Any], is_fine: bool) -> None:
    """An edit is a cause only where what is held does not agree with it."""
    log.pool("more", "198.51.100.1-198.51.100.1")
    log.service("web", born=1, **spec)
    log.assign("web", B)
    assert bool(log.check().moves) is not is_fine


def test_an_edited_or_deleted_pool_moves_no_service(log: FakeAuditLog) -> None:
    """Its holders are stranded and keep their addresses."""
    log.pool("edge", "198.51.100.1-198.51.100.1")
    log.assign("web", "198.51.100.1")
    assert log.check().moves


def test_a_sharing_that_ends_during_a_write_is_caused_by_the_edit() -> None:
    """kavip may not have observed the edit yet, and repairs. Seconds later it must have observed it."""
    log = FakeAuditLog()
    log.pool("edge", f"{A}-{B}")
    log.service("one", notes=SHARED, born=1)
    log.assign("one", A)
    log.service("two", notes=SHARED, born=2, ports=[{"port": 443}])
    log.service("one", notes={}, born=1)
    log.assign("two", A)
    log.assign("two", B)
    log.count(2)
    assert found(log.check()) == ["clashes"]
    grant = log.lines[-3]
    log.lines[-3] = {**grant, "requestReceivedTimestamp": log.lines[-1]["stageTimestamp"]}
    assert found(log.check()) == ["doubles"]


def test_a_deletion_of_the_older_holder_during_a_write_excuses_it(log: FakeAuditLog) -> None:
    """The younger Service may lose the address to a holder that is deleted at the same moment."""
    log.pool("edge", f"{A}-{B}")
    log.service("late", born=2)
    log.assign("late", A)
    log.delete("web")
    log.assign("late", B)
    log.count(1)
    assert found(log.check()) == ["doubles"]


def test_a_deletion_of_the_pool_during_a_write_excuses_it(log: FakeAuditLog) -> None:
    """The Service requested another pool while its own still existed. A second later this is no excuse."""
    log.pool("more", "198.51.100.1-198.51.100.1")
    log.service("web", born=1, notes={"kavip.io/pool": "more"})
    log.delete_pool("edge")
    log.assign("web", "198.51.100.1")
    for stamp in ("requestReceivedTimestamp", "stageTimestamp"):
        log.lines[-1][stamp] = log.lines[-2]["stageTimestamp"]
    log.count(1, pool="more")
    assert found(log.check()) == []
    log.lines[-2]["requestReceivedTimestamp"] = log.lines[-1]["stageTimestamp"]
    assert found(log.check()) == ["moves"]


def test_an_older_holder_may_move_for_its_own_cause(log: FakeAuditLog) -> None:
    """A conflict with a younger Service does not bind the older one to the address."""
    log.pool("more", "198.51.100.1-198.51.100.1")
    log.service("late", born=2)
    log.assign("late", A)
    log.service("web", born=1, notes={"kavip.io/pool": "more"})
    log.assign("web", "198.51.100.1")
    log.count(1)
    log.count(1, pool="more")
    assert found(log.check()) == ["doubles"]


def test_a_write_that_changes_nothing_is_found(log: FakeAuditLog) -> None:
    """The time of a condition is not a change, for a Service and for a pool."""
    log.assign("web", A)
    log.count(1)
    assert found(log.check()) == ["needless"]
    log.count(1)
    assert len(log.check().needless) == 2


def test_an_edit_that_changes_nothing_is_not_kavips_needless_write(log: FakeAuditLog) -> None:
    """The response has the version that kavip has just written, and may be logged first."""
    log.count(1)
    log.service("late", born=2)
    log.assign("late", reason="PoolExhausted")
    edit = {**log.lines[-1], "userAgent": "users", "verb": "patch"}
    log.lines.insert(-1, edit)
    assert found(log.check()) == []


def test_writes_of_other_clients_do_not_count(log: FakeAuditLog) -> None:
    """Only writes with kavip's user agent count as moves or as needless."""
    log.count(1)
    log.assign("web", A, agent="users")
    assert found(log.check()) == []


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
    log: FakeAuditLog, spec: dict[str, Any], waits: bool
) -> None:
    """A request that cannot be served is no finding."""
    log.pool("edge", f"{A}-{B}")
    log.pool("more", "203.0.113.1-203.0.113.1", autoAssign=False)
    log.count(1)
    log.service("late", born=2, **spec)
    assert found(log.check()) == (["waiting"] if waits else [])


def test_an_excluded_address_is_not_free(log: FakeAuditLog) -> None:
    """Its holder keeps it, and a pool does not count it."""
    log.pool("edge", f"{A}-{B}", exclude=[f"{B}/32", f"{A}/32"])
    log.service("late", born=2)
    assert found(log.check()) == []


def test_the_second_family_comes_from_the_same_pool_or_not_at_all() -> None:
    """A dual-stack Service with one address waits only for the other family of that pool."""
    log = FakeAuditLog()
    log.pool("four", f"{A}/32")
    log.pool("six", "2001:db8::1/128")
    log.service("web", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack")
    log.assign("web", A)
    log.count(1, pool="four")
    assert found(log.check()) == []
    log.pool("four", f"{A}/32", "2001:db8:4::1/128")
    assert found(log.check()) == ["waiting"]
    log.pool("four", f"{A}/32", "2001:db8:4::1/128", autoAssign=False)
    assert found(log.check()) == [], "this pool gives only to Services that name it"
    log.service("web", ipFamilies=["IPv4", "IPv6"], ipFamilyPolicy="PreferDualStack", notes={"kavip.io/pool": "four"})
    assert found(log.check()) == ["waiting"]


def test_an_address_that_is_not_freed_is_found(log: FakeAuditLog) -> None:
    """A Service that is no longer of type LoadBalancer must not hold an address."""
    log.count(1)
    log.service("web", born=1, type="ClusterIP")
    assert found(log.check()) == ["kept"]


def test_a_pool_that_counts_wrongly_is_found(log: FakeAuditLog) -> None:
    """A leak in the ledger appears here first."""
    assert found(log.check()) == ["counters"]
    log.count(1)
    assert found(log.check()) == []


def test_the_order_of_the_lines_does_not_matter(log: FakeAuditLog) -> None:
    """Lines are in the order of the responses; the versions give the order of the writes."""
    log.count(1)
    log.service("late", born=2)
    log.delete("web")
    log.assign("late", A)
    forward = log.check()
    log.lines.reverse()
    assert log.check() == forward


def test_rejected_writes_do_not_count(log: FakeAuditLog) -> None:
    """A conflict is no write."""
    log.count(1)
    log.service("late", born=2)
    log.assign("late", reason="PoolExhausted")
    log.assign("late", A)
    log.lines[-1]["responseStatus"]["code"] = 409
    assert found(log.check()) == []


@pytest.mark.parametrize("module", [checker, facts, rules])
def test_the_checker_imports_nothing_of_kavip(module: ModuleType) -> None:
    """Nothing of kavip is imported."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    names = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    names += [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    assert names
    assert not [name for name in names if name.split(".")[0] == "kavip"]


def test_a_write_without_a_response_is_found_in_the_remaining_objects(log: FakeAuditLog) -> None:
    """The result of a last write without a response is no finding."""
    log.count(1)
    log.service("late", born=2)
    log.delete("web")
    log.assign_without_response("late", A)
    assert found(log.check()) == []


def test_a_write_after_one_without_a_response_is_not_needless(log: FakeAuditLog) -> None:
    """It reverts a change that is not in the log. The next write without a change is a finding again."""
    log.count(1)
    log.assign_without_response("web", A, reason="Stranded")
    log.assign("web", A)
    assert found(log.check()) == []
    log.assign("web", A)
    assert found(log.check()) == ["needless"]
