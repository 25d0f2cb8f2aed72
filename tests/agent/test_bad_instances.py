"""Faulty instances beside a real keepalived, which runs all others."""

import pytest

from tests.agent import badinstances, mounts
from tests.agent.conftest import MakePod
from tests.agent.podstates import master, started

pytestmark = pytest.mark.netns

GOOD = {"shop/a": "192.0.2.130", "shop/m": "192.0.2.131", "shop/z": "192.0.2.132"}
AT_ONCE = 6
CASES: list[str | tuple[str, str]] = [*badinstances.ADDED, *badinstances.REPLACED]


def spoilt(text: str, name: str, case: str | tuple[str, str]) -> str:
    """*text* with one fault in the instance *name*."""
    head, opening, rest = text.partition(f"vrrp_instance {name} {{\n")
    body, closing, tail = rest.partition("\n}\n")
    wrong = f"{body}\n    {case}" if isinstance(case, str) else body.replace(*case, 1)
    assert wrong != body, case
    return head + opening + wrong + closing + tail


def test_a_faulty_instance_stops_no_other(pod: MakePod) -> None:
    """Each is excluded with a message that quotes nothing; new instances run every time, and no VIP moves."""
    assert len(CASES) >= 60
    node = master(started(pod("n1"), mounts.rendered(GOOD, nodes=1)), *GOOD)
    assert node.keepalived is not None
    before = node.transitions()
    for first in range(0, len(CASES), AT_ONCE):
        bad = {f"bad/i{first + number:03}": case for number, case in enumerate(CASES[first : first + AT_ONCE])}
        neighbour = {f"shop/n{first:03}": f"192.0.2.{133 + first // AT_ONCE}"}
        vips = {name: f"192.0.2.{160 + number}" for number, name in enumerate(bad)}
        text = mounts.rendered({**GOOD, **neighbour, **vips}, nodes=1)
        for name, case in bad.items():
            text = spoilt(text, name, case)
        node.runs(node.config.write(text))
        state = node.state()
        reasons = {each["name"]: each["reason"] for each in state["leftOut"]}
        assert sorted(reasons) == sorted(bad), [case for name, case in bad.items() if name not in reasons]
        assert {each["name"] for each in state["instances"]} == {*GOOD, *neighbour}
        assert not any(word in str(reasons) for word in ("passwd", "shadow", "nonsense", "nothing", "no_such"))
        assert {name: counts for name, counts in node.transitions().items() if name in GOOD} == before
        assert node.keepalived.alive
    assert {*GOOD.values()} <= node.addresses()
