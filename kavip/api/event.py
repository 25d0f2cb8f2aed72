"""``events.k8s.io/v1`` Event: what ``kubectl describe`` shows below an object."""

from dataclasses import dataclass
from typing import Literal

from kavip.api.meta import Metadata, Wire
from kavip.api.text import one_line


class ObjectReference(Wire, frozen=True):
    """The object that an Event is about."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(Wire, frozen=True):
    """``series``: how often the same thing has happened, and when last."""

    count: int
    last_observed_time: str


class Event(Wire, frozen=True):
    """An Event; *type* is ``Normal`` or ``Warning``."""

    metadata: Metadata = Metadata()
    event_time: str | None = None
    series: EventSeries | None = None
    deprecated_last_timestamp: str | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    note: str = ""
    type: str = ""

    @property
    def last_time(self) -> str:
        """When it was last seen, as far as it says: reporters of the older API fill another field."""
        return (self.series.last_observed_time if self.series else "") or self.deprecated_last_timestamp or ""


@dataclass(frozen=True, slots=True)
class Note:
    """The content of an Event: *reason* is one of kavip's, *text* what to do next, *action* what was being done."""

    regarding: ObjectReference
    reason: str
    text: str
    action: str = "Reconcile"
    severity: Literal["Normal", "Warning"] = "Normal"

    def __post_init__(self) -> None:
        """Make the text printable, whatever it quotes."""
        object.__setattr__(self, "text", one_line(self.text))
