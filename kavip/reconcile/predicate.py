"""
The predicate of the watch events: is an event nothing but the return of our own status write.

Then nothing is left to decide, because a plan applied to its own result is empty. If the same event brings anything
else, an edit that came between or a field that the server changed, the Service is reconciled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kavip.api import conditions
from kavip.api.service import Service
from kavip.reconcile.plan import Key, KeyKind, StatusPatch


@dataclass(slots=True)
class PendingWrites:
    """
    The status writes that the watch has not shown yet.

    A plan made before that is made for the object as it was, and its write can only conflict.
    """

    _sent: dict[str, StatusPatch] = field(default_factory=dict)
    """By Service: the last write, until the watch shows another version of the Service."""
    _replaced: dict[Key, str] = field(default_factory=dict)
    """The resourceVersion that the last write of an object was decided on and has replaced."""

    def send(self, write: StatusPatch) -> None:
        """Record *write*, which is about to be sent."""
        if write.kind is KeyKind.SERVICE:
            self._sent[write.key] = write

    def accept(self, write: StatusPatch, resource_version: str) -> None:
        """Record that the API server has answered *write* with *resource_version*."""
        if write.kind is KeyKind.SERVICE and write.key not in self._sent:
            return  # the watch was faster than the answer
        based_on = write.body["metadata"]["resourceVersion"]
        if resource_version != based_on:  # else the server found nothing new, and the watch shows nothing
            self._replaced[Key(write.kind, write.key)] = based_on

    def pop_sent(self, service: str) -> StatusPatch | None:
        """Remove and return the last write of *service*, of which the watch shows another version now."""
        return self._sent.pop(service, None)

    def is_replaced(self, key: Key, resource_version: str) -> bool:
        """Whether our last write of *key* has replaced its *resource_version*."""
        return self._replaced.get(key) == resource_version

    def requeue_on_return(self, key: Key) -> None:
        """Let the return of the last write of *key* requeue it: something else has happened since."""
        if key.kind is KeyKind.SERVICE:
            self._sent.pop(key.name, None)

    def confirm(self, key: Key) -> None:
        """Record that the cache shows the last write of *key*, or a later version."""
        self._replaced.pop(key, None)

    def clear(self) -> None:
        """Forget the writes that the caches have not shown: they show every write that was done."""
        self._replaced.clear()

    def returning(self) -> frozenset[Key]:
        """The keys that the return of their write will requeue."""
        return frozenset(key for key in self._replaced if key.name not in self._sent)


def is_own_write(sent: StatusPatch | None, before: Service | None, after: Service | None) -> bool:
    """Whether *sent*, and nothing else, made *after* of *before*."""
    if sent is None or before is None or after is None:
        return False
    if sent.body["metadata"]["resourceVersion"] != before.metadata.resource_version:
        return False
    return before.spec == after.spec and _has_same_metadata(before, after) and _is_patched(before, after, sent.body)


def _has_same_metadata(before: Service, after: Service) -> bool:
    """Whether the metadata differ in nothing but the resourceVersion."""
    one, other = before.metadata, after.metadata
    return (
        one.uid == other.uid
        and one.generation == other.generation
        and one.deletion_timestamp == other.deletion_timestamp
        and one.annotations == other.annotations
        and one.labels == other.labels
    )


def _is_patched(before: Service, after: Service, body: Mapping[str, Any]) -> bool:
    """Whether the status of *after* is that of *before* with the patch *body*."""
    status = body["status"]
    if "loadBalancer" in status:
        entries = ({"ip": each.ip, "ipMode": each.ip_mode} for each in after.status.load_balancer.ingress or ())
        if list(entries) != (status["loadBalancer"]["ingress"] or []):
            return False
    elif after.status.load_balancer != before.status.load_balancer:
        return False
    wanted = {each.type: conditions.wire(each) for each in before.status.conditions or ()}
    wanted |= {each["type"]: each for each in status.get("conditions", ())}
    return wanted == {each.type: conditions.wire(each) for each in after.status.conditions or ()}
