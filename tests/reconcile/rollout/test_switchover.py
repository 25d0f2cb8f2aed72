"""Changes that all nodes make at one instant: all nodes switch, or none does."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kavip import names
from kavip.api.group import Instances, PasswordAuth, SecretRef
from kavip.api.instant import instant_text
from kavip.reconcile.observed.agentstates import Contact, NodeState
from kavip.reconcile.rollout import readiness, switchover
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, read_published, settings_of
from kavip.vrrp.identity import agree
from kavip.vrrp.running import running_instances
from tests.reconcile.group.settledgroup import PROGRAMMED, WEB, annotations, condition, serving, settled, with_pods
from tests.reconcile.world import GROUP, World, pod
from tests.support import build

MULTICAST: dict[str, Any] = {"vrrp_version": 3, "unicast_enabled": False}
UNICAST: dict[str, Any] = {**MULTICAST, "unicast_enabled": True}
SHARED: dict[str, Any] = {**UNICAST, "instances": Instances(mode="Shared", count=2)}
SECOND: dict[str, Any] = {**MULTICAST, "vrrp_version": 2}
SECRET: dict[str, Any] = {**SECOND, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="one")}
VIP, OTHER = "192.0.2.200", "192.0.2.201"
TICK = 1.0


@dataclass
class Node:
    """The part of an agent that matters to a switch: what is mounted, what runs, and why it cannot prepare."""

    name: str
    mounted: PublishedRevisions | None = None
    runs: Revision | None = None
    refuses: str = ""
    stuck: bool = False
    is_silent: bool = False
    drift: float = 0.0
    is_old: bool = False
    bars: str = ""

    def step(self, now: datetime) -> None:
        """Run the revision for this moment."""
        found = self.mounted
        if found is None:
            return
        is_due = found.next is not None and found.switch_at is not None and now >= found.switch_at
        wanted = found.next if is_due else found.current
        if wanted is None or wanted.hash != self.bars:
            self.runs = wanted

    def state(self, now: datetime) -> NodeState:
        """The agent's answer."""
        assert self.mounted
        following = self.mounted.next
        is_ahead = self.mounted.switch_at is None or now < self.mounted.switch_at
        is_asked = following is not None and is_ahead and not self.is_old
        return NodeState(
            config_hash=self.runs.hash if self.runs else "",
            refused="" if self.runs else "no instance is left",
            prepared=following.digest if following and is_asked and not self.refuses else "",
            next_refused=self.refuses if is_asked else "",
            switch_at=instant_text(self.mounted.switch_at) if is_asked and not self.refuses else "",
            drift=self.drift if is_asked else None,
        )


@dataclass
class Site:
    """A group with its nodes, and a controller without any memory except what it wrote."""

    world: World
    nodes: list[Node]

    @classmethod
    def of(cls, **spec: Any) -> "Site":
        """Two nodes that run a group with one Service."""
        world = settled(build.group(GROUP, **spec), serving(WEB, VIP))
        with_pods(world, *(pod(f"edge-{name}", name) for name in ("n1", "n2")))
        site = cls(world, [Node("n1"), Node("n2")])
        site.pass_time(2.0)
        return site

    @property
    def published(self) -> PublishedRevisions:
        """The revisions in the ConfigMap."""
        found = read_published(self.world.objects.configmaps[GROUP], settings_of(self.world.snapshot.groups[GROUP]))
        assert found
        return found

    @property
    def message(self) -> str:
        """The message of Programmed."""
        return condition(self.world, PROGRAMMED)[2]

    def edit(self, **spec: Any) -> None:
        """Edit the spec of the group."""
        old = self.world.snapshot.groups[GROUP]
        self.world.snapshot.put(msgspec.structs.replace(old, spec=build.group(GROUP, **spec).spec))

    def tick(self, *, controller: bool = True) -> None:
        """Let a second pass."""
        self.world.later(TICK)
        for node in self.nodes:
            if not node.stuck:
                node.mounted = self.published
            node.step(self.world.now)
            if not node.is_silent:
                state = node.state(self.world.now)
                self.world.agents = self.world.agents.with_state(GROUP, node.name, state=state)
        for _ in range(2 if controller else 0):  # first the status, then the objects
            self.world.group()
        self.check()

    def pass_time(self, seconds: float) -> None:
        """Let *seconds* pass."""
        for _ in range(round(seconds / TICK)):
            self.tick()

    def until(self, ready: Callable[[], object], *, seconds: float = 60.0) -> None:
        """Let time pass until *ready* holds."""
        for _ in range(round(seconds / TICK)):
            if ready():
                return
            self.tick()
        raise AssertionError(self.message)

    def check(self) -> None:
        """Assert that no two nodes are masters of one instance, or of one VIP in two instances."""
        one, other = (running_instances(node.runs.text) if node.runs else {} for node in self.nodes)
        for name in one.keys() & other.keys():
            assert agree(one[name].identity, other[name].identity), name
        places = {vip.address: name for name, each in one.items() for vip in each.virtual_ips}
        for name, each in other.items():
            assert all(places.get(vip.address, name) == name for vip in each.virtual_ips)


def is_done(site: Site) -> bool:
    """Whether no switch is pending and all nodes run what is published."""
    return site.published.next is None and all(node.runs == site.published.current for node in site.nodes)


@pytest.mark.parametrize("after", [UNICAST, SHARED, SECOND, SECRET, {**MULTICAST, "interface": "eth1"}])
def test_all_nodes_switch_at_one_instant(after: dict[str, Any]) -> None:
    """
    Nodes prepare, the instant is announced, all switch, and the new text is published; the ConfigMap shows each step.
    """
    site = Site.of(**MULTICAST)
    before = site.published.current
    site.edit(**after)
    site.until(lambda: site.published.next)
    assert "a change that all nodes make at one instant" in site.message
    site.until(lambda: site.published.switch_at)
    assert "every node is prepared: all change at 2026-03-01T12:00:" in site.message
    following = site.published.next
    site.until(lambda: is_done(site))
    assert following and site.published.current == following != before
    assert condition(site.world, PROGRAMMED)[0] == "True"


def test_pods_are_annotated_at_each_step() -> None:
    """The next text, the announcement and the end each change the annotation, so that kubelet refreshes the mount."""
    site = Site.of(**MULTICAST)
    site.edit(**UNICAST)
    seen: list[str] = []
    for _ in range(40):
        site.tick(controller=False)
        seen += sorted(set(annotations(site.world.group()).values()))
    assert is_done(site)
    assert len(seen) == len(set(seen)) == 3


HINDRANCES: dict[str, tuple[dict[str, Any], str]] = {
    "refuses": ({"refuses": "instance shop/web: no"}, "node n2: instance shop/web: no"),
    "clock": ({"drift": 3.2}, "node n2: its clock differs by 3.2 s from the controller's: synchronise it"),
    "old": (
        {"is_old": True},
        "node n2: it has not prepared the change yet; if that stays so, its agent is of an older kavip",
    ),
    "stuck": ({"stuck": True}, "node n2: it"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HINDRANCES)
def test_a_node_that_is_not_ready_is_named_and_waited_for(name: str) -> None:
    """No node switches until it is ready; then all do."""
    site = Site.of(**MULTICAST)
    changes, message = HINDRANCES[name]
    for field_name, value in changes.items():
        setattr(site.nodes[1], field_name, value)
    before = site.published.current
    site.edit(**UNICAST)
    site.pass_time(20)
    assert message in site.message
    assert condition(site.world, PROGRAMMED)[:2] == ("False", "Pending")
    assert {node.runs for node in site.nodes} == {before}
    site.nodes[1] = Node("n2", mounted=site.nodes[1].mounted, runs=site.nodes[1].runs)
    site.until(lambda: is_done(site), seconds=400)


def test_a_node_without_an_answer_is_waited_for() -> None:
    """A node that is down or silent could come back as a second master."""
    site = Site.of(**MULTICAST)
    contact = Contact(is_silent=True)
    site.world.agents = site.world.agents.with_contact(GROUP, "n2", contact=contact)
    site.edit(**UNICAST)
    site.pass_time(15)
    assert "waits for node n2: its agent does not answer" in site.message
    site.world.agents = replace(site.world.agents, contacts={})
    del site.world.objects.pods[GROUP]["lb/edge-n2"]  # without a pod it is not waited for
    site.nodes[1] = Node("n2")
    site.until(lambda: site.published.next is None)


def test_a_node_that_has_left_is_waited_for_as_long_as_its_pod_runs() -> None:
    """Its keepalived is still on the segment."""
    site = Site.of(**MULTICAST)
    site.world.snapshot.drop(names.NODE, "n2")
    site.edit(**UNICAST)
    site.pass_time(15)
    assert "waits for node n2: it has left the group, and its pod still runs" in site.message


def test_an_announcement_that_a_node_has_not_seen_is_called_off_and_repeated() -> None:
    """Each announcement lies twice as far ahead, so that a slow kubelet sees it in the end."""
    site = Site.of(**MULTICAST)
    site.edit(**UNICAST)
    site.until(lambda: site.nodes[1].mounted and site.nodes[1].mounted.next)
    site.nodes[1].stuck = True
    site.until(lambda: site.published.aborts)
    assert site.published.switch_at
    assert site.message.endswith("; called off 1 times, last because of node n2: it has not seen the announcement")
    assert (site.published.switch_at - site.world.now).total_seconds() > 1.5 * switchover.LEAD
    site.nodes[1].stuck = False
    site.until(lambda: is_done(site))


def test_other_changes_are_published_meanwhile() -> None:
    """A new Service is served at once by the current text while one node is not ready."""
    site = Site.of(**MULTICAST)
    site.nodes[1].refuses = "no"
    site.edit(**UNICAST)
    site.pass_time(3)
    site.world.snapshot.put(serving("shop/new", OTHER))
    site.pass_time(2)
    assert all(node.runs and OTHER in node.runs.text for node in site.nodes)
    site.nodes[1].refuses = ""
    site.until(lambda: is_done(site))
    assert OTHER in site.published.current.text


def test_a_change_after_the_announcement_does_not_move_the_instant() -> None:
    """A change before the last seconds is published beside it; a change in the last seconds, right after it."""
    site = Site.of(**MULTICAST)
    site.edit(**UNICAST)
    site.until(lambda: site.published.switch_at)
    announced = site.published.switch_at
    site.world.snapshot.put(serving("shop/new", OTHER))
    site.pass_time(2)
    assert site.published.switch_at == announced
    assert all(node.runs and OTHER in node.runs.text for node in site.nodes)
    assert announced
    site.until(lambda: (announced - site.world.now).total_seconds() < switchover.FROZEN - TICK)
    site.world.snapshot.put(serving("shop/late", "192.0.2.202"))
    site.tick()
    assert "192.0.2.202" not in site.published.current.text
    site.until(lambda: is_done(site))
    assert "192.0.2.202" in site.published.current.text


def test_a_change_of_mind_before_the_instant() -> None:
    """After the edit is reverted there is no next text. After another edit, all nodes prepare again."""
    site = Site.of(**MULTICAST)
    before = site.published.current
    site.edit(**UNICAST)
    site.until(lambda: site.published.switch_at)
    site.edit(**{**UNICAST, "interface": "eth1"})
    site.tick()
    assert site.published.switch_at is None
    site.edit(**MULTICAST)
    site.tick()
    assert site.published == PublishedRevisions(before)
    site.pass_time(15)
    assert {node.runs for node in site.nodes} == {before}


@pytest.mark.parametrize("runs_too", [False, True])
def test_a_configuration_that_no_node_can_run_does_not_block_its_correction(runs_too: bool) -> None:
    """An interface with a wrong name, on all nodes or on one, can be corrected."""
    site = Site.of(**MULTICAST, interface="eth7")
    for node in site.nodes[1 if runs_too else 0 :]:
        node.runs, node.bars = None, site.published.current.hash
    site.pass_time(5)
    assert condition(site.world, PROGRAMMED)[:2] == ("False", "RefusedByAgent")
    site.edit(**MULTICAST, interface="eth0")
    site.until(lambda: is_done(site))
    assert condition(site.world, PROGRAMMED)[0] == "True"


def test_without_pods_a_change_is_published_at_once() -> None:
    """Without pods the change is published at once, as in the offline commands."""
    world = settled(build.group(GROUP, **MULTICAST), serving(WEB, VIP))
    old = world.snapshot.groups[GROUP]
    world.snapshot.put(msgspec.structs.replace(old, spec=build.group(GROUP, **UNICAST).spec))
    world.group()
    assert "unicast_peer" in world.text()


def test_both_texts_must_fit_into_the_config_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """If they do not fit, the group reports it, and the current text stays."""
    site = Site.of(**MULTICAST)
    monkeypatch.setattr(switchover, "LARGEST", 8_500)
    site.edit(**UNICAST)
    site.pass_time(3)
    assert "cannot be prepared: both configurations need" in site.message
    assert site.published.next is None
    assert "unicast_peer" not in site.published.current.text


def test_a_password_that_is_replaced_in_place() -> None:
    """The text stays the same. The switch waits for a node without the new password, up to kubelet's longest delay."""
    site = Site.of(**SECRET)
    states = {name: site.world.agents.states_of(GROUP)[name] for name in ("n1", "n2")}
    seen = instant_text(site.world.now)
    fresh = replace(states["n1"], new_password=seen, drift=0.0)
    site.world.agents = site.world.agents.with_state(GROUP, "n1", state=fresh)
    site.world.group()
    found = site.published
    assert found.next and found.next.renewed
    assert found.next.text == found.current.text
    assert site.world.objects.configmaps[GROUP].binary_data is None
    told: dict[str, dict[str, Any]] = {"n1": {"new_password": seen}, "n2": {}}
    for name, more in told.items():
        state = replace(states[name], prepared=found.next.digest, drift=0.0, **more)
        site.world.agents = site.world.agents.with_state(GROUP, name, state=state)
    site.world.group()
    assert "waits for node n2: the new password is not mounted there yet" in site.message
    site.world.later(readiness.RENEWED_AFTER)
    site.world.group()
    assert site.published.switch_at
    assert (found.current.settings.renewals, found.next.settings.renewals) == (0, 1)
    for name in ("n1", "n2"):
        state = replace(states[name], prepared=found.next.digest, drift=0.0, switch_at=instant_text(switch_at(site)))
        site.world.agents = site.world.agents.with_state(GROUP, name, state=state)
    site.world.now = switch_at(site) + timedelta(seconds=2)
    site.world.group()
    site.world.group()
    assert (site.published.next, site.published.current.settings.renewals) == (None, 1)


def test_a_silent_node_starts_no_switch_for_its_password() -> None:
    """It may have answered before a switch that it missed, so it starts no new switch."""
    site = Site.of(**SECRET)
    state = replace(site.world.agents.states_of(GROUP)["n1"], new_password=instant_text(site.world.now))
    site.world.agents = site.world.agents.with_state(GROUP, "n1", state=state)
    site.world.group()
    assert site.published.next
    site.world.agents = site.world.agents.with_contact(GROUP, "n1", contact=Contact(is_silent=True))
    site.world.group()
    assert site.published.next is None


def switch_at(site: Site) -> datetime:
    """The announced instant."""
    assert site.published.switch_at
    return site.published.switch_at


def test_a_pod_mounts_the_secrets_of_both_revisions() -> None:
    """A pod mounts the Secret of the current revision and that of the next one."""
    one, two = (settings_of(build.group(password_auth=PasswordAuth(secret_ref=SecretRef(name=n)))) for n in ("a", "b"))
    assert PublishedRevisions(Revision("", "", one), Revision("", "", two)).secrets == {"a", "b"}


SPECS = [MULTICAST, UNICAST, SHARED, SECOND, {**UNICAST, "interface": "eth1"}]
EDITS = st.dictionaries(st.integers(0, 30), st.sampled_from(SPECS), min_size=1, max_size=3)
SERVICES = st.dictionaries(st.integers(0, 30), st.sampled_from(["shop/a", "shop/b"]), max_size=3)
TROUBLE = st.tuples(st.sampled_from(["killed", "stuck", "refuses"]), st.integers(0, 40), st.integers(1, 40))


@pytest.mark.slow
@given(EDITS, SERVICES, TROUBLE)
@settings(max_examples=10, deadline=None)
def test_no_node_switches_alone(edits: dict[int, Any], services: dict[int, str], trouble: tuple[str, int, int]) -> None:
    """All nodes switch or none does, whenever the controller is killed, or a node is stuck or refuses."""
    site = Site.of(**MULTICAST)
    what, begins, lasts = trouble
    for number in range(70):
        if number in edits:
            site.edit(**edits[number])
        if number in services:
            site.world.snapshot.put(serving(services[number], f"192.0.2.{210 + number}"))
        is_troubled = begins <= number < begins + lasts
        site.nodes[1].stuck = is_troubled and what == "stuck"
        site.nodes[1].refuses = "no" if is_troubled and what == "refuses" else ""
        site.tick(controller=not (is_troubled and what == "killed"))
    site.nodes[1].stuck, site.nodes[1].refuses = False, ""
    site.until(lambda: is_done(site), seconds=800)
