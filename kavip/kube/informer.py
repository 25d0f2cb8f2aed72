"""
A cache of one kind, kept current by list and watch.

It recovers from everything that an API server may do, without losing a change:

* a broken or half-open connection: the watch continues where it was;
* 410, as a status or as an ERROR event: a new list; subscribers get the difference, including deletions;
* 429, 5xx, no server: retried with back-off, not before ``Retry-After``; each change of state is logged once;
* a malformed object: logged once; its last valid version stays in the store;
* a kind that is not installed: retried. An *optional* kind counts as synced and empty meanwhile. So does a kind that
  kavip may not read, if it has *tolerate_forbidden*, or if its namespace does not exist.

Subscribers are called synchronously after the change of the store, so they see the state that the store has.

A watch lags behind by an unknown time. A caller that must see everything written so far can
:meth:`Informer.request_list`.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Generic, NoReturn

import structlog

from kavip.errors import ApiError, Forbidden, Gone, NotFound, Throttled, Unavailable
from kavip.kube.backoff import backoff
from kavip.kube.client import Client
from kavip.kube.codec import Bookmark, Changed, Deleted, Malformed, WatchEvent
from kavip.kube.resources import Resource, T

log = structlog.get_logger()

Subscriber = Callable[[T | None, T | None], None]
"""Called with (old, new): (None, new) for an added object, (old, None) for a deleted one."""

_TOO_LARGE_RESOURCE_VERSION: Final = 504
"""The status for a resourceVersion that the server has not seen yet, or never will: its storage was restored."""


@dataclass(frozen=True, slots=True)
class InformerTiming:
    """The times of an informer, in seconds."""

    lifetime: float = 300.0  # of one watch; then the server ends it
    silence: float = 60.0  # then the watch is opened again, which shows whether the server is alive
    settled: float = 5.0  # a watch that lasts so long works
    base: float = 0.5  # of the back-off
    cap: float = 15.0
    max_retry_after: float = 60.0  # a longer Retry-After is cut


class Informer(Generic[T]):
    """A cache of the objects of *resource* that the selectors match; :meth:`run` keeps it current."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        timing: InformerTiming | None = None,
        lacks_namespace: Callable[[], bool] = lambda: False,
        transform: Callable[[T], T] = lambda obj: obj,
    ) -> None:
        """
        Start empty and not synced.

        *transform* may return an object of the same version without what need not be kept, before it is stored.
        *lacks_namespace*: whether *namespace* does not exist. Then kavip may not read it: its Roles went with it.
        """
        self.resource, self.namespace = resource, namespace
        self.lacks_namespace, self._transform = lacks_namespace, transform
        self.synced = asyncio.Event()
        self.is_available = False
        """Whether the kind is installed and may be read."""
        self.current_error = ""
        """The type of the error that interrupts the watch; "" while it works."""
        self.error_count = 0
        """How many lists and watches have failed, except of an absent optional kind, and objects were malformed."""
        self._about = {"kind": resource.kind} | ({"namespace": namespace} if namespace else {})  # in log lines
        self._client, self._timing = client, timing or InformerTiming()
        self._selection = {"namespace": namespace, "labels": labels, "fields": fields}
        self._objects: dict[str, T] = {}
        self.store: Mapping[str, T] = MappingProxyType(self._objects)
        """The objects by key; a live view."""
        self._subscribers: list[Subscriber[T]] = []
        self._malformed: dict[str, str] = {}  # key -> the logged error
        self._version = ""  # the resourceVersion to watch from; "": list first
        self.seen_since = ""
        """
        The resourceVersion since which subscribers were notified of every change; "" before that.

        What came and went again between the last event of a watch and a requested list is not among the changes.
        """
        self._failures = 0
        self._list_wanted = asyncio.Event()
        # numbers of lists: the last that was started, the last that was stored, the last that was requested
        self._started = self._stored = self._requested = 0
        self._stores_pages = False
        self._list_stored = asyncio.Event()  # replaced after each list

    @property
    def description(self) -> str:
        """The kind, and the namespace if the cache is of one namespace."""
        return self.resource.kind + (f" in namespace {self.namespace}" if self.namespace else "")

    @property
    def version(self) -> str:
        """The resourceVersion up to which the store is current; "" while that is unknown."""
        return self._version

    def subscribe(self, callback: Subscriber[T]) -> None:
        """Call *callback* for every object in the store now, and for every change. It must not raise."""
        self._subscribers.append(callback)
        for obj in list(self._objects.values()):
            callback(None, obj)

    def select(self, labels: str) -> None:
        """Replace the label selector; the store follows after the next list."""
        if labels != self._selection["labels"]:
            self._selection["labels"] = labels
            self.request_list()

    @property
    def list_pending(self) -> bool:
        """Whether a requested list is not stored yet."""
        return self._stored < self._requested

    def request_list(self) -> int:
        """Request a list that starts after this call; return its number for :meth:`wait_listed`."""
        self._requested = self._started + 1
        self._list_wanted.set()
        return self._requested

    async def wait_current(self) -> None:
        """Return when no requested list is pending."""
        while self.list_pending:
            await self._list_stored.wait()

    async def wait_listed(self, number: int) -> None:
        """Return when the store has the content of the list *number* or of a later one."""
        while self._stored < number:
            await self._list_stored.wait()

    async def run(self) -> NoReturn:
        """Keep the store current until cancelled."""
        while True:
            try:
                if not self._version or self.list_pending:
                    await self._list()
                await self._watch_until_list_wanted()
            except ApiError as error:
                await self._recover(error)

    # --- list and watch -------------------------------------------------------------------------------------------
    async def _list(self) -> None:
        self._list_wanted.clear()
        self._started += 1
        malformed: list[Malformed] = []
        items, version = await self._client.list(
            self.resource, **self._selection, on_malformed=malformed.append, receive=self._receive
        )
        self._replace(items, malformed)
        self._version = version
        self.seen_since = self.seen_since or version
        self.is_available = True
        self._mark_listed()

    def _receive(self, page: Sequence[T], is_first: bool) -> Sequence[T]:
        """
        The objects of a page of a list; *is_first*: an attempt begins with it.

        The first list is stored page by page, while the API server prepares the next page. A later one, and one that
        begins again after a failure, is stored at once (:meth:`_replace`): what is gone frees its addresses first.
        """
        items = [self._reuse(each) for each in page]
        if is_first:
            self._stores_pages = not (self.synced.is_set() or self._objects)
        if self._stores_pages:
            self._notify(self._store(items))
        return items

    def _reuse(self, obj: T) -> T:
        """The stored object if it is the same version; otherwise a list would keep a second copy of every object."""
        old = self._objects.get(obj.metadata.key)
        return self._transform(obj) if old is None or _changes(old, obj) else old

    async def _watch_until_list_wanted(self) -> None:
        watching, wanted = asyncio.create_task(self._watch()), asyncio.create_task(self._list_wanted.wait())
        try:
            await asyncio.wait({watching, wanted}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (watching, wanted):
                each.cancel()
            await asyncio.gather(watching, wanted, return_exceptions=True)
        if not watching.cancelled():
            watching.result()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        lifetime = self._timing.lifetime * random.uniform(0.9, 1.1)  # noqa: S311 - so that not all watches end at once
        async with self._client.watch(
            self.resource, self._version, **self._selection, lifetime=lifetime, silence=self._timing.silence
        ) as events:
            opened = loop.time()
            settling = loop.call_later(self._timing.settled, self._mark_working)
            progress = False
            try:
                async for event in events:
                    self._handle(event)
                    self._mark_working()
                    progress = True
            finally:
                settling.cancel()
        if not progress and loop.time() - opened < min(self._timing.settled, lifetime / 2):
            raise Unavailable(0, "Closed", "the API server closes the watch as soon as it is open")

    def _handle(self, event: WatchEvent[T]) -> None:
        if self._is_old(event):
            return
        match event:
            case Changed(obj):
                self._version = obj.metadata.resource_version
                self._put(self._transform(obj))
            case Deleted(key, version):
                self._version = version or self._version
                self._delete(key)
            case Bookmark(version):
                self._version = version or self._version
            case Malformed(_, version, _):
                self._version = version or self._version
                self._log_malformed(event)

    def _is_old(self, event: WatchEvent[T]) -> bool:
        """Whether *event* is not newer than the store: an old version must not replace a newer one."""
        version = event.object.metadata.resource_version if isinstance(event, Changed) else event.version
        current = self._version
        return version.isdecimal() and current.isdecimal() and int(version) <= int(current)

    # --- the store ------------------------------------------------------------------------------------------------
    def _put(self, obj: T) -> None:
        key = obj.metadata.key
        self._malformed.pop(key, None)
        old = self._objects.get(key)
        self._objects[key] = obj
        self._notify(_changes(old, obj))

    def _delete(self, key: str) -> None:
        self._malformed.pop(key, None)
        if (old := self._objects.pop(key, None)) is not None:
            self._notify([(old, None)])

    def _replace(self, items: Iterable[T], malformed: Iterable[Malformed]) -> None:
        """Replace the store by a list. Deletions are notified first, because they free addresses."""
        items = list(items)
        unread = {each.key: each for each in malformed}
        gone = self._objects.keys() - {obj.metadata.key for obj in items} - unread.keys()
        deleted = [(self._objects.pop(key), None) for key in sorted(gone)]
        changes = self._store(items)
        self._malformed = {key: error for key, error in self._malformed.items() if key in unread}
        for each in unread.values():
            self._log_malformed(each)
        self._notify([*deleted, *changes])

    def _store(self, items: Iterable[T]) -> list[tuple[T | None, T | None]]:
        """Store *items*; returns the changes, sorted by key."""
        new = {obj.metadata.key: obj for obj in items}
        changes = [change for key in sorted(new) for change in _changes(self._objects.get(key), new[key])]
        self._objects.update(new)
        return changes

    def _notify(self, changes: Iterable[tuple[T | None, T | None]]) -> None:
        for old, new in changes:
            for callback in self._subscribers:
                callback(old, new)

    def _log_malformed(self, malformed: Malformed) -> None:
        """Log a malformed object once for each error."""
        self.error_count += 1
        if self._malformed.get(malformed.key) == malformed.error:
            return
        self._malformed[malformed.key] = malformed.error
        log.warning("object skipped", **self._about, object=malformed.key, error=malformed.error)

    # --- errors ---------------------------------------------------------------------------------------------------
    async def _recover(self, error: ApiError) -> None:
        """Decide where to continue, report the error, and back off."""
        if not isinstance(error, Unavailable | Throttled) or error.status == _TOO_LARGE_RESOURCE_VERSION:
            self._version = self.seen_since = ""
        is_absent = isinstance(error, NotFound) and self.resource.optional
        tolerates = self.resource.tolerate_forbidden or self.lacks_namespace()
        if is_absent or (isinstance(error, Forbidden) and tolerates):
            self.is_available = False
            self._replace([], [])
            self._mark_listed()
        elif isinstance(error, Gone) and not self._failures:  # normal after a long interruption
            log.info("watch expired; listing again", **self._about)
            self._failures = 1
            return
        else:
            self.error_count += 1
        self._report(error)
        delay = backoff(self._failures, base=self._timing.base, cap=self._timing.cap)
        self._failures += 1
        with suppress(TimeoutError):  # a requested list ends the wait
            async with asyncio.timeout(max(delay, min(error.retry_after or 0.0, self._timing.max_retry_after))):
                await self._list_wanted.wait()

    def _report(self, error: ApiError) -> None:
        name = type(error).__name__
        if name == self.current_error:
            return
        self.current_error = name
        if isinstance(error, NotFound):
            log.info("kind not installed", **self._about, optional=self.resource.optional)
        else:
            log.warning("watch interrupted; retrying", **self._about, error=str(error))

    def _mark_working(self) -> None:
        """Reset the back-off and the error."""
        self._failures = 0
        if self.current_error:
            log.info("watch works again", **self._about, after=self.current_error)
            self.current_error = ""

    def _mark_listed(self) -> None:
        self._stored = self._started
        self._list_stored.set()
        self._list_stored = asyncio.Event()
        if not self.synced.is_set():
            log.info("cache synced", **self._about, objects=len(self._objects))
            self.synced.set()


def _changes(old: T | None, new: T) -> list[tuple[T | None, T | None]]:
    """The notifications: none for the same version; a deletion too if *new* is another object with the same key."""
    if old is None:
        return [(None, new)]
    if old.metadata.uid != new.metadata.uid:
        return [(old, None), (None, new)]
    return [] if old.metadata.resource_version == new.metadata.resource_version else [(old, new)]
