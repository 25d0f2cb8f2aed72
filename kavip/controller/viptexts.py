"""
The VIPs of one group by their text, as answers of agents name them: thousands, of which few change at a time.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from kavip.api.address import Address
from kavip.memo import change_of

Parts = tuple[Mapping[str, Address], ...]
_FEW: Final = 64
"""Texts that are looked for in all parts before they are removed; with more, everything is merged again."""


class VIPTexts:
    """*found* has all texts of the last *parts*; it is edited in place, because a copy would read every VIP."""

    def __init__(self) -> None:
        """Start without VIPs."""
        self.found: dict[str, Address] = {}
        self._parts: Parts = ()

    def update(self, parts: Parts) -> AbstractSet[str]:
        """Have the texts of *parts* from now on; those that have come or gone."""
        change = change_of(self._parts, parts)
        lost = set[str]().union(*change.left).difference(*change.come)
        self._parts = parts
        if len(lost) > _FEW:
            before, self.found = self.found.keys(), {text: address for each in parts for text, address in each.items()}
            return before ^ self.found.keys()
        gone = {text for text in lost if not any(text in each for each in parts)}
        for text in gone:
            del self.found[text]
        new = {text for each in change.come for text in each if text not in self.found}
        for each in change.come:
            self.found |= each
        return gone | new
