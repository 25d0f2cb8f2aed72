"""Services and addresses that come, change and go: nobody else notices, in whatever order nodes get to know."""

import pytest

from kavip import names
from tests.changes.conftest import MakeRig
from tests.changes.rig import group, service
from tests.changes.seen import watching

pytestmark = pytest.mark.netns

STEADY = ["192.0.2.130", "192.0.2.131", "2001:db8:2::131"]


def test_services_that_come_change_and_go_disturb_nobody(make_rig: MakeRig) -> None:
    """No transition, no lost request, no second master for the others, with nodes that follow one after the other."""
    rig = make_rig(3)
    rig.apply(group(), service("shop/web", STEADY[0]), service("shop/cart", *STEADY[1:]))
    for name in ("shop/web", "shop/cart", "shop/cart/v6"):
        rig.master(name)
    with watching(rig, STEADY) as seen:
        rig.apply(service("shop/new", "192.0.2.140"), delays={"n2": 0.8, "n1": 0.4})
        rig.apply(service("shop/cart", "192.0.2.129", *STEADY[1:]), delays={"n3": 0.8, "n1": 0.4})
        rig.apply(service("shop/cart", *STEADY[1:]), delays={"n1": 0.8, "n2": 0.4})
        rig.master("shop/new")
        rig.delete(names.SERVICE, "shop/new", delays={"n3": 0.4, "n2": 0.8})
    assert seen.failures == {}
    assert seen.double_masters == ()
    assert {name for name in seen.transitions if name != "shop/new"} == set()
