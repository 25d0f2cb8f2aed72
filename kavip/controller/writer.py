"""
The only writer of the Plans of the controller.

Each write is safe by itself: a status patch carries the resourceVersion that it was decided on, server-side apply its
field manager. A lease is not a fence, so no write relies on it. Right before :mod:`kavip.kube.transport` sends a
write, it checks that this replica still leads.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import structlog

from kavip import names
from kavip.api.meta import ManagedObject
from kavip.errors import Conflict, Forbidden, NotFound, Rejected
from kavip.kube.client import Client, PatchKind
from kavip.kube.resources import (
    CONFIGMAPS,
    DAEMONSETS,
    GROUPS,
    POD_MONITORS,
    PODS,
    POOLS,
    ROLE_BINDINGS,
    ROLES,
    SERVICES,
    Resource,
)
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.observed.ownership import owner_conflict
from kavip.reconcile.observed.records import (
    AppliedObject,
    ObjectConflict,
    Records,
    RejectedObject,
    ReplacedPod,
    record_key,
    rejected_again,
)
from kavip.reconcile.plan import Apply, KeyKind, Plan, PodAnnotation, PodRemoval, StatusPatch
from kavip.reconcile.predicate import PendingWrites
from kavip.reconcile.takeover import fieldmanager

log = structlog.get_logger()

_OWNED: Final[dict[str, Resource[Any]]] = {
    each.kind: each for each in (CONFIGMAPS, DAEMONSETS, POD_MONITORS, ROLES, ROLE_BINDINGS)
}
_MANAGED: Final = {kind: replace(each, type=ManagedObject) for kind, each in _OWNED.items()}
_STATUS: Final[dict[KeyKind, tuple[Resource[Any], PatchKind]]] = {
    # Strategic merge keeps the conditions of others, which only built-in kinds can do.
    KeyKind.SERVICE: (SERVICES, "strategic"),
    KeyKind.GROUP: (GROUPS, "merge"),
    KeyKind.POOL: (POOLS, "merge"),
}
_PODS_AT_ONCE: Final = 8


class Writer:
    """Sends the writes of a Plan and keeps the :class:`~kavip.reconcile.observed.records.Records` of them."""

    def __init__(
        self, client: Client, records: Records, pending: PendingWrites, *, now: Callable[[], datetime]
    ) -> None:
        """*now* is the time at which conflicts and refusals are recorded."""
        self._client, self._records, self._pending, self._now = client, records, pending, now

    async def send(self, plan: Plan) -> bool:
        """
        Send every write of *plan*: objects first, then pods and status.

        False: something was not written, and the records say why; the caller plans again.
        """
        applies = [write for write in plan.writes if isinstance(write, Apply)]
        for write in applies:
            if (write.unseen or write.adopts) and not await self._recorded(write, self._is_free(write)):
                return False
        for write in applies:
            if not await self._recorded(write, self._apply(write)):
                return False
        if not await self._annotate_pods([write for write in plan.writes if isinstance(write, PodAnnotation)]):
            return False
        for removal in (write for write in plan.writes if isinstance(write, PodRemoval)):
            if not await self._replace(removal):
                return False
        for each in plan.writes:
            if isinstance(each, StatusPatch):
                await self._patch_status(each)
        return True

    async def _is_free(self, write: Apply) -> bool:
        """
        Whether the name is free or an object of kavip has it; the cache holds only objects that carry a group's label.

        An object of keepalived-operator that kavip adopts becomes an object of kavip.
        """
        try:
            found = await self._client.get(_OWNED[write.kind], write.key)
        except NotFound:
            return True
        why = owner_conflict(found, group_uid=write.owner)
        if why is not None and why.is_old_operator and write.adopts:
            await self._inherit(write)
            return True
        if why is not None:
            self._records.conflicts[record_key(write)] = ObjectConflict(why, self._now())
        return why is None

    async def _inherit(self, write: Apply) -> None:
        """
        Take over the ownership of the fields of ``spec``, so that fields that kavip does not apply are removed.

        Server-side apply alone would keep everything that another manager wrote: containers, volumes, privileges.
        """
        found = await self._client.get(_MANAGED[write.kind], write.key)
        before = found.metadata.managed_fields or []
        after = fieldmanager.take_over_spec(before, manager=names.FIELD_MANAGER)
        if after == before:
            return
        body = {"metadata": {"resourceVersion": found.metadata.resource_version, "managedFields": after}}
        await self._client.patch(_MANAGED[write.kind], write.key, body)
        log.info("object taken over from keepalived-operator", kind=write.kind, key=write.key)

    async def _replace(self, write: PodRemoval) -> bool:
        self._records.replaced[write.group] = ReplacedPod(write.uid, is_done=False)
        try:
            with suppress(NotFound, Conflict):  # the watch will say what is there instead
                await self._client.delete(PODS, write.key, uid=write.uid)
        except (Rejected, Forbidden) as error:
            self._record_pod(write.group, write.uid, write.key, error)
            return False
        self._records.replaced[write.group] = ReplacedPod(write.uid, is_done=True)
        self._records.pods.pop(write.group, None)
        log.info("pod of keepalived-operator replaced", pod=write.key)
        return True

    async def _recorded(self, write: Apply, step: Awaitable[bool]) -> bool:
        """The result of *step*, a part of *write*; False if the API server refuses it, which is recorded."""
        try:
            return await step
        except (Rejected, Forbidden) as error:
            name, body = record_key(write), digest(write.body)
            self._records.rejected[name] = self._refusal(self._records.rejected.get(name), body, error)
            log.warning("object refused by the API server", kind=write.kind, key=write.key, error=error.message)
            return False

    def _record_pod(self, group: str, what: str, pod: str, error: Rejected | Forbidden) -> None:
        """Record that *what* is refused for *pod* of *group*."""
        found = self._refusal(self._records.pods.get(group), what, error)
        self._records.pods[group] = replace(found, message=f"{pod}: {found.message}")
        log.warning("write to a pod refused by the API server", pod=pod, error=error.message)

    def _refusal(self, last: RejectedObject | None, what: str, error: Rejected | Forbidden) -> RejectedObject:
        """The record of *error*; raises it if it says nothing about the object."""
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise error
        return rejected_again(last, what, error.message, self._now())

    async def _apply(self, write: Apply) -> bool:
        made = await self._client.apply(_OWNED[write.kind], write.key, write.body, force=True)
        name = record_key(write)
        self._records.rejected.pop(name, None)
        self._records.applied[name] = AppliedObject(digest(write.body), made.metadata.uid, made.metadata.generation)
        log.info("object applied", kind=write.kind, key=write.key)
        return True

    async def _annotate_pods(self, writes: Sequence[PodAnnotation]) -> bool:
        """Annotate the pods; False if the API server refuses one, which is recorded once for its group."""
        slots = asyncio.Semaphore(_PODS_AT_ONCE)

        async def annotate(write: PodAnnotation) -> None:
            body = {"metadata": {"annotations": {names.CONFIG_HASH_ANNOTATION: write.value}}}
            async with slots:
                with suppress(NotFound):  # a pod that is gone needs no news
                    await self._client.patch(PODS, write.key, body)

        results = await asyncio.gather(*map(annotate, writes), return_exceptions=True)
        refused: dict[str, tuple[PodAnnotation, Rejected | Forbidden]] = {}
        for write, result in zip(writes, results, strict=True):
            if isinstance(result, Rejected | Forbidden):
                refused.setdefault(write.group, (write, result))
            elif isinstance(result, BaseException):
                raise result
        for group in {write.group for write in writes} - refused.keys():
            self._records.pods.pop(group, None)
        for group, (write, error) in refused.items():
            self._record_pod(group, write.value, write.key, error)
        return not refused

    async def _patch_status(self, write: StatusPatch) -> None:
        resource, kind = _STATUS[write.kind]
        self._pending.send(write)
        with suppress(NotFound):  # the watch will say so
            made = await self._client.patch(resource, write.key, write.body, kind=kind, subresource="status")
            self._pending.accept(write, made.metadata.resource_version)
