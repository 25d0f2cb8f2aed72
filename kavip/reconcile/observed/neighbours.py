"""
What the nodes of other groups still run, which may differ from what their objects say now.

A text gives up an anchor or a VRID only when all its nodes switch, and the switch may wait for one of them. Until then
a node of that group has the address, even if its Service has lost it and another Service has got it. So an address that
is new in a group waits until no other group's text has it, and a new VRID is one that no text has.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter
from typing import Final

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.names import Reason
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.snapshot import Snapshot
from kavip.vrrp.members import Member
from kavip.vrrp.running import NO_INSTANCES, RunningInstance, running_instances
from kavip.vrrp.sharding import Shards, shard_of_instance

_ADDRESSES: Final = attrgetter("addresses")

RECHECK: Final = 1.0
"""Seconds until the next check whether another group has given up an address."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The *texts* that run, by group; they are read only if something new comes. *memory*: that of each group."""

    texts: Mapping[str, str]
    memory: Callable[[str], Memory] = lambda _: KEEPS_NOTHING

    def router_ids(self, groups: Iterable[KeepalivedGroup]) -> frozenset[int]:
        """The VRIDs that *groups* run."""
        runs = (self._running(group.key).values() for group in groups)
        return frozenset(each.identity.router_id for instances in runs for each in instances)

    def holders(self, addresses: Iterable[Address]) -> Mapping[Address, str]:
        """The group that runs each of *addresses*, if there is one."""
        wanted, found = frozenset(addresses), dict[Address, str]()
        for group in sorted(self.texts) if wanted else ():
            for run in self._running(group).values():
                found |= dict.fromkeys(wanted & run.carried, group)
        return found

    def _running(self, group: str) -> Mapping[str, RunningInstance]:
        return running_instances(self.texts[group], self.memory(group)) if group in self.texts else NO_INSTANCES


def elsewhere_of(snapshot: Snapshot, objects: OwnedObjects, group: KeepalivedGroup) -> Elsewhere:
    """The running texts of other groups than *group*, if these have pods."""
    found = {
        key: objects.published_text(key)
        for key, each in objects.configmaps.items()
        if key != group.key and objects.pods.get(key) and key in snapshot.groups and each.data
    }
    return Elsewhere(found, snapshot.memory)


def withhold(
    members: Shards, running: Mapping[str, RunningInstance], elsewhere: Elsewhere
) -> tuple[Shards, Mapping[str, Refusal]]:
    """
    *members* without the addresses that another group runs and this one is not *running* yet.

    The second result is what each Service waits for, by key.
    """
    if not elsewhere.texts:
        return members, {}
    runs = _runs_by_share(running)
    new = (members.memory.last(_new, share, some, runs.get(share, ())) for share, some in members.members.items())
    held = elsewhere.holders(frozenset[Address]().union(*new).difference(*(run.carried for run in running.values())))
    if not held:
        return members, {}
    waiting = {each.key: min(both) for each in members if (both := held.keys() & set(each.addresses))}
    refusals = {
        key: Refusal(
            Reason.PENDING,
            f"the nodes of KeepalivedGroup {held[address]} hold {address} still: it comes when all of them have given "
            "it up; see the group's Programmed condition",
            is_temporary=True,
        )
        for key, address in waiting.items()
    }
    return members.map(lambda each: _without(each, held), waiting.keys()), refusals


def _runs_by_share(running: Mapping[str, RunningInstance]) -> Mapping[str, tuple[RunningInstance, ...]]:
    """The Shared instances that run of each share, on all interfaces and of both families."""
    found: dict[str, list[RunningInstance]] = {}
    for name in sorted(running):
        found.setdefault(shard_of_instance(name), []).append(running[name])
    return {share: tuple(some) for share, some in found.items()}


def _new(members: tuple[Member, ...], runs: tuple[RunningInstance, ...]) -> frozenset[Address]:
    """The addresses of *members* that no instance of their share *runs* yet."""
    every = frozenset(chain.from_iterable(map(_ADDRESSES, members)))
    return every.difference(*(run.carried for run in runs))


def _without(member: Member, held: Mapping[Address, str]) -> Member:
    return replace(member, addresses=tuple(each for each in member.addresses if each not in held))
