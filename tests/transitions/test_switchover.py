"""
Changes that all nodes make at one announced instant.

They cost at most one fail-over where keepalived has to restart an instance, and nothing where it stays master. There
are never two masters for longer than an interval.
"""

import math
from typing import Any

import msgspec
import pytest

from hack.testbed import process
from kavip.api.group import GroupVirtualIP, Instances, KeepalivedGroup, PasswordAuth, SecretRef
from kavip.reconcile.rollout import switchover
from kavip.reconcile.rollout.configmap import PublishedRevisions
from tests.agent.pod import PATIENCE
from tests.reconcile.group.settledgroup import PROGRAMMED, condition
from tests.reconcile.simulatedcluster import GROUP
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import INTERVAL, LiveGroup, group, service
from tests.transitions.recording import Recording, record
from tests.transitions.switches import published, switch, switched

pytestmark = pytest.mark.netns

WEB, CART, SIX = "192.0.2.130", "192.0.2.131", "2001:db8:2::131"
OWN = "192.0.2.150"
VIPS = [WEB, CART, SIX]
SERVICES = [service("shop/web", WEB), service("shop/cart", CART, SIX)]
FAIL_OVER = 4 * INTERVAL
"""The time of a fail-over without priority 0: three intervals and the skew. What the machine adds is measured."""
PATIENT = {"LEAD": 2 * PATIENCE, "FROZEN": 2 * PATIENCE, "LAST_LOOK": 1.0, "TOO_LATE": 0.5}
"""The instant is so far ahead that a busy machine does not reach it."""
NEVER = {"n2": math.inf}
"""The delay of the node that does not see the announcement."""
SECOND: dict[str, Any] = {"vrrp_version": 2, "advert_interval_milliseconds": 1000}
TWO_SECONDS: dict[str, Any] = {"vrrp_version": 2, "advert_interval_milliseconds": 2000}
WITH_PASSWORD = {**TWO_SECONDS, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="one")}
WITH_ANOTHER = {**TWO_SECONDS, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="two")}
SHARED = {"instances": Instances(mode="Shared", count=2)}


def started(make_live_group: MakeLiveGroup, nodes: int, **spec: Any) -> LiveGroup:
    """A live group on which the Services have their masters."""
    live = make_live_group(nodes)
    live.apply(group(**spec), *SERVICES)
    live.load()
    live.wait_for_masters()
    return live


def changed(live: LiveGroup, **spec: Any) -> Recording:
    """Edit the group, and record until all nodes have switched and every instance has its master."""
    with record(live, VIPS) as recorded:
        switch(live, edited(live, **spec))
        live.wait_for_masters()
    return recorded


def edited(live: LiveGroup, **spec: Any) -> KeepalivedGroup:
    """The live group's object with another spec and its current status."""
    return msgspec.structs.replace(live.simulation.snapshot.groups[GROUP], spec=group(**spec).spec)


def stepped(live: LiveGroup) -> PublishedRevisions:
    """The revisions after one round in which one node does not get what is published."""
    live.step(delays=NEVER)
    return published(live)


def have_seen(live: LiveGroup) -> set[str]:
    """The nodes that have seen the announcement, after such a round."""
    stepped(live)
    return {name for name, each in live.simulation.agents.states_of(GROUP).items() if each.switch_at}


def test_multicast_to_unicast_and_back(make_live_group: MakeLiveGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    keepalived restarts the instances: there is no master for one fail-over, and never two.

    One node has not seen the first announcement at the last look. No node switches, the condition names that node, and
    changes of Services go through. Then all nodes switch, and later back.
    """
    live = started(make_live_group, 3, unicast_enabled=False)
    with record(live, VIPS) as recorded:
        live.simulation.snapshot.put(edited(live))
        with monkeypatch.context() as slow:
            for name, seconds in PATIENT.items():
                slow.setattr(switchover, name, seconds)
            live.step()  # every node gets the next text
            process.wait_for("it is announced", lambda: bool(stepped(live).switch_at), timeout=PATIENCE)
            process.wait_for("the others have seen it", lambda: have_seen(live) == {"n1", "n3"}, timeout=PATIENCE)
            slow.setattr(switchover, "LAST_LOOK", switchover.FROZEN)  # it is due now
            process.wait_for("it is called off", lambda: bool(stepped(live).aborts), timeout=PATIENCE)
        reason, message = condition(live.simulation, PROGRAMMED)[1:]
        assert reason == "Pending"
        assert message.endswith("(multicast to unicast) waits for node n2: it has not seen the announcement")
        assert {pod.state()["configHash"] for pod in live.pods.values()} == {published(live).current.hash}
        assert published(live).current.text.count("unicast_peer") == 0
        live.simulation.snapshot.put(service("shop/new", "192.0.2.140"))
        process.wait_for("all nodes switch", lambda: switched(live), timeout=PATIENCE, interval=0.05)
        live.wait_for_masters()
    assert published(live).current.text.count("unicast_peer") == 4
    for each in (recorded, changed(live, unicast_enabled=False)):
        assert each.double_masters == (), each.timeline()
        assert each.longest_silence <= FAIL_OVER + each.pause, each.timeline()


def test_changes_that_cost_nothing(make_live_group: MakeLiveGroup) -> None:
    """Version, interval of version 2, password: no transition, no second master, no lost request."""
    live = started(make_live_group, 2)
    mount_passwords(live, one="s3cr3t_1", two="s3cr3t_2")
    for spec in (SECOND, WITH_PASSWORD, WITH_ANOTHER):
        assert_unnoticed(changed(live, **spec))
    with record(live, VIPS) as recorded:
        mount_passwords(live, two="s3cr3t_3")
        process.wait_for(
            "all nodes see it", lambda: all(pod.state()["newPassword"] for pod in live.pods.values()), timeout=PATIENCE
        )
        process.wait_for("all nodes switch", lambda: switched(live), timeout=PATIENCE, interval=0.05)
        live.wait_for_masters()
    assert_unnoticed(recorded)
    assert all("auth_pass s3cr3t_3\n" in (pod.run_dir / "keepalived.conf").read_text() for pod in live.pods.values())


def assert_unnoticed(recorded: Recording) -> None:
    """No transition, no lost request, no second master."""
    assert (recorded.transitions, recorded.failures, recorded.double_masters) == ({}, {}, ()), recorded.timeline()


def mount_passwords(live: LiveGroup, **keys: str) -> None:
    """Mount the group's Secret on every node."""
    for pod in live.pods.values():
        pod.mount_password("vrrp", **keys)


def test_per_service_to_shared_and_back(make_live_group: MakeLiveGroup) -> None:
    """The VIPs move to instances that have masters already, so there is no election."""
    live = started(make_live_group, 3)
    recorded = changed(live, **SHARED)
    assert recorded.longest_silence < FAIL_OVER / 2 + recorded.pause, recorded.timeline()
    assert recorded.double_masters == (), recorded.timeline()
    assert set(live.pods["n1"].instances()) == {"group/0", "group/0/v6", "group/1", "group/1/v6"}
    recorded = changed(live)
    assert recorded.longest_silence <= FAIL_OVER + recorded.pause, recorded.timeline()


def test_another_pinned_vrid_costs_one_fail_over(make_live_group: MakeLiveGroup) -> None:
    """
    The group's own VIP moves to an instance with another VRID on all nodes at once; Services do not notice.

    The VRID of a Service is pinned next: the Service gets another one in the same switch.
    """
    live = started(make_live_group, 3, virtual_ips=pinned(10))
    assert live.pods["n1"].instances().keys() >= {"lb/edge/virtualips/10"}
    with record(live, [OWN]) as own:
        recorded = changed(live, virtual_ips=pinned(20))
    for each in (own, recorded):
        assert each.double_masters == (), each.timeline()
    assert (recorded.failures, recorded.transitions.keys() - {"lb/edge/virtualips/20"}) == ({}, set())
    assert own.longest_silence <= FAIL_OVER + own.pause, own.timeline()
    taken = (live.simulation.snapshot.groups[GROUP].status.router_ids or {})["shop/web"]
    recorded = changed(live, virtual_ips=pinned(taken))
    assert recorded.double_masters == (), recorded.timeline()
    ids = live.simulation.snapshot.groups[GROUP].status.router_ids or {}
    assert ids[f"lb/edge/virtualips/{taken}"] == taken != ids["shop/web"]


def pinned(router_id: int) -> list[GroupVirtualIP]:
    """The group's own VIP with that VRID."""
    return [GroupVirtualIP(address=OWN, router_id=router_id)]


def test_no_node_switches_to_an_interface_without_an_address(make_live_group: MakeLiveGroup) -> None:
    """
    Unicast needs the nodes' own addresses: no node switches to an interface without one, where each would be master.
    """
    live = started(make_live_group, 2)
    for pod in live.pods.values():
        pod.host.exec("ip", "link", "add", "link", "eth0", "name", "eth9", "type", "macvlan", "mode", "bridge")
        pod.host.exec("ip", "link", "set", "eth9", "up")
    with record(live, VIPS) as recorded:
        live.simulation.snapshot.put(edited(live, vrrp_interface="eth9"))

        def message() -> str:
            live.step()
            return condition(live.simulation, PROGRAMMED)[2]

        process.wait_for(
            "the reason is reported", lambda: "VRRP leaves by eth9" in message(), timeout=PATIENCE, interval=0.1
        )
        assert published(live).switch_at is None
    assert_unnoticed(recorded)
