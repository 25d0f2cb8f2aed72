"""VRIDs that another router uses: the counters of keepalived over time, and the condition of the group."""

from dataclasses import replace

import pytest

from kavip.api.agent import decode_state
from kavip.reconcile.observed.agent import counts_of
from kavip.reconcile.observed.agentstates import Collision, NodeState
from kavip.reconcile.observed.collisions import FADE, Sign, Tally, Trace, active, follow, noted
from kavip.reconcile.plan import Key, KeyKind
from tests.reconcile.group.settledgroup import READY, WEB, condition, serving, settled, with_pods
from tests.reconcile.simulatedcluster import GROUP, agent_states, pod
from tests.support import build

TRACE = Trace(WEB, 7, "eth0", Sign.ADDRESSES)
FOUND = Collision(WEB, 7, "eth0", "other addresses")


def counted(*counts: int, step: float = 1.0) -> tuple[Tally, float]:
    """The collisions after answers every *step* seconds, and the time of the last one."""
    tally, at = Tally(), 0.0
    for number, count in enumerate(counts):
        at = number * step
        tally = follow(tally, {TRACE: count}, at=at)
    return tally, at


@pytest.mark.parametrize(
    ("counts", "step", "found"),
    [
        pytest.param(range(0, 30, 2), 1.0, True, id="grows for 14 s"),
        pytest.param(range(6), 10.0, True, id="grows every 10 s"),
        pytest.param([500] * 30, 1.0, False, id="an old error"),
        pytest.param([500], 1.0, False, id="the first answer"),
        pytest.param([0, 5, 9, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12], 1.0, False, id="a roll-out of 3 s"),
        pytest.param([0, 1, 2], 15.0, False, id="two in half a minute"),
        pytest.param([0, 1, 2, 3], 70.0, False, id="one now and then"),
        pytest.param([0, 5, 10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 1.0, True, id="the daemon restarted"),
    ],
)
def test_a_counter_that_keeps_growing_is_a_collision(counts: list[int], step: float, *, found: bool) -> None:
    """Neither the value of a counter nor a single growth proves another router."""
    tally, at = counted(*counts, step=step)
    assert active(tally, at=at) == ((FOUND,) if found else ())


def test_a_collision_ends_when_no_counter_grows() -> None:
    """It ends even if the node's answer never changes again, and needs ten seconds of growth to begin again."""
    tally, at = counted(*range(0, 30, 2))
    state = noted(NodeState(), tally, at=at)
    assert state is not None and state.collisions == (FOUND,)
    assert noted(state, tally, at=at + FADE) is state
    over = noted(state, tally, at=at + FADE + 1)
    assert over == NodeState()
    assert active(follow(tally, {TRACE: 99}, at=at + FADE + 2), at=at + FADE + 2) == ()


def test_a_restart_of_the_daemon_is_no_growth() -> None:
    """A smaller counter is a new start of counting."""
    tally, at = counted(100, 3, 3, 3)
    assert active(tally, at=at) == () and not tally.streaks


def test_counters_are_read_from_an_answer() -> None:
    """They have instance, VRID and interface. An older agent reports none."""
    body = b'{"group": "lb/edge", "instances": [{"name": "shop/web", "routerID": 7, "interface": "eth0", "errors": '
    reported = counts_of(decode_state(body + b'{"addressList": 4, "authentication": 2}}]}'))
    assert reported == {TRACE: 4, TRACE._replace(sign=Sign.PASSWORD): 2, TRACE._replace(sign=Sign.INTERVAL): 0}
    assert set(counts_of(decode_state(b'{"group": "lb/edge", "instances": [{"name": "shop/web"}]}')).values()) == {0}


def test_the_group_names_vrid_interface_and_node() -> None:
    """Ready stays True, because the VIPs answer. After the end the condition no longer has the collision."""
    simulation = with_pods(settled(build.group(), serving(WEB, "192.0.2.130")), pod("p1", "n1"), pod("p2", "n2"))
    simulation.agents = agent_states(
        n1=NodeState(), n2=NodeState(collisions=(FOUND, Collision("shop/x", 9, "eth0", "y")))
    )
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    status, reason, message = condition(simulation, READY)
    assert (status, reason) == ("True", "VRIDCollision")
    assert message == (
        "VRID 7 (and 1 more) on eth0 is used by another router: n2 received adverts with other addresses for instance "
        "shop/web; add it to spec.blacklistRouterIDs of one of the two, so that its VIPs move to another VRID"
    )
    simulation.agents = agent_states(n1=NodeState(), n2=NodeState())
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, READY) == ("True", "Ready", "every pod is ready")


def test_without_an_interface_in_the_report_it_is_that_of_vrrp() -> None:
    """The VIPs may be on another one."""
    group = build.group(vrrp_interface="eth1")
    simulation = with_pods(settled(group, serving(WEB, "192.0.2.130")), pod("p1", "n1"), pod("p2", "n2"))
    simulation.agents = agent_states(n1=NodeState(), n2=NodeState(collisions=(replace(FOUND, interface=""),)))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, READY)[2].startswith("VRID 7 on eth1 is used by another router")
