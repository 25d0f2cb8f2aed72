"""The pools and groups of the chart's values: the data of a ConfigMap, and the conditions that kavip writes there."""

import msgspec

from kavip.api.meta import Metadata, Passthrough, Wire


class Entry(Wire, frozen=True, forbid_unknown_fields=True):
    """One of ``pools[]`` or ``groups[]``; *namespace* is that of a group."""

    name: str
    namespace: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: Passthrough = {}


class ChartValues(Wire, frozen=True, forbid_unknown_fields=True):
    """All of them, and the *revision* of the Helm release: another revision is applied again."""

    revision: str = ""
    pools: list[msgspec.Raw] = []
    groups: list[msgspec.Raw] = []


class AppliedObject(Wire, frozen=True):
    """A pool or group as the API server stores it."""

    metadata: Metadata = Metadata()
    spec: Passthrough = {}


class EntryCondition(Wire, frozen=True, omit_defaults=False):
    """
    The condition ``Applied`` of one entry.

    *observed*: the hash of the values that it is about.
    """

    kind: str
    name: str
    namespace: str = ""
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    observed: str = ""
    last_transition_time: str = ""

    @property
    def entry(self) -> tuple[str, str, str]:
        """Kind, namespace and name of the entry."""
        return self.kind, self.namespace, self.name
