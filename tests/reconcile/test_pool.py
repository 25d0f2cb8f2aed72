"""The plan of one pool."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.meta import Condition
from kavip.api.pool import Cooling, PoolStatus
from kavip.reconcile.plan import KeyKind, Notice, PoolPlan, StatusPatch
from kavip.reconcile.pool import plan_pool
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Object
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, body_of, cluster
from tests.support import build


def conditions_of(*objects: Object, name: str = "edge") -> dict[str, tuple[str, str]]:
    """Status and reason of each condition that the plan of the pool writes."""
    plan = plan_pool(cluster(*objects), name, now=NOW)
    return {each["type"]: (each["status"], each["reason"]) for each in body_of(plan)["conditions"]}


def test_usage_is_counted_per_family() -> None:
    """Total, assigned and available of each family that the pool has."""
    pool = build.pool("edge", "192.0.2.128/30", "2001:db8::/126")
    holder = build.service("shop/web", group=GROUP, holds=["192.0.2.129"])
    status = body_of(plan_pool(cluster(pool, holder), "edge", now=NOW))
    assert status["ipv4"] == {"total": 4, "assigned": 1, "available": 3}
    assert status["ipv6"] == {"total": 4, "assigned": 0, "available": 4}


def test_a_pool_without_assignable_addresses_names_the_cause() -> None:
    """An address that ends in .0 and is avoided is not excluded by spec.exclude."""
    plan = plan_pool(cluster(build.pool("edge", "192.0.2.0/32", avoid_buggy_ips=True)), "edge", now=NOW)
    (ready,) = [each for each in body_of(plan)["conditions"] if each["type"] == "Ready"]
    assert ready["reason"] == "NoAddresses"
    assert "spec.avoidBuggyIPs" in ready["message"]


def test_a_plan_applied_to_its_own_result_is_empty() -> None:
    """Nothing is written while nothing changes."""
    simulation = SimulatedCluster(cluster(build.pool()))
    (write,) = simulation.pool("edge").writes
    assert isinstance(write, StatusPatch) and write.kind == KeyKind.POOL
    assert not simulation.pool("edge").writes
    simulation.snapshot.put(build.service("shop/web", group=GROUP, holds=["192.0.2.129"]))
    assert body_of(simulation.pool("edge")) == {"ipv4": {"assigned": 1, "available": 15}}


@pytest.mark.parametrize(
    ("pool", "accepted", "ready"),
    [
        (build.pool(), ("True", "Accepted"), ("True", "Ready")),
        (build.pool("edge", "192.0.2.1-nonsense"), ("False", "Invalid"), ("False", "NoAddresses")),
        (
            build.pool("edge", "192.0.2.128/30", exclude=["192.0.2.128/30"]),
            ("True", "Accepted"),
            ("False", "NoAddresses"),
        ),
    ],
    ids=["fine", "invalid", "nothing left"],
)
def test_conditions(pool: Object, accepted: tuple[str, str], ready: tuple[str, str]) -> None:
    """The conditions report whether a pool is in force and has assignable addresses."""
    assert conditions_of(pool) == {"Accepted": accepted, "Ready": ready}


@pytest.mark.parametrize(
    ("pool", "others", "kind", "message"),
    [
        (build.pool(), (), "Accepted", "in force: 16 IPv4 addresses to give"),
        (
            build.pool("edge", "192.0.2.128/31", "2001:db8::/64"),
            (),
            "Accepted",
            "in force: 2 IPv4 and 18446744073709551616 IPv6 addresses to give",
        ),
        (build.pool(), (), "Ready", "IPv4 addresses are free"),
        (
            build.pool("edge", "192.0.2.128", "2001:db8::/64"),
            (build.service("shop/web", holds=["192.0.2.128"]),),
            "Ready",
            "IPv6 addresses are free; full: IPv4 1 of 1 assigned",
        ),
        (
            build.pool("edge", "192.0.2.128", "2001:db8::1"),
            (build.service("shop/web", holds=["192.0.2.128"]), build.node("n9", "2001:db8::1")),
            "Ready",
            (
                "full: IPv4 1 of 1 assigned and IPv6 0 of 1 assigned, 1 kept back "
                "(reservations, nodes, groups, API server); free an address or add some to spec.addresses"
            ),
        ),
        (
            build.pool("edge", "192.0.2.130", created="2026-02-01T00:00:00Z"),
            (build.pool("old"),),
            "Accepted",
            (
                "spec.addresses: 192.0.2.130 overlaps 192.0.2.128/28 of pool old; remove it from one of the two; "
                "that pool was there first and stays in force"
            ),
        ),
        (
            build.pool("edge", "10.0.0.1/8"),
            (),
            "Accepted",
            "spec.addresses[0]: '10.0.0.1/8': has host bits set; write 10.0.0.0/8 or 10.0.0.1",
        ),
        (build.pool("edge", "10.0.0.1/8"), (), "Ready", "the pool is not accepted, so it gives nothing"),
        (
            build.pool(),
            (
                build.endpoints("default/kubernetes", addresses=["192.0.2.130"]),
                build.service_range("192.0.2.128/31"),
                build.node("n9", "10.0.0.1", pod_cidrs=["192.0.2.132/30"]),
            ),
            "Accepted",
            (
                "in force: 14 IPv4 addresses to give; it never gives 192.0.2.130 (the API server), the cluster's "
                "Service range 192.0.2.128/31 (ServiceCIDR kubernetes): list these in spec.exclude; it overlaps the "
                "pod range 192.0.2.132/30 of Node n9: list this in spec.exclude if pods have the addresses"
            ),
        ),
        (
            build.pool(exclude=["192.0.2.128-192.0.2.131"]),
            (
                build.endpoints("default/kubernetes", addresses=["192.0.2.130"]),
                build.service_range("192.0.2.128/31"),
                build.node("n9", "10.0.0.1", pod_cidrs=["192.0.2.128/30"]),
            ),
            "Accepted",
            "in force: 12 IPv4 addresses to give",
        ),
    ],
)
def test_messages_have_numbers_that_rarely_change(
    pool: Object, others: tuple[Object, ...], kind: str, message: str
) -> None:
    """Assigned addresses are counted only for a family that is full, so that a message does not change all the time."""
    written = body_of(plan_pool(cluster(pool, *others), "edge", now=NOW))["conditions"]
    assert next(each["message"] for each in written if each["type"] == kind) == message


def test_a_stored_pool_with_an_address_of_the_api_server_warns_once_and_serves_on() -> None:
    """One Warning Event names the address; the next plan, with the condition written, has none."""
    snapshot = cluster(build.pool(), build.endpoints("default/kubernetes", addresses=["192.0.2.130"]))
    plan = plan_pool(snapshot, "edge", now=NOW)
    assert [(event.reason, event.warning) for event in plan.events] == [("Accepted", True)]
    assert "192.0.2.130 (the API server)" in plan.events[0].message
    assert snapshot.ledger.usage("edge")[4].available == 15
    reported = [Condition(**each) for each in _stored(body_of(plan)["conditions"])]
    stored = msgspec.structs.replace(build.pool(), status=PoolStatus(conditions=reported))
    snapshot.put(stored)
    assert plan_pool(snapshot, "edge", now=NOW).events == ()


def test_a_pod_range_that_a_node_claims_later_is_one_event() -> None:
    """The pool keeps all its addresses; the condition and the Event name the Node."""
    simulation = SimulatedCluster(cluster(build.pool()))
    assert simulation.pool("edge").events == ()
    simulation.snapshot.put(build.node("n9", "10.0.0.1", pod_cidrs=["192.0.2.128/25"]))
    (event,) = simulation.pool("edge").events
    assert event.warning and "it overlaps the pod range 192.0.2.128/25 of Node n9" in event.message
    assert simulation.pool("edge").events == ()
    assert simulation.snapshot.ledger.usage("edge")[4].available == 16


def _stored(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The written conditions by the names of the fields of the type."""
    names = {"lastTransitionTime": "last_transition_time", "observedGeneration": "observed_generation"}
    return [{names.get(key, key): value for key, value in each.items()} for each in entries]


def test_a_pool_makes_one_event_for_each_change_of_reason() -> None:
    """None while it is well from the start, none twice, one when it is full, and one when it is no longer."""
    simulation = SimulatedCluster(cluster(build.pool("edge", "192.0.2.128")))
    assert simulation.pool("edge").events == ()
    simulation.snapshot.put(build.service("shop/web", group=GROUP, holds=["192.0.2.128"]))
    full = "full: 1 of 1 assigned; free an address or add some to spec.addresses"
    assert simulation.pool("edge").events == (Notice("Exhausted", full, warning=True),)
    assert simulation.pool("edge").events == ()
    simulation.snapshot.drop("Service", "shop/web")
    assert simulation.pool("edge").events == (Notice("Ready", "IPv4 addresses are free", warning=False),)
    late = cluster(build.pool("old"), build.pool("edge", created="2026-02-01T00:00:00Z"))
    assert [notice.reason for notice in plan_pool(late, "edge", now=NOW).events] == ["Overlap"]


def test_sizes_stop_at_the_largest_integer_of_the_api() -> None:
    """A /64 is larger than the largest number in status."""
    status = body_of(plan_pool(cluster(build.pool("edge", "2001:db8::/48")), "edge", now=NOW))
    assert status["ipv6"] == {"total": 2**63 - 1, "assigned": 0, "available": 2**63 - 1}


def test_a_full_pool_is_exhausted() -> None:
    """Every address has a holder."""
    holder = build.service("shop/web", group=GROUP, holds=["192.0.2.128"])
    assert conditions_of(build.pool("edge", "192.0.2.128/32"), holder)["Ready"] == ("False", "Exhausted")


def test_the_younger_of_two_pools_that_overlap_reports_it() -> None:
    """The older one stays in force."""
    older, younger = build.pool("old"), build.pool("edge", created="2026-02-01T00:00:00Z")
    assert conditions_of(older, younger) == {"Accepted": ("False", "Overlap"), "Ready": ("False", "NoAddresses")}
    assert conditions_of(older, younger, name="old")["Accepted"] == ("True", "Accepted")


RESTING = build.pool("edge", "192.0.2.128/30", cooldown_seconds=60)
FREED = {"address": "192.0.2.129", "service": "shop/web", "until": "2026-03-01T12:01:00Z"}


def freed(*objects: Object) -> SimulatedCluster:
    """A cluster whose leader has just observed the deletion of ``shop/web``, which freed its address."""
    simulation = SimulatedCluster(
        cluster(RESTING, build.service("shop/web", group=GROUP, holds=["192.0.2.129"]), *objects)
    )
    simulation.snapshot.ledger.cooldown.lead(NOW)
    simulation.pool("edge")
    simulation.snapshot.drop(names.SERVICE, "shop/web")
    simulation.snapshot.ledger.cooldown.start(NOW)
    return simulation


def test_a_cool_down_is_in_status_until_its_end() -> None:
    """It is written at once, and removed in one write when the pool is requeued at its end."""
    simulation = freed()
    plan = simulation.pool("edge")
    assert body_of(plan) == {"cooling": [FREED], "ipv4": {"assigned": 0}}
    assert plan.requeue_after == 60
    assert simulation.pool("edge") == PoolPlan(requeue_after=60)
    simulation.later(60)
    simulation.snapshot.ledger.cooldown.expire(simulation.now)
    assert body_of(simulation.pool("edge")) == {"cooling": None, "ipv4": {"available": 4}}
    assert simulation.pool("edge") == PoolPlan()


def test_cool_downs_written_by_another_client_are_corrected() -> None:
    """The leader has the cool-downs in its ledger, and ignores those in status."""
    simulation = freed()
    simulation.pool("edge")
    pool = simulation.snapshot.pools["edge"]
    bad = [Cooling(address="nonsense", service="", until=""), Cooling(**{**FREED, "until": "9999-12-31T23:59:59Z"})]
    simulation.snapshot.put(msgspec.structs.replace(pool, status=msgspec.structs.replace(pool.status, cooling=bad)))
    assert body_of(simulation.pool("edge")) == {"cooling": [FREED]}


def test_the_next_leader_reads_cool_downs_from_status() -> None:
    """A restart changes nothing: the address stays reserved for the same Service."""
    simulation = freed()
    simulation.pool("edge")
    reader = cluster(*simulation.snapshot.pools.values(), build.group(), build.service("shop/web", group=GROUP))
    reader.ledger.cooldown.lead(NOW)
    assert plan_pool(reader, "edge", now=NOW) == PoolPlan(requeue_after=60)
    assert plan_service(reader, "shop/web", now=NOW).claims == (parse_address("192.0.2.129"),)
    reader.put(build.service("shop/other", group=GROUP))
    assert plan_service(reader, "shop/other", now=NOW).claims == (parse_address("192.0.2.128"),)


def test_an_own_status_write_does_not_parse_the_pools_again() -> None:
    """The event changes nothing that decisions read."""
    simulation = freed()
    before = simulation.snapshot.parsed_pools
    simulation.pool("edge")
    assert simulation.snapshot.parsed_pools is before
    simulation.snapshot.put(build.pool("edge", "192.0.2.128/31", cooldown_seconds=60))
    assert simulation.snapshot.parsed_pools is not before


def test_a_deleted_pool_is_not_written() -> None:
    """The plan is empty."""
    assert plan_pool(cluster(), "edge", now=NOW) == PoolPlan()
