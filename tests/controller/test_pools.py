"""The plan of one pool: state in, state out."""

import pytest

from kavip.controller.outcome import Kind, Plan
from kavip.controller.pools import plan_pool
from kavip.snapshot import Object
from tests import build
from tests.controller.scenes import GROUP, NOW, World, body_of, cluster


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


def test_a_plan_applied_to_its_own_result_is_empty() -> None:
    """Nothing is written while nothing changes."""
    world = World(cluster(build.pool()))
    assert world.pool("edge").writes[0].kind == Kind.POOL  # type: ignore[union-attr]
    assert not world.pool("edge").writes
    world.snapshot.put(build.service("shop/web", group=GROUP, holds=["192.0.2.129"]))
    assert body_of(world.pool("edge")) == {"ipv4": {"assigned": 1, "available": 15}}


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
    """A pool says whether it is in force and has something to give."""
    assert conditions_of(pool) == {"Accepted": accepted, "Ready": ready}


def test_a_full_pool_is_exhausted() -> None:
    """Every address has a holder."""
    holder = build.service("shop/web", group=GROUP, holds=["192.0.2.128"])
    assert conditions_of(build.pool("edge", "192.0.2.128/32"), holder)["Ready"] == ("False", "Exhausted")


def test_the_younger_of_two_pools_that_overlap_says_so() -> None:
    """The older one stays in force."""
    older, younger = build.pool("old"), build.pool("edge", created="2026-02-01T00:00:00Z")
    assert conditions_of(older, younger) == {"Accepted": ("False", "Overlap"), "Ready": ("False", "NoAddresses")}
    assert conditions_of(older, younger, name="old")["Accepted"] == ("True", "Accepted")


def test_a_pool_that_is_gone_is_not_written() -> None:
    """There is nothing to say."""
    assert plan_pool(cluster(), "edge", now=NOW) == Plan()
