"""
A cache of one kind that stays true through everything an API server may do.

A list fills the store, a watch keeps it current. What breaks is mended without losing anything:

* a connection that breaks or falls silent, half-open ones included: the watch goes on where it stood;
* 410, as a status or as an ERROR event: listed again; the difference is told, deletions included;
* 429, 5xx, no server at all: retried with back-off, not before ``Retry-After``, logged once per change of state;
* a malformed object: logged once, its last good version stays in the store;
* a kind that is not installed: waited for. An *optional* one counts as synced and empty meanwhile, and so does a
  *dispensable* one that we may not read.

Subscribers are called synchronously, after the store has changed: what they see is what the store holds.

A watch lags behind, by nobody knows how much. Who must not miss what was written until now may :meth:`Informer.ask` for
a list.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, NoReturn

import structlog

from kavip.errors import ApiError, Forbidden, Gone, NotFound, Throttled, Unavailable
from kavip.kube.backoff import backoff
from kavip.kube.client import Client
from kavip.kube.codec import Bookmark, Deleted, Event, Malformed, Seen
from kavip.kube.resources import Resource, T

log = structlog.get_logger()

Subscriber = Callable[[T | None, T | None], None]
"""Told of (old, new): None, new: it has come; old, None: it is gone."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The seconds of an informer."""

    lifetime: float = 300.0  # of one watch; the server ends it
    silence: float = 60.0  # then the watch is opened again, which shows whether the server is there
    settled: float = 5.0  # a watch that has lasted so long works
    base: float = 0.5  # of the back-off
    cap: float = 15.0
    patience: float = 60.0  # the longest Retry-After that is obeyed


class Informer(Generic[T]):
    """A cache of those objects of *resource* that the selectors pick; :meth:`run` keeps it."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        timing: Timing | None = None,
    ) -> None:
        """Start empty and not synced."""
        self.resource = resource
        self.synced = asyncio.Event()
        self.is_there = False
        """Whether the kind is installed and may be read, as far as we know."""
        self.trouble = ""
        """What is wrong now, by the name of its error; "" while the watch works."""
        self.setbacks = 0
        """How often a list or watch has failed, and how many objects could not be read."""
        self._client, self._timing = client, timing or Timing()
        self._selection = {"namespace": namespace, "labels": labels, "fields": fields}
        self._objects: dict[str, T] = {}
        self.store: Mapping[str, T] = MappingProxyType(self._objects)
        """The objects by key; a view that follows."""
        self._subscribers: list[Subscriber[T]] = []
        self._malformed: dict[str, str] = {}  # key -> what was logged about it
        self._version = ""  # where to watch from; "": list first
        self._failures = 0
        self._asked = asyncio.Event()  # for a list, though the watch works
        self._begun = self._filled = self._wanted = (
            0  # numbers of lists: of the last that was begun, the last that came
        )
        self._news = asyncio.Event()  # that a list has come; another one then

    def subscribe(self, callback: Subscriber[T]) -> None:
        """Call *callback* for every change, beginning with what the store holds now. It must not raise."""
        self._subscribers.append(callback)
        for obj in list(self._objects.values()):
            callback(None, obj)

    def select(self, labels: str) -> None:
        """Keep those objects that *labels* pick, as soon as a list has come."""
        if labels != self._selection["labels"]:
            self._selection["labels"] = labels
            self.ask()

    @property
    def is_behind(self) -> bool:
        """Whether a list is wanted that has not come."""
        return self._filled < self._wanted

    def ask(self) -> int:
        """Ask for a list that has not begun yet; its number, for :meth:`came`."""
        self._wanted = self._begun + 1
        self._asked.set()
        return self._wanted

    async def caught_up(self) -> None:
        """Return as soon as no list is wanted."""
        while self.is_behind:
            await self._news.wait()

    async def came(self, number: int) -> None:
        """Return as soon as the store holds what the list with *number* says, or a later one."""
        while self._filled < number:
            await self._news.wait()

    async def run(self) -> NoReturn:
        """Keep the store until cancelled."""
        while True:
            try:
                if not self._version or self.is_behind:
                    await self._list()
                await self._watch_until_asked()
            except ApiError as error:
                await self._recover(error)

    # --- list and watch -------------------------------------------------------------------------------------------
    async def _list(self) -> None:
        self._asked.clear()
        self._begun += 1
        malformed: list[Malformed] = []
        items, version = await self._client.list(
            self.resource, **self._selection, undecodable=malformed.append, known=self._known
        )
        self._replace(items, malformed)
        self._version = version
        self.is_there = True
        self._mark_filled()

    def _known(self, obj: T) -> T:
        """The object of the store, where it is the same: a second copy of everything would stay in memory for good."""
        old = self._objects.get(obj.metadata.key)
        return obj if old is None or _steps(old, obj) else old

    async def _watch_until_asked(self) -> None:
        """Watch; leave off as soon as a list is wanted."""
        watching, asked = asyncio.create_task(self._watch()), asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({watching, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (watching, asked):
                each.cancel()
            await asyncio.gather(watching, asked, return_exceptions=True)
        if not watching.cancelled():
            watching.result()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        lifetime = self._timing.lifetime * random.uniform(0.9, 1.1)  # noqa: S311 - so that not all watches end at once
        async with self._client.watch(
            self.resource, self._version, **self._selection, lifetime=lifetime, silence=self._timing.silence
        ) as events:
            opened = loop.time()
            settling = loop.call_later(self._timing.settled, self._settle)
            progress = False
            try:
                async for event in events:
                    self._take(event)
                    self._settle()
                    progress = True
            finally:
                settling.cancel()
        if not progress and loop.time() - opened < min(self._timing.settled, lifetime / 2):
            raise Unavailable(0, "Closed", "the API server ends the watch as soon as it is open")

    def _take(self, event: Event[T]) -> None:
        if self._is_old(event):
            return
        match event:
            case Seen(obj):
                self._version = obj.metadata.resource_version
                self._put(obj)
            case Deleted(key, version):
                self._version = version or self._version
                self._drop(key)
            case Bookmark(version):
                self._version = version or self._version
            case Malformed(_, version, _):
                self._version = version or self._version
                self._note(event)

    def _is_old(self, event: Event[T]) -> bool:
        """Whether *event* tells again what we know already: an old copy must not take back what came after it."""
        version = event.object.metadata.resource_version if isinstance(event, Seen) else event.version
        known = self._version
        return version.isdecimal() and known.isdecimal() and int(version) <= int(known)

    # --- the store ------------------------------------------------------------------------------------------------
    def _put(self, obj: T) -> None:
        key = obj.metadata.key
        self._malformed.pop(key, None)
        old = self._objects.get(key)
        self._objects[key] = obj
        self._tell(_steps(old, obj))

    def _drop(self, key: str) -> None:
        self._malformed.pop(key, None)
        if (old := self._objects.pop(key, None)) is not None:
            self._tell([(old, None)])

    def _replace(self, items: Iterable[T], malformed: Iterable[Malformed]) -> None:
        """Make the store what a list says; those who went are told first, for what they held is free now."""
        new = {obj.metadata.key: obj for obj in items}
        unread = {each.key: each for each in malformed}
        gone = [(self._objects.pop(key), None) for key in sorted(self._objects.keys() - new.keys() - unread.keys())]
        steps = [step for key in sorted(new) for step in _steps(self._objects.get(key), new[key])]
        self._objects.update(new)
        self._malformed = {key: why for key, why in self._malformed.items() if key in unread}
        for each in unread.values():
            self._note(each)
        self._tell([*gone, *steps])

    def _tell(self, steps: Iterable[tuple[T | None, T | None]]) -> None:
        for old, new in steps:
            for callback in self._subscribers:
                callback(old, new)

    def _note(self, malformed: Malformed) -> None:
        """Log a malformed object, once for each thing that is wrong with it."""
        self.setbacks += 1
        if self._malformed.get(malformed.key) == malformed.why:
            return
        self._malformed[malformed.key] = malformed.why
        log.warning("object skipped", kind=self.resource.kind, object=malformed.key, why=malformed.why)

    # --- trouble --------------------------------------------------------------------------------------------------
    async def _recover(self, error: ApiError) -> None:
        """Decide where to go on, say so if that is news, and wait."""
        if not isinstance(error, Unavailable | Throttled) or error.status == _TOO_LARGE:
            self._version = ""
        is_absent = isinstance(error, NotFound) and self.resource.optional
        if is_absent or (isinstance(error, Forbidden) and self.resource.dispensable):
            self.is_there = False
            self._replace([], [])
            self._mark_filled()
        if isinstance(error, Gone) and not self._failures:  # nothing is wrong: we were away for too long
            log.info("watch expired; listing again", kind=self.resource.kind)
            self._failures = 1
            return
        self._complain(error)
        delay = backoff(self._failures, base=self._timing.base, cap=self._timing.cap)
        self._failures += 1
        with suppress(TimeoutError):  # whoever asks for a list now does not wait out what was nobody's hurry
            async with asyncio.timeout(max(delay, min(error.retry_after or 0.0, self._timing.patience))):
                await self._asked.wait()

    def _complain(self, error: ApiError) -> None:
        self.setbacks += 1
        trouble = type(error).__name__
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if isinstance(error, NotFound):
            log.info("kind not installed", kind=self.resource.kind, optional=self.resource.optional)
        else:
            log.warning("watch interrupted; retrying", kind=self.resource.kind, error=str(error))

    def _settle(self) -> None:
        """The watch works: what was wrong is over."""
        self._failures = 0
        if self.trouble:
            log.info("watch works again", kind=self.resource.kind, after=self.trouble)
            self.trouble = ""

    def _mark_filled(self) -> None:
        self._filled = self._begun
        self._news.set()
        self._news = asyncio.Event()
        if not self.synced.is_set():
            log.info("cache filled", kind=self.resource.kind, objects=len(self._objects))
            self.synced.set()


_TOO_LARGE = 504
"""What a server answers that has not seen our resourceVersion yet, or never will: its storage was set back."""


def _steps(old: T | None, new: T) -> list[tuple[T | None, T | None]]:
    """What to tell: nothing for the same version; of another object with the same key, that the old one is gone."""
    if old is None:
        return [(None, new)]
    if old.metadata.uid != new.metadata.uid:
        return [(old, None), (None, new)]
    return [] if old.metadata.resource_version == new.metadata.resource_version else [(old, new)]
