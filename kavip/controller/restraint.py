"""
How often one Service is written whose owner does not touch it.

What agents say may change as often as they are asked: a node that flaps, or lies, would have all Services of its group
written each time, and the controller busy with nothing else. So the first :data:`BURST` writes go at once, and after
them one in :data:`REST` seconds; an edit of the Service itself waits for nothing.
"""

from dataclasses import dataclass
from typing import Final

from kavip.api.meta import Metadata
from kavip.api.service import Service, ServiceSpec

BURST: Final = 10
REST: Final = 15.0


@dataclass(frozen=True, slots=True)
class _Spent:
    """*wait* seconds, counted from *at*, until all of the burst is there again; and what the owner had written."""

    wait: float
    at: float
    spec: ServiceSpec
    notes: tuple[dict[str, str] | None, dict[str, str] | None, str | None]

    def left(self, now: float) -> float:
        return max(0.0, self.wait - (now - self.at))


class Restraint:
    """Remembers the Services that were written of late; times are monotonic."""

    def __init__(self) -> None:
        """Nobody was written."""
        self._spent: dict[str, _Spent] = {}

    def spend(self, service: Service, *, now: float) -> None:
        """*service* was written."""
        before = self._spent.get(service.key)
        wait = REST + (before.left(now) if before else 0.0)
        self._spent[service.key] = _Spent(min(wait, REST * BURST), now, service.spec, _notes(service.metadata))

    def pause(self, service: Service, *, now: float) -> float:
        """The seconds until *service* may be written again; 0: at once."""
        spent = self._spent.get(service.key)
        if spent is None or (spent.spec, spent.notes) != (service.spec, _notes(service.metadata)):
            return 0.0
        return max(0.0, spent.left(now) - REST * (BURST - 1))

    def forget(self, key: str) -> None:
        """The Service *key* is gone."""
        self._spent.pop(key, None)


def _notes(metadata: Metadata) -> tuple[dict[str, str] | None, dict[str, str] | None, str | None]:
    return metadata.annotations, metadata.labels, metadata.deletion_timestamp
