"""A node that misses a switch, and comes back with what it ran before: it is no second master."""

from datetime import UTC, datetime
from typing import Any

import pytest

from hack.testbed import process
from kavip import names
from kavip.api.group import PasswordAuth, SecretRef
from kavip.reconcile.observed.nodes import Contact
from tests.agent.pod import PATIENCE
from tests.changes.conftest import MakeRig
from tests.changes.rig import Rig, group
from tests.changes.seen import watching
from tests.changes.test_switch import (
    SECOND,
    SERVICES,
    VIPS,
    edited,
    mount_passwords,
    published,
    started,
    switched,
)
from tests.reconcile.scenes import GROUP

pytestmark = pytest.mark.netns

LOST = "n2"
WITH_PASSWORD = {**SECOND, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="one")}


def missed(rig: Rig, **spec: Any) -> None:
    """Let all switch but one node, of which daemon and agent are killed after they have seen the announcement."""
    old = published(rig).current
    rig.world.snapshot.put(edited(rig, **spec))

    def is_announced() -> bool:
        rig.step()
        return all(state.switch_at for state in rig.world.agents.states_of(GROUP).values())

    process.wait_for("the switch is announced", is_announced, timeout=PATIENCE, interval=0.05)
    rig.pods[LOST].kill_agent()
    rig.pods[LOST].kill_keepalived()
    process.wait_for("the instant passes", lambda: rig.step() and has_passed(rig), timeout=PATIENCE, interval=0.05)
    silent = Contact(is_silent=True)  # as the probe says of it, seconds later
    rig.world.agents = rig.world.agents.with_contact(GROUP, LOST, contact=silent)
    process.wait_for(
        "the others switch", lambda: switched(rig) and published(rig).current != old, timeout=PATIENCE, interval=0.05
    )


def has_passed(rig: Rig) -> bool:
    """Whether the instant that was announced is over."""
    instant = published(rig).switch_at
    return instant is None or instant < datetime.now(UTC)


def comes_back(rig: Rig) -> None:
    """Start the containers again, with the run directory that they had; nobody else is disturbed for long."""
    lost = rig.pods[LOST]
    with watching(rig, VIPS) as seen:
        lost.start()
        process.wait_for("all run the same", lambda: switched(rig), timeout=PATIENCE, interval=0.05)
        rig.calm()
    assert seen.double_masters == (), seen.story()
    assert lost.state()["newPassword"] == ""


def test_a_password_that_is_replaced_in_place(make_rig: MakeRig) -> None:
    """
    A node that missed it takes the one that is mounted, which the others run.

    A pod that starts meanwhile knows the new one only: it gives way until all switch, which it brings about.
    """
    rig = make_rig(2)
    rig.secret = {"one": "s3cr3t_1"}
    rig.apply(group(**WITH_PASSWORD), *SERVICES)
    rig.calm()
    mount_passwords(rig, one="s3cr3t_2")
    missed(rig, **WITH_PASSWORD)
    comes_back(rig)
    fresh, other = rig.pods[LOST], rig.pods["n1"]
    fresh.kill_agent()
    fresh.kill_keepalived()
    fresh.replace()
    fresh.mount_password("vrrp", one="s3cr3t_3")
    fresh.start()
    fresh.wait_until(
        "it runs no VIP", lambda: fresh.state()["refused"].startswith("password: the other nodes use another one")
    )
    fresh.wait_until("it runs nothing", lambda: not fresh.state()["instances"] and VIPS[0] not in fresh.addresses())
    assert fresh.get(names.READY_PATH)[0] == 503
    process.wait_for("it is told", lambda: rig.step() or published(rig).next is not None, timeout=PATIENCE)
    other.mount_password("vrrp", one="s3cr3t_3")
    process.wait_for("all switch", lambda: switched(rig) and bool(fresh.masters()), timeout=PATIENCE, interval=0.05)
    rig.calm()
    assert all("auth_pass s3cr3t_3\n" in (pod.run_dir / "keepalived.conf").read_text() for pod in rig.pods.values())


def test_a_node_that_misses_unicast(make_rig: MakeRig) -> None:
    """It has the next text before keepalived starts."""
    rig = started(make_rig, 2, unicast_enabled=False)
    missed(rig)
    comes_back(rig)
