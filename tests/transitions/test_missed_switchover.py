"""A node that misses a switchover and comes back with its old configuration does not become a second master."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hack.testbed import process
from kavip import names
from kavip.api.group import PasswordAuth, SecretRef
from tests.agent.pod import PATIENCE
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import LiveGroup, group
from tests.transitions.recording import record
from tests.transitions.switches import published, switched
from tests.transitions.test_switchover import (
    SECOND,
    SERVICES,
    VIPS,
    edited,
    mount_passwords,
    started,
)

pytestmark = pytest.mark.netns

MISSING = "n2"
WITH_PASSWORD = {**SECOND, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="one")}


def miss_switchover(live: LiveGroup, **spec: Any) -> None:
    """Switch all nodes but one, whose daemon and agent are killed after they have seen the announcement."""
    old = published(live).current
    live.simulation.snapshot.put(edited(live, **spec))

    def is_announced() -> bool:
        live.step()
        return all(state.switch_at for state in live.simulation.agents.states_of(GROUP).values())

    process.wait_for("the switch is announced", is_announced, timeout=PATIENCE, interval=0.05)
    live.pods[MISSING].kill_agent()
    live.pods[MISSING].kill_keepalived()
    process.wait_for("the instant passes", lambda: live.step() and has_passed(live), timeout=PATIENCE, interval=0.05)
    live.report_silence(MISSING)
    process.wait_for(
        "the others switch", lambda: switched(live) and published(live).current != old, timeout=PATIENCE, interval=0.05
    )


def has_passed(live: LiveGroup) -> bool:
    """Whether the announced instant has passed."""
    instant = published(live).switch_at
    return instant is None or instant < datetime.now(UTC)


def assert_returns(live: LiveGroup) -> None:
    """Start the node's containers again, with their old run directory; there is no second master."""
    lost = live.pods[MISSING]
    with record(live, VIPS) as recorded:
        lost.start()
        process.wait_for("all run the same", lambda: switched(live), timeout=PATIENCE, interval=0.05)
        live.wait_for_masters()
    assert recorded.double_masters == (), recorded.timeline()
    assert lost.state()["newPassword"] == ""


def test_a_password_that_is_replaced_in_place(make_live_group: MakeLiveGroup) -> None:
    """
    A node that missed the change takes the mounted password, which the other nodes run.

    A pod that starts while the Secret has a newer password has only that one. It runs nothing until all nodes switch,
    and its report starts that switch.
    """
    live = make_live_group(2)
    live.secret = {"one": "s3cr3t_1"}
    live.apply(group(**WITH_PASSWORD), *SERVICES)
    live.wait_for_masters()
    mount_passwords(live, one="s3cr3t_2")
    miss_switchover(live, **WITH_PASSWORD)
    assert_returns(live)
    fresh, other = live.pods[MISSING], live.pods["n1"]
    fresh.kill_agent()
    fresh.kill_keepalived()
    fresh.replace()
    fresh.mount_password("vrrp", one="s3cr3t_3")
    fresh.start()
    fresh.wait_until(
        "it refuses to run", lambda: fresh.state()["refused"].startswith("password: the other nodes use another one")
    )
    fresh.wait_until("it runs nothing", lambda: not fresh.state()["instances"] and VIPS[0] not in fresh.addresses())
    assert fresh.page(names.READY_PATH)[0] == 503
    process.wait_for("the switch is pending", lambda: live.step() or published(live).next is not None, timeout=PATIENCE)
    other.mount_password("vrrp", one="s3cr3t_3")
    process.wait_for("all switch", lambda: switched(live) and bool(fresh.masters()), timeout=PATIENCE, interval=0.05)
    live.wait_for_masters()
    assert all("auth_pass s3cr3t_3\n" in (pod.run_dir / "keepalived.conf").read_text() for pod in live.pods.values())


def test_a_node_that_misses_the_switch_to_unicast(make_live_group: MakeLiveGroup) -> None:
    """The node gets the next text before its keepalived starts."""
    live = started(make_live_group, 2, unicast_enabled=False)
    miss_switchover(live)
    assert_returns(live)
