"""
The lists of VIPs that the agents of one group report, by their hashes.

Most nodes run the same lists. An agent sends hashes instead of them (:func:`kavip.api.agent.by_hash`), so a list is
read once, and not once from each node.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from kavip.api.address import Address
from kavip.api.agent import LONG_LIST, AgentState, hash_of
from kavip.reconcile.observed.agent import KnownLists, Placement, WantedVIPs

_PLACEMENTS: Final = 8  # during a change nodes report two or three
_MOST_TEXTS: Final = 4 * LONG_LIST  # of a report whose placement is kept
_TIMES: Final = 4  # as many texts as are wanted: during a change nodes report the old lists and the new ones
Lists = Mapping[str, frozenset[str]]
Key = tuple[tuple[str, str, tuple[str, ...]], ...]


class VIPLists:
    """The known lists. Of their VIPs those count that are *wanted*; a VIP that is not wanted yet may be later."""

    def __init__(self) -> None:
        """Know no list."""
        self._texts: dict[str, frozenset[str]] = {}
        self._addresses: dict[str, frozenset[Address]] = {}
        self._placements: dict[Key, Placement] = {}

    def knows(self, report: AgentState) -> bool:
        """Whether all hashes in *report* are known."""
        return all(each in self._texts for each in hashes_in(report))

    def add(self, lists: Lists, wanted: WantedVIPs, *, users: Mapping[str, int]) -> None:
        """
        Know *lists*, too, and forget all that have no *users*, which are nodes with it in their last answer.

        A list is kept only if most of its VIPs are *wanted*. If there are too many, those with the fewest users go
        first: nodes that lie cannot fill the memory, nor replace the lists that the others run.
        """
        for gone in [name for name in self._texts if not users.get(name)]:
            self._forget(gone)
        for name, texts in lists.items():
            if 2 * sum(map(wanted.__contains__, texts)) >= len(texts):
                self._texts[name] = texts
        most = _TIMES * len(wanted) + _MOST_TEXTS
        while sum(map(len, self._texts.values())) > most:
            self._forget(min(self._texts, key=lambda name: users.get(name, 0)))

    def _forget(self, name: str) -> None:
        del self._texts[name]
        self._addresses.pop(name, None)

    def addresses(self, report: AgentState, wanted: WantedVIPs) -> KnownLists:
        """The *wanted* VIPs of the lists in *report* whose hashes are known."""
        found = {}
        for name in hashes_in(report) & self._texts.keys():
            if name not in self._addresses:
                texts = self._texts[name]
                self._addresses[name] = frozenset(address for text in texts if (address := wanted.get(text)))
            found[name] = self._addresses[name]
        return found

    def placement(self, report: AgentState) -> Placement | None:
        """Where the wanted VIPs of *report* are, if an equal report was placed."""
        return self._placements.get(_key(report))

    def placing(self, report: AgentState) -> Callable[[Placement], None]:
        """
        Keeps the placement of *report*, unless other VIPs are wanted meanwhile: nodes that report the same share it.

        That of a report with many VIPs in lists is not kept: it would fill the memory.
        """
        kept = self._placements

        def keep(placement: Placement) -> None:
            if sum(len(each.virtual_ips) for each in report.instances) <= _MOST_TEXTS:
                if len(kept) >= _PLACEMENTS:
                    del kept[next(iter(kept))]
                kept[_key(report)] = placement

        return keep

    def forget_addresses(self, texts: Collection[str]) -> None:
        """Whether *texts* are wanted has changed."""
        self._placements = {}
        for name in [name for name in self._addresses if not self._texts[name].isdisjoint(texts)]:
            del self._addresses[name]


def _key(report: AgentState) -> Key:
    return tuple((each.name, each.virtual_ips_hash, each.virtual_ips) for each in report.instances)


def hashes_in(report: AgentState) -> set[str]:
    """The hashes that stand for lists in *report*."""
    return {each.virtual_ips_hash for each in report.instances if each.virtual_ips_hash and not each.virtual_ips}


def lists_in(report: AgentState) -> Lists:
    """The lists in *report* that an agent may replace, by their hashes."""
    lists = (each.virtual_ips for each in report.instances if len(each.virtual_ips) > LONG_LIST)
    return {hash_of(each): frozenset(each) for each in lists}
