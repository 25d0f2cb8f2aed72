"""Changes that all nodes make at one instant: all nodes switch, or none does."""

import base64
import gzip
import inspect
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.agent import ProblemCode
from kavip.api.group import PasswordAuth, SecretRef
from kavip.memo import recent
from kavip.reconcile.group.annotations import INTERVAL
from kavip.reconcile.observed.agentstates import Contact, NodeState
from kavip.reconcile.rollout import configmap, readiness, switchover
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, settings_of
from kavip.vrrp.packed import compressed
from tests.reconcile.group.settledgroup import PROGRAMMED, WEB, annotations, condition, serving, settled
from tests.reconcile.rollout.switchingnodes import (
    MULTICAST,
    OTHER,
    SECOND,
    SECRET,
    SHARED,
    TICK,
    UNICAST,
    VIP,
    Node,
    Site,
    is_done,
)
from tests.reconcile.simulatedcluster import GROUP
from tests.support import build
from tests.support.examples import examples


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
    assert condition(site.simulation, PROGRAMMED)[0] == "True"


def test_pods_are_annotated_at_each_step() -> None:
    """The next text, the announcement and the end each change the annotation, so that kubelet refreshes the mount."""
    site = Site.of(**MULTICAST)
    site.edit(**UNICAST)
    seen: list[str] = []
    for _ in range(40):
        site.tick(controller=False)
        seen += sorted(set(annotations(site.simulation.group()).values()))
    assert is_done(site)
    assert len(seen) == len(set(seen)) == 3


def test_the_next_text_is_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plan until the switch needs its size and its bytes: compressing the text of a large group takes long."""
    site, compress, texts = Site.of(**MULTICAST), gzip.compress, list[bytes]()

    def counted(text: bytes, level: int, *, mtime: int) -> bytes:
        texts.append(text)
        return compress(text, level, mtime=mtime)

    monkeypatch.setattr(gzip, "compress", counted)
    monkeypatch.setattr(configmap, "compressed", recent(2)(inspect.unwrap(compressed)))  # without those of other tests
    site.edit(**UNICAST)
    published = set[tuple[str, str]]()
    while site.published.next or not published:
        site.simulation.plan_group()
        site.tick()
        published |= (site.simulation.objects.configmaps[GROUP].binary_data or {}).items()
    assert len(texts) == len(set(texts)) == 1
    ((key, packed),) = published
    assert (key, gzip.decompress(base64.b64decode(packed)).decode()) == (
        "next.conf.gz",
        site.published.current.content,
    )


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
    assert condition(site.simulation, PROGRAMMED)[:2] == ("False", "Pending")
    assert {node.runs for node in site.nodes} == {before}
    site.nodes[1] = Node("n2", mounted=site.nodes[1].mounted, runs=site.nodes[1].runs)
    site.until(lambda: is_done(site), seconds=400)


def test_a_node_that_can_use_no_mount_gives_its_own_reason() -> None:
    """It runs nothing, so the next text may be the correction; its agent is not an old one."""
    assert readiness._unprepared(NodeState(config_hash="", refused="password: another"), "h", Revision("", "h2")) == (
        "password: another"
    )


def test_a_node_without_an_answer_is_waited_for() -> None:
    """A node that is down or silent could come back as a second master."""
    site = Site.of(**MULTICAST)
    contact = Contact(is_silent=True)
    site.simulation.agents = site.simulation.agents.with_contact(GROUP, "n2", contact=contact)
    site.edit(**UNICAST)
    site.pass_time(15)
    assert "waits for node n2: its agent does not answer" in site.message
    site.simulation.agents = replace(site.simulation.agents, contacts={})
    del site.simulation.objects.pods[GROUP]["lb/edge-n2"]  # without a pod it is not waited for
    site.nodes[1] = Node("n2")
    site.until(lambda: site.published.next is None)


def test_a_node_that_has_left_is_waited_for_as_long_as_its_pod_runs() -> None:
    """Its keepalived is still on the segment."""
    site = Site.of(**MULTICAST)
    site.simulation.snapshot.drop(names.NODE, "n2")
    site.edit(**UNICAST)
    site.pass_time(15)
    assert "waits for node n2: it has left the group, and its pod still runs" in site.message


def test_an_announcement_that_a_node_has_not_seen_is_called_off_and_repeated() -> None:
    """Each announcement is twice as far in the future, so that a slow kubelet eventually mounts it in time."""
    site = Site.of(**MULTICAST)
    site.edit(**UNICAST)
    site.until(lambda: site.nodes[1].mounted and site.nodes[1].mounted.next)
    site.nodes[1].stuck = True
    site.until(lambda: site.published.aborts)
    assert site.published.switch_at
    assert site.message.endswith("; called off 1 times, last because of node n2: it has not seen the announcement")
    assert (site.published.switch_at - site.simulation.now).total_seconds() > 1.5 * switchover.LEAD
    site.nodes[1].stuck = False
    site.until(lambda: is_done(site))


def test_the_instant_is_after_the_last_annotation() -> None:
    """Otherwise the first announcement would always be called off in a group of hundreds of nodes."""
    site = Site.of(**MULTICAST)
    site.nodes[1].refuses = "no"
    site.edit(**UNICAST)
    site.until(lambda: site.published.next)
    current, following, now = site.published.current, site.published.next, site.simulation.now
    found = switchover.plan_switchover(
        site.published,
        current=current,
        following=following,
        ask=lambda _: [readiness.NodeReadiness("n1")],
        annotating=20.0,
        now=now,
    )
    assert found.published.switch_at == now + timedelta(seconds=switchover.LEAD + 20.0)


def test_each_pod_gives_the_others_time() -> None:
    """As much as its annotation takes."""
    site = Site.of(**MULTICAST)
    site.edit(**UNICAST)
    site.until(lambda: site.published.switch_at)
    assert site.seconds_left == switchover.LEAD + 2 * INTERVAL


def test_other_changes_are_published_meanwhile() -> None:
    """A new Service is served at once by the current text while one node is not ready."""
    site = Site.of(**MULTICAST)
    site.nodes[1].refuses = "no"
    site.edit(**UNICAST)
    site.pass_time(3)
    site.simulation.snapshot.put(serving("shop/new", OTHER))
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
    site.simulation.snapshot.put(serving("shop/new", OTHER))
    site.pass_time(2)
    assert site.published.switch_at == announced
    assert all(node.runs and OTHER in node.runs.text for node in site.nodes)
    assert announced
    site.until(lambda: (announced - site.simulation.now).total_seconds() < switchover.FROZEN - TICK)
    site.simulation.snapshot.put(serving("shop/late", "192.0.2.202"))
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
    assert condition(site.simulation, PROGRAMMED)[:2] == ("False", "RefusedByAgent")
    site.edit(**MULTICAST, interface="eth0")
    site.until(lambda: is_done(site))
    assert condition(site.simulation, PROGRAMMED)[0] == "True"


def test_without_pods_a_change_is_published_at_once() -> None:
    """Without pods the change is published at once, as in the offline commands."""
    simulation = settled(build.group(GROUP, **MULTICAST), serving(WEB, VIP))
    old = simulation.snapshot.groups[GROUP]
    simulation.snapshot.put(msgspec.structs.replace(old, spec=build.group(GROUP, **UNICAST).spec))
    simulation.group()
    assert "unicast_peer" in simulation.text()


def test_both_texts_must_fit_into_the_config_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """If they do not fit, the group reports it, and the current text stays."""
    site = Site.of(**MULTICAST)
    monkeypatch.setattr(switchover, "LARGEST", 8_500)
    site.edit(**UNICAST)
    site.pass_time(3)
    assert "cannot be prepared: both configurations need" in site.message
    assert site.published.next is None
    assert "unicast_peer" not in site.published.current.text


def test_a_secret_that_a_running_group_misses_is_named() -> None:
    """The nodes keep their configuration, and the group is programmed when they see the Secret."""
    site, fault = Site.of(**SECOND), "password: the Secret is not mounted"
    for node in site.nodes:
        node.refuses, node.code = fault, ProblemCode.PASSWORD_MISSING
    site.edit(**SECRET)
    site.pass_time(3)
    status, reason, message = condition(site.simulation, PROGRAMMED)
    assert (status, reason) == ("False", "SecretMissing")
    assert message.endswith(f"waits for node n1: {fault}; also waits for n2; it is Secret lb/vrrp, key one")
    assert [node.runs for node in site.nodes] == [site.published.current] * 2
    for node in site.nodes:
        node.refuses, node.code = "", ProblemCode.NONE
    site.pass_time(30)
    assert condition(site.simulation, PROGRAMMED)[:2] == ("True", "Programmed")


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
@examples(10, deadline=None)
def test_no_node_switches_alone(edits: dict[int, Any], services: dict[int, str], trouble: tuple[str, int, int]) -> None:
    """All nodes switch or none does, whenever the controller is killed, or a node is stuck or refuses."""
    site = Site.of(**MULTICAST)
    what, begins, lasts = trouble
    for number in range(70):
        if number in edits:
            site.edit(**edits[number])
        if number in services:
            site.simulation.snapshot.put(serving(services[number], f"192.0.2.{210 + number}"))
        is_troubled = begins <= number < begins + lasts
        site.nodes[1].stuck = is_troubled and what == "stuck"
        site.nodes[1].refuses = "no" if is_troubled and what == "refuses" else ""
        site.tick(controller=not (is_troubled and what == "killed"))
    site.nodes[1].stuck, site.nodes[1].refuses = False, ""
    site.until(lambda: is_done(site), seconds=800)
