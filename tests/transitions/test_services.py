"""
Services and addresses that are added, changed and deleted do not disturb others, whichever node learns of it first.
"""

import random

import pytest

from kavip import names
from kavip.api.group import Instances
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import INTERVAL, group, service
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

STEADY = ["192.0.2.130", "192.0.2.131", "2001:db8:2::131"]
LATE = 4 * INTERVAL
"""Seconds by which one node lags behind the others: enough to be taken for dead."""


@pytest.mark.parametrize("mode", ["PerService", "Shared"])
def test_services_that_are_added_changed_and_deleted_do_not_disturb_others(
    make_live_group: MakeLiveGroup, mode: str
) -> None:
    """
    The other Services see no transition, no lost request and no second master while nodes reload one after the other.
    """
    live, chance = make_live_group(3), random.Random(mode)
    spec = {"instances": Instances(mode=mode, count=2)} if mode == "Shared" else {}
    live.apply(group(**spec), service("shop/web", STEADY[0]), service("shop/cart", *STEADY[1:]))
    settled = set(live.wait_for_masters())

    def delays() -> dict[str, float]:
        late, *others = chance.sample(sorted(live.pods), len(live.pods))
        return {late: LATE, **{name: chance.uniform(0, 0.3) for name in others}}

    with record(live, STEADY) as recorded:
        live.apply(service("shop/new", "192.0.2.140"), delays=delays())
        live.apply(service("shop/cart", "192.0.2.129", *STEADY[1:]), delays=delays())
        live.apply(service("shop/cart", *STEADY[1:]), service("shop/new", "192.0.2.139"), delays=delays())
        live.delete(names.SERVICE, "shop/new", delays=delays())
    assert (recorded.failures, recorded.resets, recorded.double_masters) == ({}, {}, ()), recorded.timeline()
    assert recorded.transitions.keys() & settled == set(), recorded.timeline()
