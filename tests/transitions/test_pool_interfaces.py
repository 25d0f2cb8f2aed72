"""VIPs on the interface of their pool: a second network card of the nodes, in a network of its own."""

import json
from collections.abc import Callable, Iterator

import pytest

from hack.testbed import process
from hack.testbed.segment import Host, Segment
from kavip import names
from kavip.api.group import Instances
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.reconcile.plan import Key, KeyKind
from tests.agent.pod import PATIENCE
from tests.support import build
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import LiveGroup, drained, group, service
from tests.transitions.switches import switch

pytestmark = pytest.mark.netns

CARD = "vlan20"
NET = "198.51.100"
ON_CARD = [f"{NET}.{number}" for number in (130, 131, 132, 133)]
PLAIN = ["192.0.2.130", "192.0.2.131"]


@pytest.fixture(scope="module")
def cards(lan: Segment) -> Segment:
    """The second card in three nodes and in the client; the fourth node has none."""
    lan.add_bridge("br20")
    for host in (*lan.nodes[:3], lan.client):
        plug(lan, host)
    return lan


def plug(lan: Segment, host: Host) -> None:
    """Put the second card into *host*."""
    lan.plug(host, CARD, bridge="br20", addresses=[f"{NET}.{10 + host.number}/24"])


@pytest.fixture(autouse=True)
def clean(cards: Segment) -> Iterator[None]:
    """The cards are there and have no VIPs after a test, and their links are up."""
    yield
    for host in cards.nodes[:3]:
        if host.exec("ip", "link", "show", CARD, check=False).returncode:
            plug(cards, host)
        cards.set_link(host, CARD, "up")
        host.exec("ip", "addr", "flush", "dev", CARD, "to", f"{NET}.128/25")


def pool(interface: str = CARD) -> VIPPool:
    """The pool of the second network."""
    return build.pool("dmz", f"{NET}.128/25", interface=interface)


def vips_on(host: Host, card: str) -> set[str]:
    """The VIPs on *card* of *host*."""
    found = host.exec("ip", "-json", "-4", "address", "show", "dev", card, check=False).stdout
    return {each["local"] for link in json.loads(found or "[]") for each in link.get("addr_info", ())} & {
        *ON_CARD,
        *PLAIN,
    }


def answers(lan: Segment, vip: str) -> str:
    """The node that answers the client on *vip*; "" if none does."""
    done = lan.client.exec("curl", "--silent", "--max-time", "2", f"http://{vip}", check=False)
    return done.stdout.strip()


def master_instead(live: LiveGroup, instance: str, node: str) -> str:
    """Wait until exactly one node other than *node* is master of *instance*; return it."""
    process.wait_for(
        f"another master of {instance}",
        lambda: [name for name, each in live.pods.items() if instance in each.masters()] not in ([], [node]),
        timeout=PATIENCE,
    )
    return live.master(instance)


def await_answer(lan: Segment, vip: str, *nodes: str) -> None:
    """Wait until one of *nodes* answers on *vip*."""
    process.wait_for(f"{vip} answers from {nodes}", lambda: answers(lan, vip) in nodes, timeout=PATIENCE)


def test_vips_are_on_the_interface_of_their_pool(cards: Segment, make_live_group: MakeLiveGroup) -> None:
    """The VIP of a pool is on its interface only, answers there, and moves alone when the link of this one fails."""
    live = make_live_group(3)
    live.apply(group(), pool(), service("shop/web", ON_CARD[0]), service("shop/api", PLAIN[0]))
    masters = live.wait_for_masters()
    master = cards.node(masters["shop/web"])
    assert vips_on(master, CARD) == {ON_CARD[0]}
    assert ON_CARD[0] not in vips_on(master, "eth0")
    await_answer(cards, ON_CARD[0], master.name)
    await_answer(cards, PLAIN[0], masters["shop/api"])
    before = live.transitions()
    cards.set_link(master, CARD, "down")
    successor = master_instead(live, "shop/web", master.name)
    await_answer(cards, ON_CARD[0], successor)
    assert {name: each["shop/api"] for name, each in live.transitions().items()} == {
        name: each["shop/api"] for name, each in before.items()
    }
    cards.set_link(master, CARD, "up")
    live.wait_for_master("shop/web", master.name)


def wait_until(live: LiveGroup, what: str, holds: Callable[[], bool]) -> None:
    """Run the controller and the agents until it *holds*."""

    def step() -> bool:
        live.step()
        return holds()

    process.wait_for(what, step, timeout=PATIENCE)


def conditions(live: LiveGroup, kind: str) -> tuple[str, str, str]:
    """Status, reason and message of a condition of the group."""
    found = {each.type: each for each in live.simulation.snapshot.groups["lb/edge"].status.conditions or ()}
    return found[kind].status, found[kind].reason, found[kind].message


def programmed(live: LiveGroup, key: str) -> tuple[str, str, str]:
    """The same of ``Programmed`` of a Service, as the controller would write it."""
    live.simulation.settle(Key(KeyKind.SERVICE, key))
    found = {each.type: each for each in live.simulation.snapshot.services[key].status.conditions or ()}
    state = found[names.ConditionType.SERVICE_PROGRAMMED]
    return state.status, state.reason, state.message


def holders(live: LiveGroup, vips: list[str]) -> dict[str, set[str]]:
    """The VIPs on the second card, by node."""
    return {name: vips_on(live.lan.node(name), CARD) & set(vips) for name in live.pods}


def test_a_node_without_the_interface_is_left_out(cards: Segment, make_live_group: MakeLiveGroup) -> None:
    """Such a node holds no VIP of the pool, counts in no bound of spread, runs all others, and conditions name it."""
    live = make_live_group(4)
    spread = {names.SPREAD_ANNOTATION: "true"}
    live.apply(group(), pool(), service("shop/web", *ON_CARD, annotations=spread), service("shop/api", PLAIN[0]))
    live.settle()
    live.wait_for_masters()
    counts = {name: len(found) for name, found in holders(live, ON_CARD).items()}
    assert counts["n4"] == 0
    assert sorted(counts[name] for name in ("n1", "n2", "n3")) == [1, 1, 2]
    assert "lacks n4 vlan20" in live.text
    assert all(live.preferred_nodes()[f"shop/web/{vip}"] != "n4" for vip in ON_CARD)

    def names_the_node() -> bool:
        every = conditions(live, names.ConditionType.PROGRAMMED), programmed(live, "shop/web")
        return all(
            status == "True" and "interface vlan20 is missing there: n4" in message for status, _, message in every
        )

    wait_until(live, "both conditions name the node", names_the_node)
    assert "n4" not in programmed(live, "shop/api")[2]
    assert "shop/api" in live.pods["n4"].instances()


def moves(live: LiveGroup, before: dict[str, dict[str, tuple[int, ...]]], instance: str) -> dict[str, int]:
    """How often each node became or ceased to be master of *instance* since *before*; nodes that did not are absent."""
    now = live.transitions()
    found = {name: sum(now[name].get(instance, ())) - sum(before[name].get(instance, ())) for name in now}
    return {name: count for name, count in found.items() if count}


def wait_until_empty(live: LiveGroup, node: str) -> None:
    """Wait until *node* is master of nothing."""
    process.wait_for(f"{node} holds no VIP", lambda: live.step() and not live.pods[node].masters(), timeout=PATIENCE)


@pytest.mark.parametrize("spec", [{}, {"no_preempt": True}])
def test_drains_move_no_vip_to_a_drained_node(
    cards: Segment, make_live_group: MakeLiveGroup, spec: dict[str, bool]
) -> None:
    """
    The last node with the interface keeps the VIPs of the pool, gives up all others, and ``Ready`` says why.

    When the last node without the interface is drained too, nothing moves.
    """
    live = make_live_group(4)
    objects = [service(f"shop/s{number}", vip) for number, vip in enumerate(ON_CARD)]
    live.apply(group(**spec), pool(), *objects, *(service(f"shop/p{n}", vip) for n, vip in enumerate(PLAIN)))
    live.wait_until_stable()
    live.settle()
    assert "lacks n4 vlan20" in live.text
    for name in ("n1", "n2"):
        live.apply(drained(live, name))
        wait_until_empty(live, name)
    live.wait_until_stable()
    live.settle()
    assert holders(live, ON_CARD) == {"n1": set(), "n2": set(), "n3": set(ON_CARD), "n4": set()}
    before = live.transitions()
    live.apply(drained(live, "n3"))
    process.wait_for(
        "n4 holds the other VIPs",
        lambda: live.step() and {"shop/p0", "shop/p1"} <= set(live.pods["n4"].masters()),
        timeout=PATIENCE,
    )
    live.apply(drained(live, "n4"))
    live.wait_until_stable()
    live.settle()
    for number, vip in enumerate(ON_CARD):
        assert moves(live, before, f"shop/s{number}") == {}
        await_answer(cards, vip, "n3")
    assert holders(live, ON_CARD) == {"n1": set(), "n2": set(), "n3": set(ON_CARD), "n4": set()}
    assert conditions(live, "Ready")[2].endswith(
        "; all nodes are drained, so n4 keeps its VIPs; "
        f"no undrained node has {CARD}, so n3 keeps the VIPs that need it"
    )
    live.apply(drained(live, "n2", note="false"))
    wait_until_empty(live, "n3")
    live.wait_until_stable()
    assert holders(live, ON_CARD) == {"n1": set(), "n2": set(ON_CARD), "n3": set(), "n4": set()}
    assert all(moves(live, before, f"shop/s{number}") == {"n2": 1, "n3": 1} for number in range(len(ON_CARD)))


def test_an_interface_that_comes_and_goes_moves_vips_once(cards: Segment, make_live_group: MakeLiveGroup) -> None:
    """A node that loses its card loses the VIPs of the pool; with the card it takes its share back, once."""
    live = make_live_group(3)
    live.apply(group(), pool(), *(service(f"shop/s{number}", vip) for number, vip in enumerate(ON_CARD)))
    masters = live.wait_for_masters()
    lost = masters["shop/s0"]
    host = cards.node(lost)
    cards.unplug(host, CARD)
    successor = master_instead(live, "shop/s0", lost)
    await_answer(cards, ON_CARD[0], successor)
    process.wait_for(
        "the agent misses the card", lambda: live.pods[lost].state()["missingInterfaces"] == [CARD], timeout=PATIENCE
    )
    live.settle()
    live.wait_for_masters()
    texts = [live.text]
    live.settle()
    texts.append(live.text)
    assert texts[0] == texts[1]
    assert f"lacks {lost} {CARD}" in live.text
    before = live.wait_until_stable()
    plug(cards, host)
    process.wait_for(
        "the agent sees the card", lambda: not live.pods[lost].state()["missingInterfaces"], timeout=PATIENCE
    )
    live.settle()
    assert "lacks" not in live.text
    assert live.wait_for_masters() == masters
    after = live.wait_until_stable()
    for name, node in masters.items():
        moves = [sum(after[each][name]) - sum(before[each].get(name, (0, 0))) for each in live.pods if each != lost]
        assert sum(moves) <= (1 if node == lost else 0), (name, before, after)


def test_an_interface_that_no_node_has_is_reported(cards: Segment, make_live_group: MakeLiveGroup) -> None:
    """A new Service on it is not programmed, its neighbours are; a pool that is edited to it does not switch."""
    live = make_live_group(4)  # the fourth node lacks the interface that runs, too
    live.apply(group(), pool("vlan99"), service("shop/web", ON_CARD[0]), service("shop/api", PLAIN[0]))
    live.settle()
    assert programmed(live, "shop/web")[:2] == ("False", "NoNodes")
    wait_until(live, "its neighbour is programmed", lambda: programmed(live, "shop/api")[0] == "True")
    switch(live, pool())
    live.wait_for_masters()
    await_answer(cards, ON_CARD[0], *live.pods)
    left_out = "left out, because interface vlan20 is missing there: n4"
    wait_until(live, "the condition names it", lambda: left_out in conditions(live, "Programmed")[2])
    before = live.transitions()
    live.simulation.snapshot.put(pool("vlan99"))
    absent = "interface vlan99 exists on no node"
    wait_until(live, "the switch waits", lambda: absent in conditions(live, "Programmed")[2])
    assert live.transitions() == before
    live.simulation.snapshot.put(pool())
    wait_until(live, "no switch is wanted", lambda: left_out in conditions(live, "Programmed")[2])
    assert live.transitions() == before


def test_an_edit_of_the_interface_is_a_switch(cards: Segment, make_live_group: MakeLiveGroup) -> None:
    """All nodes move the VIP to the new interface at one instant, and no other VIP moves."""
    live = make_live_group(3)
    live.apply(group(), pool(""), service("shop/web", ON_CARD[0]), service("shop/api", PLAIN[0]))
    masters = live.wait_for_masters()
    before = live.transitions()
    switch(live, pool())
    live.wait_for_masters()
    node = live.master("shop/web")
    assert vips_on(cards.node(node), CARD) == {ON_CARD[0]}
    assert [ON_CARD[0] in vips_on(host, "eth0") for host in cards.nodes[:3]] == [False] * 3
    await_answer(cards, ON_CARD[0], node)
    assert {name: each["shop/api"] for name, each in live.transitions().items()} == {
        name: each["shop/api"] for name, each in before.items()
    }
    assert live.master("shop/api") == masters["shop/api"]


def test_shared_instances_are_per_interface(cards: Segment, make_live_group: MakeLiveGroup) -> None:
    """In mode Shared VIPs of a pool live in instances of their own; the loss of its link moves these only."""
    live = make_live_group(3)
    objects: list[Service] = [service(f"shop/s{number}", vip) for number, vip in enumerate(ON_CARD)]
    objects += [service(f"shop/p{number}", vip) for number, vip in enumerate(PLAIN)]
    live.apply(group(instances=Instances(mode="Shared", count=2)), pool(), *objects)
    masters = live.wait_for_masters()
    on_card = {name for name in masters if name.endswith(f".{CARD}")}
    assert on_card
    assert {"group/0", "group/1"} == masters.keys() - on_card
    lost = masters[min(on_card)]
    before = live.transitions()
    cards.set_link(cards.node(lost), CARD, "down")
    for name in sorted(on_card):
        if masters[name] == lost:
            master_instead(live, name, lost)
    for number, vip in enumerate(ON_CARD):
        await_answer(cards, vip, *(live.pods.keys() - {lost}))
        assert f"shop/s{number}" in live.simulation.snapshot.services
    after = live.transitions()
    for name in ("group/0", "group/1"):
        assert {node: each[name] for node, each in after.items()} == {node: each[name] for node, each in before.items()}
    cards.set_link(cards.node(lost), CARD, "up")
    assert live.wait_for_masters() == masters


def test_shared_vips_switch_to_an_interface_and_back(cards: Segment, make_live_group: MakeLiveGroup) -> None:
    """An edit of the pool moves VIPs into other instances at one instant, and back; unneeded instances end."""
    live = make_live_group(3)
    live.apply(
        group(instances=Instances(mode="Shared", count=2)),
        pool(""),
        *(service(f"shop/s{number}", vip) for number, vip in enumerate(ON_CARD)),
        service("shop/api", PLAIN[0]),
    )
    live.wait_for_masters()
    switch(live, pool())
    live.wait_for_masters()
    for vip in ON_CARD:
        await_answer(cards, vip, *live.pods)
    assert {vip for found in holders(live, ON_CARD).values() for vip in found} == set(ON_CARD)
    switch(live, pool(""))
    live.wait_for_masters()
    assert not any(holders(live, ON_CARD).values())
    assert f".{CARD}" not in live.text
    ids = live.simulation.snapshot.groups["lb/edge"].status.router_ids or {}
    assert not any(f".{CARD}" in key for key in ids)
