"""
Applies the pools and groups of the chart's values (:mod:`kavip.reconcile.chartvalues`), on the leader.

What is not applied is tried again with back-off: after an installation the webhooks are not ready at once. The
conditions are in an annotation of the ConfigMap, and each change of a reason is an Event about it.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, Literal, NoReturn

import msgspec
import structlog

from kavip import names
from kavip.api.chartvalues import AppliedObject, EntryCondition
from kavip.api.event import Note, ObjectReference
from kavip.api.workload import ConfigMap
from kavip.errors import ApiError, BadInput, Forbidden, LeaseLost, Rejected
from kavip.kube.backoff import backoff
from kavip.kube.client import Client
from kavip.kube.events import Events
from kavip.kube.informer import Informer
from kavip.kube.resources import GROUPS, POOLS, VALUES_CONFIGMAPS, Resource
from kavip.names import Reason
from kavip.reconcile import chartvalues
from kavip.reconcile.chartvalues import EntryName, Wanted
from kavip.reconcile.observed.operator import WritesBlocked
from kavip.reconcile.plan import ConditionState, timestamp

log: Final = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 1.0
"""Between two looks for a namespace, or for the end of keepalived-operator: neither costs a request."""
_UPGRADE_SECONDS: Final = 2.0
"""Before new values are applied: helm updates the ConfigMap before the rights and policies that go with it."""
_BACKOFF_CAP: Final = 30.0
_RESOURCES: Final[tuple[Resource[Any], ...]] = (POOLS, GROUPS)
_KINDS: Final = {each.kind: replace(each, type=AppliedObject) for each in _RESOURCES}
_QUIET: Final = frozenset({Reason.PENDING})  # a new installation is not ready at first: no Event


class ChartValues:
    """
    The pools and groups in the ConfigMap of *namespace*.

    *namespaces*: the names of the cluster's, a live view. *blocked*: why the controller must not write.
    """

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        events: Events,
        namespaces: Collection[str],
        blocked: Callable[[], WritesBlocked | None],
        now: Callable[[], datetime],
    ) -> None:
        """:meth:`run` starts the watch."""
        self._client, self._events = client, events
        self._key = f"{namespace}/{names.VALUES_CONFIGMAP_NAME}"
        self._namespaces, self._blocked, self._now = namespaces, blocked, now
        fields = f"metadata.name={names.VALUES_CONFIGMAP_NAME}"
        self._informer: Informer[ConfigMap] = Informer(client, VALUES_CONFIGMAPS, namespace=namespace, fields=fields)
        self._changed = asyncio.Event()
        self._informer.subscribe(lambda _old, _new: self._changed.set())
        self._conditions: dict[EntryName, EntryCondition] = {}  # of this term
        self._values = ""  # the hash of the values that were seen last
        self._unwritable = ""  # conditions that the API server refused
        self._failures = 0
        self._due_at = 0.0  # by the loop's clock: no further attempt before that

    async def run(self) -> None:
        """Apply until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._informer.run(), name="chart values watch")
            tasks.create_task(self._apply_forever(), name="chart values")

    async def _apply_forever(self) -> NoReturn:
        while True:
            try:
                is_done = await self.reconcile()
            except LeaseLost:
                is_done = True  # the term ends
            with suppress(TimeoutError):
                async with asyncio.timeout(None if is_done else _LOOK_SECONDS):
                    await self._changed.wait()
            self._changed.clear()

    async def reconcile(self) -> bool:
        """Apply what is due, and write the conditions; return whether nothing is left to do."""
        if (found := self._informer.store.get(self._key)) is None:
            return True
        text = (found.data or {}).get(names.VALUES_KEY, "")
        values = chartvalues.observed(text)
        if values != self._values:
            is_upgrade = bool(self._values)
            self._due_at = asyncio.get_running_loop().time() + _UPGRADE_SECONDS if is_upgrade else 0.0
            self._values, self._failures = values, 0
        before = chartvalues.stored(found.metadata.annotation(names.VALUES_CONDITIONS_ANNOTATION)) | self._conditions
        try:
            wanted = chartvalues.read(text)
        except BadInput as error:
            states = chartvalues.unreadable(error)
        else:
            states = await self._apply(wanted, before)
        self._conditions = chartvalues.conditions(states, before, values=values, now=timestamp(self._now()))
        self._report(before, found)
        is_written = await self._write(found)
        return is_written and chartvalues.are_settled(self._conditions.values())

    async def _apply(
        self, wanted: Sequence[Wanted], before: Mapping[EntryName, EntryCondition]
    ) -> dict[EntryName, ConditionState]:
        """
        Apply each object that is not applied yet and has no obstacle, if another attempt is due.

        They are applied in their order. While the API server cannot apply one, those after it wait.
        """
        is_due = asyncio.get_running_loop().time() >= self._due_at
        blocked = self._blocked()
        states, sent = {}, []
        for each in wanted:
            old = before.get(each.entry)
            state = chartvalues.state(each, old, values=self._values, namespaces=self._namespaces, blocked=blocked)
            if state is None and is_due:
                state = await self._send(each)
                sent.append(state.status)
                is_due = state.reason is not Reason.PENDING  # else a later one could take the addresses of this one
            states[each.entry] = state or chartvalues.unsent(each, old)
        if sent:
            self._failures = self._failures + 1 if "False" in sent else 0
            pause = backoff(self._failures, base=_LOOK_SECONDS, cap=_BACKOFF_CAP)
            self._due_at = asyncio.get_running_loop().time() + pause
        return states

    async def _send(self, wanted: Wanted) -> ConditionState:
        resource, manager = _KINDS[wanted.kind], names.VALUES_FIELD_MANAGER
        try:
            found = await self._client.apply(resource, wanted.key, wanted.body, field_manager=manager, force=True)
            if patch := chartvalues.surplus(wanted.body["spec"], found.spec):
                body = {"metadata": {"resourceVersion": found.metadata.resource_version}, "spec": patch}
                await self._client.patch(resource, wanted.key, body, field_manager=manager)
        except (ApiError, BadInput) as error:
            return chartvalues.failure(wanted, error)
        return chartvalues.APPLIED

    def _report(self, before: Mapping[EntryName, EntryCondition], about: ConfigMap) -> None:
        """Log each change of a reason, and emit an Event for it."""
        for entry, each in self._conditions.items():
            old = before.get(entry)
            if old is not None and (old.reason, old.observed) == (each.reason, each.observed):
                continue
            kind, key = each.kind, "/".join(filter(None, (each.namespace, each.name)))
            if each.status == "True":
                log.info("chart value applied", kind=kind, key=key)
            else:
                log.warning("chart value not applied", kind=kind, key=key, reason=each.reason, message=each.message)
            if each.reason not in _QUIET:
                self._emit(each, f"{kind} {key}: {each.message}", about)

    def _emit(self, condition: EntryCondition, text: str, about: ConfigMap) -> None:
        reference = ObjectReference(
            api_version="v1",
            kind=names.CONFIG_MAP,
            namespace=about.metadata.namespace,
            name=about.metadata.name,
            uid=about.metadata.uid,
        )
        severity: Literal["Normal", "Warning"] = "Normal" if condition.status == "True" else "Warning"
        self._events.emit(Note(reference, condition.reason, text, action="Apply", severity=severity))

    async def _write(self, found: ConfigMap) -> bool:
        """Write the conditions if they differ; False: they shall be written soon."""
        annotation = msgspec.json.encode(list(self._conditions.values())).decode()
        if annotation in (found.metadata.annotation(names.VALUES_CONDITIONS_ANNOTATION), self._unwritable):
            return True
        annotations = {names.VALUES_CONDITIONS_ANNOTATION: annotation}
        body = {"metadata": {"resourceVersion": found.metadata.resource_version, "annotations": annotations}}
        try:
            await self._client.patch(VALUES_CONFIGMAPS, self._key, body)
        except (Forbidden, Rejected) as error:
            self._unwritable = annotation
            log.warning("conditions of chart values not written", error=str(error))
        except ApiError:
            return False
        return True
