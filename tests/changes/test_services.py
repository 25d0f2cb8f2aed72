"""Services and addresses that come, change and go: nobody else notices, in whatever order nodes get to know."""

import random

import pytest

from kavip import names
from kavip.api.group import Instances
from tests.changes.conftest import MakeRig
from tests.changes.rig import INTERVAL, group, service
from tests.changes.seen import watching

pytestmark = pytest.mark.netns

STEADY = ["192.0.2.130", "192.0.2.131", "2001:db8:2::131"]
LATE = 4 * INTERVAL
"""Seconds by which one node gets to know later than the others: enough to be taken for dead."""


@pytest.mark.parametrize("mode", ["PerService", "Shared"])
def test_services_that_come_change_and_go_disturb_nobody(make_rig: MakeRig, mode: str) -> None:
    """No transition, no lost request, no second master for the others, with nodes that follow one after the other."""
    rig, chance = make_rig(3), random.Random(mode)
    spec = {"instances": Instances(mode=mode, count=2)} if mode == "Shared" else {}
    rig.apply(group(**spec), service("shop/web", STEADY[0]), service("shop/cart", *STEADY[1:]))
    settled = set(rig.calm())

    def delays() -> dict[str, float]:
        late, *others = chance.sample(sorted(rig.pods), len(rig.pods))
        return {late: LATE, **{name: chance.uniform(0, 0.3) for name in others}}

    with watching(rig, STEADY) as seen:
        rig.apply(service("shop/new", "192.0.2.140"), delays=delays())
        rig.apply(service("shop/cart", "192.0.2.129", *STEADY[1:]), delays=delays())
        rig.apply(service("shop/cart", *STEADY[1:]), service("shop/new", "192.0.2.139"), delays=delays())
        rig.delete(names.SERVICE, "shop/new", delays=delays())
    assert (seen.failures, seen.resets, seen.double_masters) == ({}, {}, ()), seen.story()
    assert seen.transitions.keys() & settled == set(), seen.story()
