"""Changes that may roll from node to node are published; all others wait for all nodes."""

from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import GroupVirtualIP, Instances, KeepalivedGroup
from kavip.api.service import Service
from kavip.memo import Memory
from kavip.vrrp import config, keys, routerids
from kavip.vrrp.identity import agree, identity_of
from kavip.vrrp.instances import Model, model_of
from kavip.vrrp.members import Member, Peer, member_of
from kavip.vrrp.running import running_instances
from kavip.vrrp.staging import _moving, stage
from tests.support import build
from tests.support.operations import instructions
from tests.vrrp.samples import NEW, annotated, nodes, shared

WEB, API = annotated("shop/web", "192.0.2.130", "192.0.2.131"), annotated("shop/api", "192.0.2.140")
MULTICAST = {**NEW, "unicast_enabled": False}


def both(
    group: KeepalivedGroup,
    services: list[Service],
    running: str,
    *,
    peers: list[Peer] | None = None,
    held: dict[str, int] | None = None,
) -> tuple[Model, Model]:
    """The wanted model, and the part that may be published beside the text that is *running*."""
    members = [member_of(service, group) for service in services]
    found = running_instances(running)
    ids = routerids.assign(
        held or {},
        keys.wanted_keys(group, members),
        blacklist=routerids.blacklist_of(group.spec),
        taken=frozenset(),
        avoid=frozenset(each.identity.router_id for each in found.values()),
        pinned=keys.pinned_ids(group),
    )
    anchors = {name: each.identity.anchor.address for name, each in found.items()}
    among = peers or nodes(2)
    wanted = model_of(group, members, among, ids, anchors=anchors)
    return wanted, stage(wanted, found, group=group, members=members, peers=among)


def text_of(group: KeepalivedGroup, services: list[Service], **more: Any) -> str:
    """The text of a group that no node runs yet."""
    return config.render(both(group, services, "", **more)[0]).text


def places(model: Model) -> dict[str, list[str]]:
    """The VIPs of each instance."""
    return {each.name: [str(vip.address) for vip in each.virtual_ips] for each in model.instances}


def test_instances_that_all_move_are_not_compared_in_pairs() -> None:
    """One Shared instance more changes those of most Services."""
    found = []
    for count in (16, 64):
        services = [annotated(f"shop/s{number}", f"198.51.100.{number + 1}") for number in range(3 * count)]
        before, after = (build.group(**NEW, instances=shared(number)) for number in (count, count + 1))
        text = text_of(before, services)
        wanted, running = both(after, services, text)[0], running_instances(text)
        assert len(_moving(wanted, running, Memory())) > 0.9 * len(running)
        found.append(instructions(partial(_moving, wanted, running, Memory())))
    assert found[1] < 5 * found[0]


@pytest.mark.parametrize("spread", [False, True], ids=["spread", "together"])
def test_an_instance_stays_on_the_preferred_node_while_its_vips_wait(spread: bool) -> None:
    """``spreadvips`` changes the instances of a Service: until the switch those that run keep their priorities."""
    group, peers = build.group(**NEW), nodes(4)

    def text(services: list[Member]) -> Model:
        ids = routerids.assign({}, keys.wanted_keys(group, services), blacklist=frozenset(), taken=frozenset())
        return model_of(group, services, peers, ids)

    for preferred in peers:
        one = replace(member_of(WEB, group), preferred=frozenset({preferred.name}))
        before, after = replace(one, spread=spread), replace(one, spread=not spread)
        running = running_instances(config.render(text([before])).text)
        staged = stage(text([after]), running, group=group, members=[after], peers=peers)
        first = {each.name: max(each.priorities, key=itemgetter(1))[0] for each in text([before]).instances}
        found = {each.name: max(each.priorities, key=itemgetter(1))[0] for each in staged.instances}
        assert {name: found[name] for name in first} == first


def test_nothing_waits_where_all_identities_agree() -> None:
    """For a new Service or a removed address the text is the wanted one."""
    running = text_of(build.group(**NEW), [WEB])
    wanted, now = both(build.group(**NEW), [annotated("shop/web", "192.0.2.130"), API], running, held={"shop/web": 1})
    assert now is wanted


def test_an_instance_that_runs_stays_multicast() -> None:
    """The running instance keeps its identity, with its lines and the new node; a new instance is as wanted."""
    running = text_of(build.group(**MULTICAST), [WEB])
    wanted, now = both(build.group(**NEW), [WEB, API], running, peers=nodes(3), held={"shop/web": 1})
    found = {each.name: (bool(each.sources), len(each.priorities)) for each in now.instances}
    assert found == {"shop/api": (True, 3), "shop/web": (False, 3)}
    assert all(each.sources for each in wanted.instances)
    assert places(now) == places(wanted)


def test_an_anchor_stays_until_the_switch() -> None:
    """When a Service loses the address that its instance advertises, it stays advertised until all nodes switch."""
    running = text_of(build.group(**NEW), [WEB])
    moved = annotated("shop/web", "192.0.2.131", "192.0.2.132")
    wanted, now = both(build.group(**NEW), [moved], running, held={"shop/web": 1})
    assert places(wanted) == {"shop/web": ["192.0.2.131", "192.0.2.132"]}
    assert places(now) == {"shop/web": ["192.0.2.130", "192.0.2.131", "192.0.2.132"]}


@pytest.mark.parametrize(("before", "after"), [(None, 10), (10, 20), (10, None), (10, 1)])
def test_a_pinned_vrid_is_a_switch(before: int | None, after: int | None) -> None:
    """The VIPs stay where they run until all nodes switch, and Services with other VRIDs are not concerned."""
    old = build.group(**NEW, virtual_ips=[GroupVirtualIP(address="192.0.2.5", router_id=before)])
    new = build.group(**NEW, virtual_ips=[GroupVirtualIP(address="192.0.2.5", router_id=after)])
    wanted, now = both(new, [API], text_of(old, [API]), held={"shop/api": 2})
    keys_of = {number: keys.own_key(old, number) for number in (before, after)}
    assert places(now) == {keys_of[before]: ["192.0.2.5"], "shop/api": ["192.0.2.140"]}
    assert places(wanted) == {keys_of[after]: ["192.0.2.5"], "shop/api": ["192.0.2.140"]}
    (pinned,) = (each for each in wanted.instances if each.name != "shop/api")
    assert pinned.router_id == after or (after is None and pinned.router_id not in (2, before))


def test_a_vip_that_joins_a_pinned_instance_needs_no_switch() -> None:
    """Only the anchor is advertised."""
    first = GroupVirtualIP(address="192.0.2.5", router_id=10)
    running = text_of(build.group(**NEW, virtual_ips=[first]), [])
    more = build.group(**NEW, virtual_ips=[first, GroupVirtualIP(address="192.0.2.6", router_id=10)])
    wanted, now = both(more, [], running)
    assert now is wanted


def test_shared_instances_run_before_the_vips_move() -> None:
    """PerService to Shared: the Shared instances start first."""
    running = text_of(build.group(**NEW), [WEB, API])
    wanted, now = both(build.group(**NEW, instances=shared(2)), [WEB, API], running)
    assert places(now) == {
        "group/0": [],
        "group/1": [],
        "shop/api": ["192.0.2.140"],
        "shop/web": ["192.0.2.130", "192.0.2.131"],
    }
    assert {each.router_id for each in now.instances} == {1, 2, 3, 4}
    assert set(places(wanted)) == {"group/0", "group/1"}


def test_a_new_service_starts_in_its_shared_instance() -> None:
    """A new Service is in a Shared instance at once, while the others wait for their move."""
    running = text_of(build.group(**NEW), [WEB])
    wanted, now = both(build.group(**NEW, instances=shared(1)), [WEB, API], running)
    assert places(now) == {"group/0": ["192.0.2.140"], "shop/web": ["192.0.2.130", "192.0.2.131"]}
    assert places(wanted) == {"group/0": ["192.0.2.130", "192.0.2.131", "192.0.2.140"]}


def test_shared_to_per_service() -> None:
    """An instance whose anchor still runs elsewhere starts with the switch."""
    running = text_of(build.group(**NEW, instances=shared(1)), [WEB, API])
    wanted, now = both(build.group(**NEW), [WEB, API], running)
    assert places(now) == {"group/0": ["192.0.2.130", "192.0.2.131", "192.0.2.140"]}
    assert set(places(wanted)) == {"shop/api", "shop/web"}


def test_an_address_moves_from_one_instance_to_another() -> None:
    """When the Service that carries a shared address is deleted, its instance keeps the address until the switch."""
    one, other = annotated("a/one", "192.0.2.150"), annotated("b/other", "192.0.2.150", "192.0.2.151")
    running = text_of(build.group(**NEW), [one, other])
    assert places(both(build.group(**NEW), [one, other], "")[0]) == {
        "a/one": ["192.0.2.150"],
        "b/other": ["192.0.2.151"],
    }
    wanted, now = both(build.group(**NEW), [other], running, held={"b/other": 2})
    assert places(now) == {"a/one": ["192.0.2.150"], "b/other": ["192.0.2.151"]}
    assert places(wanted) == {"b/other": ["192.0.2.151", "192.0.2.150"]}


def test_a_taken_router_id_waits() -> None:
    """A new instance whose VRID runs under another name starts with the switch."""
    running = text_of(build.group(**NEW), [WEB], held={"shop/web": 7})
    _, now = both(build.group(**NEW), [WEB, API], running, held={"shop/web": 1, "shop/api": 7})
    assert [(each.name, each.router_id) for each in now.instances] == [("shop/web", 7)]


SPECS = [
    NEW,
    MULTICAST,
    {"vrrp_version": 2, "unicast_enabled": True},
    {**NEW, "interface": "eth1"},
    {**NEW, "instances": Instances(mode="Shared", count=2)},
    {**NEW, "blacklist_router_ids": [1, 2]},
]
ADDRESSES = [f"192.0.2.{number}" for number in range(130, 134)] + ["2001:db8::1", "2001:db8::2"]
CLUSTERS = st.lists(
    st.tuples(
        st.sampled_from(SPECS),
        st.dictionaries(
            st.sampled_from(["a/one", "b/two", "c/three"]),
            st.tuples(st.lists(st.sampled_from(ADDRESSES), unique=True, max_size=4), st.booleans()),
            max_size=3,
        ),
    ),
    min_size=2,
    max_size=4,
)


@pytest.mark.slow
@given(CLUSTERS)
def test_no_history_lets_two_nodes_disagree(history: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """
    After any earlier change, nodes with the running text and nodes with the next one hear each other.

    No address runs in two instances on any of these nodes, and none that is still wanted is given up.
    """
    running = ""
    for spec, services in history:
        found = [annotated(key, *vips, spread=spread) for key, (vips, spread) in services.items()]
        wanted, now = both(build.group(**spec), found, running)
        text = config.render(now).text
        before, after = running_instances(running), running_instances(text)
        for name in before.keys() & after.keys():
            assert agree(before[name].identity, after[name].identity)
        assert {each.name: identity_of(each) for each in now.instances} == {
            name: each.identity for name, each in after.items()
        }
        had = {vip.address: name for name, each in before.items() for vip in each.virtual_ips}
        has = [(vip.address, name) for name, each in after.items() for vip in each.virtual_ips]
        assert len({address for address, _ in has}) == len(has)
        assert all(had.get(address, name) == name for address, name in has)
        wanted_ones = {vip.address for each in wanted.instances for vip in each.virtual_ips}
        assert wanted_ones & had.keys() <= dict(has).keys()
        at = [(each.router_id, each.family, each.interface) for each in now.instances]
        assert len(set(at)) == len(at)
        assert (
            stage(wanted, running_instances(config.render(wanted).text), group=build.group(), members=(), peers=())
            is wanted
        )
        running = text
