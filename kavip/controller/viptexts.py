"""
The VIPs of one group by their text, as answers of agents name them: thousands, of which few change at a time.
"""

from collections.abc import Mapping
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

    def update(self, parts: Parts) -> None:
        """Have the texts of *parts* from now on."""
        change = change_of(self._parts, parts)
        lost = set[str]().union(*change.left).difference(*change.come)
        if len(lost) > _FEW:
            self.found, change = {}, change._replace(come=parts)
        else:
            for text in lost:
                if not any(text in each for each in parts):
                    del self.found[text]
        for each in change.come:
            self.found |= each
        self._parts = parts
