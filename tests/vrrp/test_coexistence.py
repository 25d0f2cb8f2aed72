"""The model beside keepalived-operator's daemons, and after them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from kavip.api.address import parse_address
from kavip.vrrp import config, operatorconfig
from kavip.vrrp.coexistence import Coexistence, stranded
from kavip.vrrp.instances import Instance, Model, model_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.priorities import TOP
from tests.keepalived_operator.oldobjects import conf, instance
from tests.support import build

NODES = tuple(Peer(f"n{n}", parse_address(f"192.0.2.{10 + n}")) for n in range(1, 5))
WEB, API = "shop/web", "shop/api"


def member(key: str, *vips: str, **more: Any) -> Member:
    """A Service of the group."""
    return Member(key=key, addresses=tuple(sorted(map(parse_address, vips))), **more)


def model(*members: Member, ids: dict[str, int], **spec: Any) -> Model:
    """The group's model without old daemons."""
    return model_of(build.group(**spec), members, NODES, ids)


def beside(old: str, plain: Model, *leads: str) -> dict[str, Instance]:
    """The instances beside daemons with the text *old*."""
    return {
        each.name: each
        for each in Coexistence(operatorconfig.read_instances(old), frozenset(leads)).adapt(plain, NODES).instances
    }


def test_an_instance_has_the_identity_of_old_nodes() -> None:
    """VRID, version, interval, mode, authentication and the address list are those of the old daemons."""
    old = conf(
        instance(WEB, 7, "192.0.2.140", "192.0.2.141", peers=["192.0.2.11", "192.0.2.12", "192.0.2.13"], password="x")
    )
    plain = model(member(WEB, "192.0.2.140", "192.0.2.142"), ids={WEB: 7}, vrrp_version=3)
    found = beside(old, plain)[WEB]
    assert (found.version, found.interval, found.authenticated, found.trusting) == (2, "1", True, True)
    assert [str(vip) for vip in (found.anchor, *found.also)] == ["192.0.2.140/32", "192.0.2.141/32"]
    assert [str(vip) for vip in found.excluded] == ["192.0.2.142/32"]
    assert [name for name, _ in found.sources] == ["n1", "n2", "n3"], "n4 would hear no peer"
    text = config.render(Coexistence(operatorconfig.read_instances(old)).adapt(plain, NODES)).text
    assert "check_unicast_src" not in text
    assert operatorconfig.read_instances(text)[0].addresses == operatorconfig.read_instances(old)[0].addresses


def test_new_nodes_rank_below_old_ones_until_one_leads() -> None:
    """All new nodes are below 100; then only the leader is above 200."""
    old = conf(instance(WEB, 7, "192.0.2.140", owner="edge-1"))
    plain = model(member(WEB, "192.0.2.140"), ids={WEB: 7})
    waiting = dict(beside(old, plain)[WEB].priorities)
    assert max(waiting.values()) < 100
    leading = dict(beside(old, plain, "n1", "n2")[WEB].priorities)
    above = {node for node, number in leading.items() if number >= 100}
    assert len(above) == 1
    assert above <= {"n1", "n2"}
    assert leading[above.pop()] == TOP > operatorconfig.read_instances(old)[0].priority


def test_where_the_first_may_be_unable_all_leaders_rank_above() -> None:
    """With policy Local, or a health check, the best able node takes the VIP from the living old master."""
    old = conf(instance(WEB, 7, "192.0.2.140", owner="edge-1"))
    plain = model(member(WEB, "192.0.2.140", local=True), ids={WEB: 7})
    assert max(dict(beside(old, plain)[WEB].priorities).values()) < 100
    leading = dict(beside(old, plain, "n1", "n2", "n4")[WEB].priorities)
    assert leading.pop("n3") < 100
    assert len(set(leading.values())) == 3
    assert min(leading.values()) > operatorconfig.read_instances(old)[0].priority == 200
    assert max(leading.values()) == TOP


@given(some.sets(some.sampled_from([peer.name for peer in NODES])), some.booleans())
def test_leaders_keep_their_priorities_without_old_nodes(leads: set[str], local: bool) -> None:
    """The leader is the same before and after, and no priority passes another one in between."""
    plain = model(member(WEB, "192.0.2.140", local=local), ids={WEB: 7})
    old = operatorconfig.read_instances(conf(instance(WEB, 7, "192.0.2.140")))
    (before,), (after,) = (Coexistence(each, frozenset(leads)).adapt(plain, NODES).instances for each in (old, ()))
    ranked = sorted(after.priorities, key=lambda each: -each[1])
    assert len({number for _, number in ranked}) == len(NODES)
    first = max(before.priorities, key=lambda each: each[1])[0]
    assert first == ranked[0][0]
    if leads:
        assert {node for node, _ in ranked[: len(leads)]} == leads
        above = {node: number for node, number in before.priorities if number > 100}
        assert above.items() <= dict(after.priorities).items()
        assert not local or above.keys() == leads
    else:
        assert after == plain.instances[0]


def test_an_address_that_old_nodes_hold_in_another_instance_waits() -> None:
    """The address is now another Service's: until the last old pod is gone, two nodes would have it."""
    old = conf(instance("shop/gone", 1, "192.0.2.140"), instance(WEB, 7, "192.0.2.141"))
    plain = model(member(API, "192.0.2.140", "192.0.2.150"), member(WEB, "192.0.2.141"), ids={WEB: 7, API: 8})
    found = Coexistence(operatorconfig.read_instances(old)).adapt(plain, NODES)
    assert [str(found.instances[0].anchor), *map(str, found.instances[0].excluded)] == ["192.0.2.150/32"]
    assert "still held by pods of keepalived-operator in VRRP instance 1" in found.problems[API].message
    assert stranded(found, operatorconfig.read_instances(old)) == (), "no instance keeps it there"


def test_vips_that_would_be_lost_are_reported() -> None:
    """A Service that was spread in between has other VRIDs: its VIPs would go with the last old pod."""
    old = operatorconfig.read_instances(conf(instance(WEB, 7, "192.0.2.140")))
    plain = model(member(WEB, "192.0.2.140", spread=True), ids={f"{WEB}/192.0.2.140": 8})
    found = Coexistence(old).adapt(plain, NODES)
    assert found.instances == ()
    assert stranded(found, old) == (WEB,)


def test_vrids_of_old_nodes_are_reserved() -> None:
    """The VRIDs belong to their names, and no other key gets one."""
    old = Coexistence(
        operatorconfig.read_instances(conf(instance("shop/gone", 1, "192.0.2.140"), instance(WEB, 7, "192.0.2.141")))
    )
    assert old.router_ids == {"shop/gone": 1, WEB: 7}
    assert old.reserved([WEB, API]) == {1}


def test_without_old_nodes_the_model_is_the_same() -> None:
    """The model is not changed or copied."""
    plain = model(member(WEB, "192.0.2.140"), ids={WEB: 7})
    assert Coexistence().adapt(plain, NODES) is plain
