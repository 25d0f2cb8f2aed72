"""
Changes that all nodes make at one announced instant.

One fail-over at most where keepalived has to begin an instance anew, nothing at all where it goes on as master, and
never two masters for longer than an interval.
"""

from typing import Any

import msgspec
import pytest

from hack.testbed import process
from kavip.api.group import Instances, KeepalivedGroup, PasswordAuth, SecretRef
from kavip.reconcile.rollout import switchover
from kavip.reconcile.rollout.configmap import PublishedRevisions, read_published, settings_of
from tests.agent.pod import PATIENCE
from tests.changes.conftest import MakeRig
from tests.changes.rig import INTERVAL, Rig, group, service
from tests.changes.seen import Seen, watching
from tests.reconcile.group.grouping import PROGRAMMED, condition
from tests.reconcile.scenes import GROUP

pytestmark = pytest.mark.netns

WEB, CART, SIX = "192.0.2.130", "192.0.2.131", "2001:db8:2::131"
VIPS = [WEB, CART, SIX]
SERVICES = [service("shop/web", WEB), service("shop/cart", CART, SIX)]
FAIL_OVER = 4 * INTERVAL
"""What a silent death costs: three intervals and the skew, less than one more. What the machine adds is measured."""
TOO_LATE = {"LEAD": 6.0, "FROZEN": 5.0, "LAST_LOOK": 4.5, "TOO_LATE": 0.5}
LATE = {"n2": 5.7}
"""Later than the last look before the instant, and not after it; a busy machine has seconds for the look."""
SECOND: dict[str, Any] = {"vrrp_version": 2, "advert_interval_milliseconds": 1000}
TWO_SECONDS: dict[str, Any] = {"vrrp_version": 2, "advert_interval_milliseconds": 2000}
WITH_PASSWORD = {**TWO_SECONDS, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="one")}
WITH_ANOTHER = {**TWO_SECONDS, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="two")}
SHARED = {"instances": Instances(mode="Shared", count=2)}


def started(make_rig: MakeRig, nodes: int, **spec: Any) -> Rig:
    """Nodes on which the Services have their masters."""
    rig = make_rig(nodes)
    rig.apply(group(**spec), *SERVICES)
    rig.calm()
    return rig


def changed(rig: Rig, **spec: Any) -> Seen:
    """Edit the group, and watch until all nodes have switched and every instance has a master."""
    with watching(rig, VIPS) as seen:
        old = published(rig).current
        rig.world.snapshot.put(edited(rig, **spec))
        process.wait_for(
            "all switch", lambda: switched(rig) and published(rig).current != old, timeout=PATIENCE, interval=0.05
        )
        rig.calm()
    return seen


def edited(rig: Rig, **spec: Any) -> KeepalivedGroup:
    """The group of *rig* with another spec, and the status that it has."""
    return msgspec.structs.replace(rig.world.snapshot.groups[GROUP], spec=group(**spec).spec)


def published(rig: Rig) -> PublishedRevisions:
    """What stands in the ConfigMap."""
    found = read_published(rig.world.objects.configmaps[GROUP], settings_of(rig.world.snapshot.groups[GROUP]))
    assert found is not None
    return found


def stepped(rig: Rig) -> PublishedRevisions:
    """What is published after one round in which one mount is late."""
    rig.step(delays=LATE)
    return published(rig)


def switched(rig: Rig) -> bool:
    """One round; whether all nodes run what is published, and nothing is pending."""
    return rig.step() and published(rig).next is None


def test_multicast_to_unicast_and_back(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    keepalived takes it for another instance: nobody is master for as long as a fail-over takes, and never two.

    The first announcement reaches one node too late: nobody switches, the condition says whom they wait for, and what
    happens to Services meanwhile happens. Then all do, and back.
    """
    rig = started(make_rig, 3, unicast_enabled=False)
    with watching(rig, VIPS) as seen:
        rig.world.snapshot.put(edited(rig))
        with monkeypatch.context() as slow:
            for name, seconds in TOO_LATE.items():
                slow.setattr(switchover, name, seconds)
            rig.step()
            process.wait_for("it is announced", lambda: bool(stepped(rig).switch_at), timeout=PATIENCE)
            process.wait_for("it is called off", lambda: bool(stepped(rig).aborts), timeout=PATIENCE)
        reason, message = condition(rig.world, PROGRAMMED)[1:]
        assert reason == "Pending"
        assert message.endswith("(multicast to unicast) waits for node n2: it has not seen the announcement")
        assert {pod.state()["configHash"] for pod in rig.pods.values()} == {published(rig).current.hash}
        assert published(rig).current.text.count("unicast_peer") == 0
        rig.world.snapshot.put(service("shop/new", "192.0.2.140"))
        process.wait_for("all switch", lambda: switched(rig), timeout=PATIENCE, interval=0.05)
        rig.calm()
    assert published(rig).current.text.count("unicast_peer") == 4
    for each in (seen, changed(rig, unicast_enabled=False)):
        assert each.double_masters == (), each.story()
        assert each.longest_silence <= FAIL_OVER + each.pause, each.story()


def test_what_a_master_goes_on_with(make_rig: MakeRig) -> None:
    """Version, interval of version 2, password: no transition, no second master, no request is lost."""
    rig = started(make_rig, 2)
    mount_passwords(rig, one="s3cr3t_1", two="s3cr3t_2")
    for spec in (SECOND, WITH_PASSWORD, WITH_ANOTHER):
        noticed_nothing(changed(rig, **spec))
    with watching(rig, VIPS) as seen:
        mount_passwords(rig, two="s3cr3t_3")
        process.wait_for(
            "all see it", lambda: all(pod.state()["newPassword"] for pod in rig.pods.values()), timeout=PATIENCE
        )
        process.wait_for("all switch", lambda: switched(rig), timeout=PATIENCE, interval=0.05)
        rig.calm()
    noticed_nothing(seen)
    assert all("auth_pass s3cr3t_3\n" in (pod.run_dir / "keepalived.conf").read_text() for pod in rig.pods.values())


def noticed_nothing(seen: Seen) -> None:
    """No transition, no lost request, no second master."""
    assert (seen.transitions, seen.failures, seen.double_masters) == ({}, {}, ()), seen.story()


def mount_passwords(rig: Rig, **keys: str) -> None:
    """Mount the group's Secret on every node."""
    for pod in rig.pods.values():
        pod.mount_password("vrrp", **keys)


def test_per_service_to_shared_and_back(make_rig: MakeRig) -> None:
    """The VIPs move into masters that are there already; nobody waits for an election."""
    rig = started(make_rig, 3)
    seen = changed(rig, **SHARED)
    assert seen.longest_silence < FAIL_OVER / 2 + seen.pause, seen.story()
    assert seen.double_masters == (), seen.story()
    assert set(rig.pods["n1"].instances()) == {"group/0", "group/0/v6", "group/1", "group/1/v6"}
    seen = changed(rig)
    assert seen.longest_silence <= FAIL_OVER + seen.pause, seen.story()


def test_nobody_switches_to_where_nobody_is_heard(make_rig: MakeRig) -> None:
    """Unicast comes from the nodes' own addresses: no node goes to a card without one, where each would be master."""
    rig = started(make_rig, 2)
    for pod in rig.pods.values():
        pod.host.exec("ip", "link", "add", "link", "eth0", "name", "eth9", "type", "macvlan", "mode", "bridge")
        pod.host.exec("ip", "link", "set", "eth9", "up")
    with watching(rig, VIPS) as seen:
        rig.world.snapshot.put(edited(rig, vrrp_interface="eth9"))

        def told() -> str:
            rig.step()
            return condition(rig.world, PROGRAMMED)[2]

        process.wait_for("it is told", lambda: "VRRP leaves by eth9" in told(), timeout=PATIENCE, interval=0.1)
        assert published(rig).switch_at is None
    noticed_nothing(seen)
