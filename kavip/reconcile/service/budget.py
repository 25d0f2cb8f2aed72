"""
How often one Service is written whose owner does not touch it.

What agents say may change as often as they are asked: a node that flaps, or lies, would have all Services of its group
written each time, and the controller busy with nothing else. So the first :data:`BURST` writes go at once, and after
them one in :data:`REST` seconds; an edit of the Service itself waits for nothing.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from kavip.api.service import Service

BURST: Final = 10
REST: Final = 15.0

_FEW: Final = 1024


@dataclass(frozen=True, slots=True)
class _Spent:
    """*wait* seconds, counted from *at*, until all of the burst is there; *edit* stands for what its owner wrote."""

    wait: float
    at: float
    edit: int

    def left(self, now: float) -> float:
        """What is left of the wait."""
        return max(0.0, self.wait - (now - self.at))


class Restraint:
    """Remembers the Services that were written of late; times are monotonic."""

    def __init__(self) -> None:
        """Nobody was written."""
        self._spent: dict[str, _Spent] = {}
        self._most = _FEW

    def __len__(self) -> int:
        """Of how many Services it is remembered."""
        return len(self._spent)

    def spend(self, service: Service, *, now: float) -> None:
        """*service* was written."""
        before = self._spent.get(service.key)
        wait = REST + (before.left(now) if before else 0.0)
        self._spent[service.key] = _Spent(min(wait, REST * BURST), now, _edit(service))
        if len(self._spent) > self._most:
            self._spent = {key: each for key, each in self._spent.items() if each.left(now)}
            self._most = max(_FEW, 2 * len(self._spent))

    def pause(self, service: Service, *, now: float) -> float:
        """The seconds until *service* may be written again; 0: at once."""
        spent = self._spent.get(service.key)
        left = spent.left(now) - REST * (BURST - 1) if spent else 0.0
        return left if left > 0 and spent and spent.edit == _edit(service) else 0.0

    def forget(self, key: str) -> None:
        """The Service *key* is gone."""
        self._spent.pop(key, None)


def _edit(service: Service) -> int:
    """A number that an edit of *service* by its owner changes, and no write of its status."""
    metadata = service.metadata
    return hash(msgspec.json.encode((service.spec, metadata.annotations, metadata.labels, metadata.deletion_timestamp)))
