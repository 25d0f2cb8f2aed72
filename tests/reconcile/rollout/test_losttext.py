"""The text of a group is lost while VIPs wait for a switch: what the nodes report stays where it runs."""

import base64
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from kavip import names
from kavip.api.group import Instances
from kavip.reconcile.observed.agentstates import AgentStates, Contact
from kavip.reconcile.rollout import configmap
from kavip.reconcile.rollout.peers import PATIENCE
from kavip.reconcile.rollout.switchover import FROZEN
from kavip.vrrp.packed import MARKER, compressed
from kavip.vrrp.running import running_instances, running_nodes
from kavip.vrrp.sharding import shard_of
from tests.reconcile.group.settledgroup import WEB, serving, with_pods
from tests.reconcile.rollout.switchingnodes import MULTICAST, SECOND, SECRET, SHARED, UNICAST, VIP, Site, is_done
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster, pod
from tests.support import build

NUMBERS = range(12)
LOWER = "192.0.2.100"
MORE: dict[str, Any] = {**UNICAST, "instances": Instances(mode="Shared", count=4)}


def site_of(**spec: Any) -> Site:
    """Two nodes that report what they run, with some Services."""
    site = Site.of(**spec)
    for node in site.nodes:
        node.reports_vips = True
    for number in NUMBERS:
        site.simulation.snapshot.put(serving(f"shop/s{number}", vip(number)))
    site.pass_time(2.0)
    site.until(lambda: is_done(site))
    return site


def waiting_site(before: dict[str, Any], after: dict[str, Any]) -> tuple[Site, dict[str, tuple[str, int]]]:
    """The same while a switch from the spec *before* to *after* waits for a node; and the places of the VIPs."""
    site = site_of(**before)
    ran = places(site.published.current.text)
    site.nodes[1].refuses = "not yet"
    site.edit(**after)
    site.until(lambda: site.published.next)
    return site, ran


def change_leader(site: Site) -> None:
    """From now on the leader is one that has published no text."""
    site.simulation.snapshot.memory(GROUP).state(configmap._Texts).by_hash.clear()


def vip(number: int) -> str:
    """The VIP of one of the Services."""
    return f"198.51.100.{number + 1}"


def places(text: str) -> dict[str, tuple[str, int]]:
    """The instance and the VRID of each VIP in *text*."""
    runs = running_instances(text).values()
    return {str(each.address): (run.name, run.identity.router_id) for run in runs for each in run.virtual_ips}


Data = dict[str, str]


def without_a_text(data: Data) -> Data:
    """Somebody has removed the key."""
    return {key: text for key, text in data.items() if key != names.CONFIG_KEY}


def with_a_blank_text(data: Data) -> Data:
    """Somebody has emptied the key."""
    return {**data, names.CONFIG_KEY: ""}


def with_garbage(data: Data) -> Data:
    """What looks like a packed text is none."""
    return {**data, names.CONFIG_KEY: f"{MARKER}xxxx"}


def with_a_comment(data: Data) -> Data:
    """Somebody has added a line that changes nothing."""
    return {**data, names.CONFIG_KEY: f"{data[names.CONFIG_KEY]}# mine\n"}


def with_another_router_id(data: Data) -> Data:
    """Somebody has edited what all nodes must agree on."""
    text = data[names.CONFIG_KEY].replace("    virtual_router_id 1\n", "    virtual_router_id 41\n")
    return {**data, names.CONFIG_KEY: text}


def with_the_next_hash(data: Data) -> Data:
    """Somebody has edited the hash."""
    config = msgspec.json.decode(data[names.AGENT_KEY])
    config["configHash"] = config["next"]["configHash"]
    return {**data, names.AGENT_KEY: msgspec.json.encode(config).decode()}


def without_a_vip(data: Data) -> Data:
    """Somebody has edited the text."""
    lines = data[names.CONFIG_KEY].splitlines(keepends=True)
    return {**data, names.CONFIG_KEY: "".join(line for line in lines if f" {vip(0)}/" not in line)}


def with_its_hash(data: Data, text: str) -> Data:
    """Somebody has replaced the text by *text*, and the hash by that of *text*."""
    config = msgspec.json.decode(data[names.AGENT_KEY])
    config["configHash"] = configmap._hash_of(text)
    return {**data, names.CONFIG_KEY: text, names.AGENT_KEY: msgspec.json.encode(config).decode()}


def edited(text: str, line: str, edit: str) -> str:
    """*text* with *edit* in place of the parts that match *line*."""
    return re.sub(line, lambda _: edit, text, flags=re.MULTILINE)


def with_another_name(data: Data) -> Data:
    """Somebody has given an instance a name that agents refuse, and edited the hash as well."""
    return with_its_hash(data, data[names.CONFIG_KEY].replace("vrrp_instance ", "vrrp_instance a;", 1))


def without_a_hash(data: Data) -> Data:
    """Somebody has emptied the other key."""
    return {**data, names.AGENT_KEY: "{}"}


def lose(site: Site, how: Callable[[Data], Data] | None) -> None:
    """Lose the text: None deletes the ConfigMap."""
    configmaps = site.simulation.objects.configmaps
    if how is None:
        del configmaps[GROUP]
        return
    there = configmaps[GROUP]
    configmaps[GROUP] = msgspec.structs.replace(there, data=how(dict(there.data or {})))
    assert configmaps[GROUP] != there


EDITS: Final = (without_a_text, with_a_blank_text, with_garbage, with_a_comment)
DAMAGE: Final = (*EDITS, without_a_vip, without_a_hash, with_another_name)


@pytest.mark.parametrize(
    ("before", "after", "how"),
    [
        *((SHARED, MORE, how) for how in (None, *DAMAGE)),
        (MORE, SHARED, None),
        *((UNICAST, SHARED, how) for how in (None, *DAMAGE)),
        (SHARED, UNICAST, None),
    ],
)
def test_vips_stay_where_they_run_until_the_switch(
    before: dict[str, Any], after: dict[str, Any], how: Callable[[Data], Data] | None
) -> None:
    """
    The text comes back with the VIPs in the instances that run, and then all nodes switch.

    Agents refuse a text that somebody has edited, and keep what they run.
    """
    site, ran = waiting_site(before, after)
    lose(site, how)
    for _ in range(2):
        site.simulation.group()
    assert places(site.published.current.text) == ran
    site.pass_time(3.0)  # the site checks after each second that no VIP is in two instances
    assert places(site.published.current.text) == ran
    site.nodes[1].refuses = ""
    site.until(lambda: site.published.next is None)
    site.until(lambda: is_done(site))
    count = after["instances"].count if "instances" in after else 0
    found = places(site.published.current.text)
    for number in NUMBERS:
        key = f"shop/s{number}"
        assert found[vip(number)][0] == (shard_of(key, count) or key)


@pytest.mark.parametrize("how", EDITS)
@pytest.mark.parametrize(("before", "after"), [(MULTICAST, UNICAST), (MULTICAST, SECOND), (SECOND, SECRET)])
def test_an_edit_is_undone_and_the_switch_waits_on(
    before: dict[str, Any], after: dict[str, Any], how: Callable[[Data], Data]
) -> None:
    """The leader knows the text: identity and settings, which agents do not report, are those that run."""
    site = Site.of(**before)
    site.nodes[1].refuses = "not yet"
    site.edit(**after)
    site.until(lambda: site.published.next)
    published = site.published
    lose(site, how)
    site.simulation.agents = replace(site.simulation.agents.with_nodes(GROUP, ()))  # whether they answer or not
    for _ in range(2):
        site.simulation.group()
    assert site.published == published


@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("edit", [compressed("# mine\n"), b"no gzip"])
def test_an_edit_of_the_next_text_is_undone(edit: bytes, is_new: bool) -> None:
    """Also shortly before the instant, when nothing else changes. A new leader does not take it for its own."""
    site = Site.of(**MULTICAST)
    site.edit(**UNICAST)
    site.until(lambda: site.published.switch_at and site.seconds_left < FROZEN)
    published, configmaps = site.published, site.simulation.objects.configmaps
    memory = site.simulation.snapshot.memory(GROUP)
    if is_new:
        change_leader(site)
    binary_data = {names.NEXT_KEY: base64.b64encode(edit).decode()}
    configmaps[GROUP] = msgspec.structs.replace(configmaps[GROUP], binary_data=binary_data)
    assert site.published != published
    site.simulation.group()
    assert is_new or site.published == published
    assert "# mine\n" not in [each.content for each in memory.state(configmap._Texts).by_hash.values()]


@pytest.mark.parametrize("is_new", [False, True])
def test_an_edit_that_looks_like_a_text_is_no_record(is_new: bool) -> None:
    """Of a VRID: agents refuse it. A leader that has published no text asks them."""
    site = site_of(**SHARED)
    ran = places(site.published.current.text)
    if is_new:
        change_leader(site)
    lose(site, with_another_router_id)
    for _ in range(2):
        site.simulation.group()
    site.nodes[1].stuck = True
    site.pass_time(3.0)
    assert places(site.published.current.text) == ran


@pytest.mark.parametrize(
    ("line", "edit"),
    [
        *(
            (r"^vrrp_instance .*", f"vrrp_instance {name} {{")
            for name in ("a;b", 'a"b', "$X", "a#b", "\u0663", "a\x1b[2J", "x" * 5_000)
        ),
        ("^    interface .*", "    interface e;x"),
        ("^    advert_int .*", "    advert_int 1.2.3"),
        (" dev .*", " dev e;x"),
        *(("^    virtual_router_id .*", f"    virtual_router_id {number}") for number in (0, 256, 999)),
        ("^    interface .*", f"    interface {'e' * 16}"),
        (" dev .*", f" dev {'e' * 16}"),
        *((r"/[0-9]+ dev ", f"/{length} dev ") for length in (0, 129)),
        ("^    @n1 priority .*", f"    @n1 priority {'9' * 4_301}"),
        ("^    @n1 priority .*", "    @n;1 priority 9"),
        ("^global_defs", "# kavip: dead n1;2\nglobal_defs"),
        ("^global_defs", "# kavip: home group/0 n1;2\nglobal_defs"),
        ("^global_defs", "# kavip: lacks n1 e;x\nglobal_defs"),
    ],
)
def test_a_value_that_kavip_never_writes_is_undone(line: str, edit: str) -> None:
    """Also with the hash of the edited text, and while the agent of a node is silent."""
    site = site_of(**UNICAST)
    ran = places(site.published.current.text)
    lose(site, lambda data: with_its_hash(data, edited(data[names.CONFIG_KEY], line, edit)))
    site.simulation.agents = site.simulation.agents.with_contact(GROUP, "n1", contact=Contact(is_silent=True))
    for _ in range(2):
        site.simulation.group()
    text = site.published.current.text
    assert places(text) == ran
    assert edit not in text and running_nodes(text).listed == {"n1", "n2"}


def test_a_hash_of_another_text_is_corrected() -> None:
    """The text is the one that nodes run."""
    site, _ = waiting_site(SHARED, MORE)
    published = site.published
    lose(site, with_the_next_hash)
    site.simulation.group()
    assert site.published == published


@pytest.mark.parametrize("how", EDITS)
def test_an_edit_is_undone_where_the_status_has_no_hash(how: Callable[[Data], Data]) -> None:
    """The CRD of keepalived-operator drops it."""
    site, ran = waiting_site(SHARED, MORE)
    simulation = site.simulation
    group = simulation.snapshot.groups[GROUP]
    status = msgspec.structs.replace(group.status, config_hash="", observed_generation=0)
    simulation.snapshot.put(msgspec.structs.replace(group, status=status))
    change_leader(site)
    lose(site, how)
    simulation.group()
    assert places(site.published.current.text) == ran


@pytest.mark.parametrize("how", [None, without_a_hash])
def test_a_service_keeps_its_anchor(how: Callable[[Data], Data] | None) -> None:
    """It has got a lower VIP since. Nodes that advertise different lists do not accept each other's adverts."""
    site = Site.of(**UNICAST)
    for node in site.nodes:
        node.reports_vips = True
    site.nodes[0].reports_anchors = False  # its agent is of an older kavip
    site.simulation.snapshot.put(serving(WEB, VIP, LOWER))
    site.pass_time(3.0)
    site.until(lambda: is_done(site))
    lose(site, how)
    for _ in range(2):
        site.simulation.group()
    assert str(site.published.current.running[WEB].identity.anchor.address) == VIP
    site.nodes[1].stuck = True
    site.pass_time(3.0)  # the site checks after each second that nodes agree


def test_without_any_answer_the_text_follows_from_the_objects() -> None:
    """No VRID changes: the status has them."""
    site = site_of(**SHARED)
    text = site.published.current.text
    site.simulation.agents = type(site.simulation.agents)()
    del site.simulation.objects.configmaps[GROUP]
    for _ in range(2):
        site.simulation.group()
    assert places(site.published.current.text) == places(text)


def test_a_new_leader_writes_nothing_before_the_agents_have_answered() -> None:
    """While a switch waits, the text of the objects has VIPs where no node runs them yet."""
    site, ran = waiting_site(SHARED, MORE)
    simulation = site.simulation
    answered = simulation.agents
    del simulation.objects.configmaps[GROUP]
    at = (simulation.now - NOW).total_seconds()
    first, *_ = sorted(answered.states_of(GROUP))
    for known in ((), (first,)):
        simulation.agents = replace(answered.with_nodes(GROUP, known), since=at)
        plan = simulation.group()
        assert not plan.writes
        assert plan.target and plan.target.hosts.keys() == answered.states_of(GROUP).keys()
        assert plan.requeue_after
    simulation.agents = replace(answered, since=at)
    for _ in range(2):
        simulation.group()
    assert places(site.published.current.text) == ran


@pytest.mark.parametrize("seconds", [0.0, PATIENCE + 1])
def test_a_new_leader_waits_for_answers_no_longer_than_a_while(seconds: float) -> None:
    """A node that is silent for ever holds nothing back; nor does a group that has never run."""
    site = site_of(**SHARED)
    simulation = site.simulation
    at = (simulation.now - NOW).total_seconds()
    simulation.agents = AgentStates(since=at)
    del simulation.objects.configmaps[GROUP]
    simulation.later(seconds)
    assert bool(simulation.group().writes) == (seconds > PATIENCE)


def test_a_new_group_waits_for_no_answers() -> None:
    """It has pods of its own, as after a restore from a backup, and no status."""
    simulation = with_pods(SimulatedCluster(cluster(build.group(), serving(WEB, "192.0.2.130"))), pod("p1", "n1"))
    simulation.agents = AgentStates(since=0.0)
    assert simulation.group().writes


def test_a_text_of_this_controller_is_not_hashed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a large group has megabytes. One that somebody has edited is."""
    hashed = list[str]()

    def hash_of(text: str) -> str:
        hashed.append(text)
        return ""

    site = site_of(**SHARED)
    monkeypatch.setattr(configmap, "_hash_of", hash_of)
    site.simulation.snapshot.put(serving("shop/new", vip(len(NUMBERS))))
    site.pass_time(3.0)
    site.until(lambda: is_done(site))
    assert not hashed
    published = site.published
    lose(site, with_a_comment)
    site.simulation.group()
    assert (len(hashed), site.published) == (1, published)
