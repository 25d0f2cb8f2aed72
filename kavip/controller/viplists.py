"""
The lists of VIPs that the agents of one group report, by their hashes.

Most nodes run the same lists. An agent sends hashes instead of them (:func:`kavip.api.agent.by_hash`), so a list is
read once, and not once from each node.
"""

from collections.abc import Collection, Mapping
from typing import Final

from kavip.api.address import Address
from kavip.api.agent import LONG_LIST, AgentState, hash_of
from kavip.reconcile.observed.agent import KnownLists, Placement, WantedVIPs

_PLACEMENTS: Final = 8  # during a change nodes report two or three
_MOST_TEXTS: Final = 4 * LONG_LIST  # of a report whose placement is kept
Lists = Mapping[str, frozenset[str]]


class VIPLists:
    """The known lists. Of their VIPs those count that are *wanted*; a VIP that is not wanted yet may be later."""

    def __init__(self) -> None:
        """Know no list."""
        self._texts: dict[str, frozenset[str]] = {}
        self._addresses: dict[str, frozenset[Address]] = {}
        self._placements: dict[tuple[object, ...], Placement] = {}

    def knows(self, report: AgentState) -> bool:
        """Whether all hashes in *report* are known."""
        return all(each in self._texts for each in hashes_in(report))

    def add(self, lists: Lists, wanted: WantedVIPs, *, used: Collection[str]) -> None:
        """
        Know *lists*, too, and forget all that are not *used* in the last answer of any node.

        A list is kept only if most of its VIPs are *wanted*: a node that reports others cannot fill the memory.
        """
        for gone in self._texts.keys() - used:
            del self._texts[gone]
            self._addresses.pop(gone, None)
        for name, texts in lists.items():
            if 2 * sum(map(wanted.__contains__, texts)) >= len(texts):
                self._texts[name] = texts

    def addresses(self, report: AgentState, wanted: WantedVIPs) -> KnownLists:
        """The *wanted* VIPs of the lists in *report* whose hashes are known."""
        found = {}
        for name in hashes_in(report) & self._texts.keys():
            if name not in self._addresses:
                texts = self._texts[name]
                self._addresses[name] = frozenset(address for text in texts if (address := wanted.get(text)))
            found[name] = self._addresses[name]
        return found

    def placement(self, report: AgentState, wanted: WantedVIPs) -> Placement | None:
        """
        Where the *wanted* VIPs of *report* are, whose hashes are known; nodes that report the same share it.

        None for a report with many VIPs in lists, which would fill the memory.
        """
        if sum(len(each.virtual_ips) for each in report.instances) > _MOST_TEXTS:
            return None
        key = tuple((each.name, each.virtual_ips_hash, each.virtual_ips) for each in report.instances)
        if key not in self._placements:
            if len(self._placements) >= _PLACEMENTS:
                del self._placements[next(iter(self._placements))]
            self._placements[key] = Placement.of(report, wanted, self.addresses(report, wanted))
        return self._placements[key]

    def forget_addresses(self, texts: Collection[str]) -> None:
        """Whether *texts* are wanted has changed."""
        self._placements.clear()
        for name in [name for name in self._addresses if not self._texts[name].isdisjoint(texts)]:
            del self._addresses[name]


def hashes_in(report: AgentState) -> set[str]:
    """The hashes that stand for lists in *report*."""
    return {each.virtual_ips_hash for each in report.instances if each.virtual_ips_hash and not each.virtual_ips}


def lists_in(report: AgentState) -> Lists:
    """The lists in *report* that an agent may replace, by their hashes."""
    lists = (each.virtual_ips for each in report.instances if len(each.virtual_ips) > LONG_LIST)
    return {hash_of(each): frozenset(each) for each in lists}
