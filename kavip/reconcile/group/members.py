"""
The members of a group: its Services, each with the VIPs that may run in this group.

A VIP runs in one group only: in two it would be on two nodes at once. A Service with policy ``Local`` whose VIPs are
spread also has the nodes of its endpoints, and one that prefers nodes has these. The pool of an address says on which
interface it lives, also if the pool does not serve the Service any more.
"""

from dataclasses import replace

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.reconcile.service.vips import Sharers, sharers_of
from kavip.snapshot import Snapshot
from kavip.vrrp.members import Member, member_of
from kavip.vrrp.preference import matching
from kavip.vrrp.sharding import Shards, shard_count, shard_of


def members_of(snapshot: Snapshot, group: KeepalivedGroup) -> Shards:
    """The Services of namespaces that *group* allows, without the VIPs that another group or a node has."""
    count = shard_count(group)

    def make(service: Service) -> Member | None:
        if not snapshot.allows(group, service.metadata.namespace):
            return None
        return member_of(service, group, snapshot.interface_of)

    made = snapshot.derived(group.key, group.spec, make, lambda key: shard_of(key, count))
    sharers: dict[Address, Sharers] = {}  # once for each address, however many Services share it
    members = Shards(group.key, count, made, snapshot.memory(group.key))
    members = members.map(
        lambda each: _without_foreign(snapshot, group.key, each, sharers), snapshot.ledger.disputing()
    )
    spread = {each.key for each in members.own if each.local and each.spread}
    members = members.map(lambda each: replace(each, endpoints=snapshot.endpoint_nodes(each.key)), spread)
    if not (preferring := {each.key for each in members.preferring}):
        return members
    nodes, memory = snapshot.group_nodes(group), snapshot.memory(group.key)

    def with_preferred(member: Member) -> Member:
        text = member.preferred_selector
        return replace(member, preferred=memory.last(matching, text, text, nodes))

    return members.map(with_preferred, preferring)


def _without_foreign(snapshot: Snapshot, group: str, member: Member, sharers: dict[Address, Sharers]) -> Member:
    for address in member.addresses:
        if address not in sharers:
            sharers[address] = sharers_of(snapshot, group, address)
    own = tuple(each for each in member.addresses if (allowed := sharers[each]) is None or member.key in allowed)
    return member if own == member.addresses else replace(member, addresses=own)
