"""
Conditions as lists merged by type: kavip sets its own, and keeps those of other controllers.

``lastTransitionTime`` changes only when *status* does (Kubernetes API conventions).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from kavip.api.meta import Condition


def find(conditions: Sequence[Condition] | None, kind: str) -> Condition | None:
    """The condition of type *kind*, or None."""
    for entry in conditions or ():
        if entry.type == kind:
            return entry
    return None


def merged(old: Sequence[Condition] | None, new: Iterable[Condition], *, now: str) -> list[Condition]:
    """*old* with each of *new* put in its place or at the end; *now* is RFC 3339."""
    result = {entry.type: entry for entry in old or ()}
    for entry in new:
        before = result.get(entry.type)
        is_transition = before is None or before.status != entry.status or not before.last_transition_time
        result[entry.type] = Condition(
            type=entry.type,
            status=entry.status,
            reason=entry.reason,
            message=entry.message,
            observed_generation=entry.observed_generation,
            last_transition_time=now if is_transition or before is None else before.last_transition_time,
        )
    return list(result.values())


def wire(condition: Condition) -> dict[str, Any]:
    """*condition* as JSON; without ``observedGeneration`` if the object has no generation, as a Service."""
    body: dict[str, Any] = msgspec.to_builtins(condition)
    if not condition.observed_generation:
        del body["observedGeneration"]
    return body
