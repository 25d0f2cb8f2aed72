"""The eligible pools of a request: the same as after a check of every pool, without checking every pool."""

from random import Random
from typing import Any

import pytest

from kavip.api.meta import LabelSelector, Requirement
from kavip.api.pool import VIPPool
from kavip.ipam.eligibility import Audience
from kavip.ipam.pools import Pools
from kavip.ipam.request import Request, read_request
from tests.support.build import pool, service

KEYS, VALUES = ("team", "env", "tier"), ("a", "b", "c")


def _selector(random: Random) -> LabelSelector | None:
    if random.random() < 0.4:
        return None
    operator = random.choice(("In", "NotIn", "Exists", "DoesNotExist"))
    values = random.choices(VALUES, k=2) if operator in ("In", "NotIn") else None
    terms = [Requirement(random.choice(KEYS), operator, values)] if random.random() < 0.4 else None
    return LabelSelector(match_labels=_labels(random) or None, match_expressions=terms)


def _labels(random: Random) -> dict[str, str]:
    return {key: random.choice(VALUES) for key in random.sample(KEYS, random.randrange(3))}


def _pool(random: Random, number: int) -> VIPPool:
    return pool(
        f"p{number}",
        f"10.0.{number}.0/24",
        priority=random.randrange(3),
        auto_assign=random.random() < 0.9,
        groups=[f"lb/{name}" for name in random.sample("xyz", random.randrange(3))] or None,
        service_selector=_selector(random),
        namespace_selector=_selector(random),
    )


def _request(random: Random) -> Request:
    return read_request(service("a/web", labels=_labels(random)), group=f"lb/{random.choice('xyz')}")[0]


@pytest.mark.parametrize("seed", range(40))
def test_the_eligible_pools_are_those_that_match_in_order(seed: int) -> None:
    """The pools that serve a request are found for any selectors, each once, by priority and name."""
    random = Random(seed)
    pools = Pools.of(_pool(random, number) for number in range(random.randrange(1, 25)))
    for _ in range(20):
        request, labels = _request(random), _labels(random)
        wanted = [each for each in pools.in_force if each.auto_assign and not each.mismatch(request, labels)]
        assert list(pools.eligible(request, labels)) == wanted


@pytest.mark.parametrize("demand", ["groups", "namespace_selector", "service_selector", "expressions", "equal"])
def test_a_request_is_not_compared_with_every_pool(demand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 300 pools for other Services, a decision checks only the few that may match."""

    def mine(number: int) -> dict[str, Any]:
        common, own = {"env": "prod"}, {"team": f"t{number}"}
        demands: dict[str, dict[str, Any]] = {
            "groups": {"groups": [f"lb/g{number}", f"lb/h{number}"]},
            "namespace_selector": {"namespace_selector": LabelSelector(match_labels=common | own)},
            "service_selector": {"service_selector": LabelSelector(match_labels=common | own)},
            "expressions": {
                "namespace_selector": LabelSelector(match_expressions=[Requirement("team", "In", list(own.values()))])
            },
            "equal": {"service_selector": LabelSelector(match_labels=common)},
        }
        return demands[demand]

    pools = Pools.of(
        pool(f"p{number:03}", f"10.{number // 250}.{number % 250}.0/24", **mine(number)) for number in range(300)
    )
    labels = {"env": "prod", "team": "t77"}
    request, _ = read_request(service("a/web", labels=labels), group="lb/h77")
    looked: list[Audience] = []
    has = Audience.has

    def counting(self: Audience, *arguments: Any) -> bool:
        looked.append(self)
        return has(self, *arguments)

    monkeypatch.setattr(Audience, "has", counting)
    found = [each.name for each in pools.eligible(request, labels)]
    assert found == (["p077"] if demand != "equal" else [each.name for each in pools.in_force])
    assert len(looked) == 1
