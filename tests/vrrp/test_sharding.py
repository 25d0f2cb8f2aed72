"""What is combined for each Shared instance equals the result from all Services."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import Address
from kavip.memo import Memory
from kavip.names import Reason
from kavip.vrrp import verbatim
from kavip.vrrp.members import Member
from kavip.vrrp.sharding import EMPTY, AddressCounts, Shards, combine, shard_members
from tests.support import build
from tests.support.examples import examples
from tests.vrrp.samples import shared

GROUP = build.group(instances=shared(3))
KEYS = [f"shop/s{number}" for number in range(9)]
ADDRESSES = [Address(4, number) for number in range(1, 12)] + [Address(6, 1)]
ON = {Address(4, 3): "vlan20", Address(4, 6): "vlan20", Address(4, 8): "bond0.30", Address(6, 1): "vlan20"}
TROUBLE = verbatim.shared("lb/edge")


def some_member(key: str, luck: random.Random) -> Member:
    """A member with few or no addresses, mostly its own, and sometimes special."""
    own = ADDRESSES[KEYS.index(key)]
    addresses = luck.choice(((own,), (own,), (own,), (), tuple(luck.sample(ADDRESSES, 2)), (own, own)))
    problem = TROUBLE if luck.random() < 0.1 else None
    return Member(
        key=key,
        addresses=addresses,
        local=luck.random() < 0.1,
        spread=luck.random() < 0.1,
        problem=problem,
        interfaces=tuple((each, ON[each]) for each in addresses if each in ON),
    )


def on(address: Address) -> str:
    """The interface that the pool of *address* names."""
    return ON.get(address, "")


def changed(shards: Shards, member: Member) -> Shards:
    """*shards* with *member* in place of the one with its key; all others are the same objects."""
    return shards.map(lambda _: member, (member.key,))


@pytest.mark.slow
@examples(60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_combined_shards_do_not_depend_on_the_history(luck: random.Random) -> None:
    """This holds after any history; a Service with a reserved address, or one of another Service, is special."""
    memory = Memory()
    shards = shard_members(GROUP, [some_member(key, luck) for key in KEYS], memory)
    history = []
    for _ in range(20):
        if luck.random() < 0.2:
            some = luck.sample(KEYS, luck.randint(0, len(KEYS)))
            shards = shard_members(GROUP, [some_member(key, luck) for key in some], memory)
        shards = changed(shards, some_member(luck.choice(KEYS), luck))
        reserved = set(luck.sample(ADDRESSES, luck.choice((0, 0, 1))))
        history.append((shards, reserved, combine(shards, interface="eth0", reserved=reserved)))
        assert memory.state(AddressCounts).shards.keys() == {address for each in shards for address in each.addresses}
    for then, reserved, kept in history:
        assert combine(replace(then, memory=Memory()), interface="eth0", reserved=reserved) == kept
        several = [address for address in ADDRESSES if sum(address in each.addresses for each in then) > 1]
        for name, shard in kept.items():
            members = then.members[name]
            apart = {each.key for each in members if not reserved.union(several).isdisjoint(each.addresses)}
            odd = {each.key for each in members if each.local or each.spread or each.problem}
            assert {each.key for each in shard.special} == apart | odd
            plain = [each for each in members if each not in shard.special]
            for interface in {"", *ON.values()}:
                there = [(each, address) for each in plain for address in each.addresses if on(address) == interface]
                part = shard.on.get(interface, EMPTY)
                assert part.services == tuple(sorted({each.key for each, _ in there}))
                found = [vip for family in (4, 6) for vip in part.vips.get(family, ())]
                assert [vip.address for vip in found] == sorted({address for _, address in there})
                assert {vip.interface for vip in found} <= {interface or "eth0"}


def test_members_are_sharded_once() -> None:
    """They are sharded by name; those with instances of their own, and those whose lines are refused, are known."""
    members = [Member(key=key, addresses=(), local=key == KEYS[4], problem=TROUBLE) for key in KEYS]
    shards = shard_members(GROUP, members)
    assert shard_members(GROUP, shards) is shards
    assert sorted(shards, key=lambda each: each.key) == members
    assert (len(shards), shards.own) == (len(members), (members[4],))
    assert {each.key for each in shards.troubled} == set(KEYS)
    other = shard_members(build.group(instances=shared(2)), shards)
    assert (other.count, sorted(other.members)) == (2, ["group/0", "group/1"])
    assert list(shard_members(build.group(), shards).members) == [""]


@pytest.mark.parametrize("count", [0, 3])
def test_of_several_with_one_address_the_oldest_owns_it(count: int) -> None:
    """Whether they are in one shard or in several. Each member is found by its key."""
    ages = ["2026-01-03", "2026-01-01", "2026-01-02", "", *["2026-01-04"] * 5]
    members = [
        Member(key=key, addresses=(ADDRESSES[0], ADDRESSES[1 + number]), created=created)
        for number, (key, created) in enumerate(zip(KEYS, ages, strict=True))
    ]
    shards = shard_members(build.group(instances=shared(count)) if count else build.group(), members, Memory())
    for _ in range(2):
        owners = {address: member.key for address, member in shards.owners().items()}
        assert owners == {ADDRESSES[0]: KEYS[1], **dict(zip(ADDRESSES[1:], KEYS, strict=False))}
    alone = changed(shards, replace(members[1], addresses=()))
    assert alone.owners()[ADDRESSES[0]].key == KEYS[2]
    assert [shards.get(key) for key in (*KEYS, "shop/none")] == [*members, None]


def test_a_member_is_plain_or_special_by_itself() -> None:
    """This depends on its key, its lines and its policy."""
    assert Member(key="shop/web", addresses=()).is_plain
    assert not Member(key="group/1", addresses=()).is_plain
    assert not Member(key="shop/web", addresses=(), local=True).is_plain
    assert TROUBLE.reason is Reason.INVALID_VERBATIM
    assert not Member(key="shop/web", addresses=(), problem=TROUBLE).is_plain
