"""
The verbs of the Kubernetes API, typed by :class:`Resource`.

Each call takes ten seconds at most and fails as one of :mod:`kavip.errors`; none is repeated here, because only the
caller knows whether its decision still stands. Objects are named by key: ``ns/name``, or ``name`` where the kind is
cluster-scoped. Bodies to send are plain JSON values; what comes back is a Struct.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Literal, Self

from kavip import names
from kavip.errors import BadInput, Gone
from kavip.kube import codec
from kavip.kube.auth import Credentials
from kavip.kube.codec import Event, Malformed
from kavip.kube.resources import Resource, T, split
from kavip.kube.transport import TIMEOUT, Guard, Observe, Transport

Body = Mapping[str, Any]
PatchKind = Literal["merge", "strategic", "json"]

PAGE: Final = 500
_LIST_TIMEOUT: Final = 30.0  # per page: an API server that has just started reads its storage first
_CONTENT_TYPES: Final[dict[PatchKind, str]] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
}


class Client:
    """A client of one API server; use it as an async context manager."""

    def __init__(self, transport: Transport, *, guard: Guard | None = None) -> None:
        """See :meth:`from_settings` and :meth:`guarded`."""
        self._transport, self._guard = transport, guard

    @classmethod
    def from_settings(cls, kubeconfig: str | None, *, observe: Observe | None = None) -> Self:
        """A client for *kubeconfig*, or for the pod's service account where that is empty."""
        return cls(Transport(Credentials(kubeconfig), observe=observe))

    def guarded(self, guard: Guard) -> Self:
        """The same client; each of its writes asks *guard* right before its bytes leave."""
        return type(self)(self._transport, guard=guard)

    async def __aenter__(self) -> Self:
        """Read the credentials and open the session."""
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._transport.__aexit__(kind, value, trace)

    # --- reading --------------------------------------------------------------------------------------------------
    async def get(self, resource: Resource[T], key: str, *, timeout: float = TIMEOUT) -> T:
        """The object with *key*."""
        return _whole(resource, await self._transport.send("GET", resource.object_path(key), timeout=timeout))

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        undecodable: Callable[[Malformed], None] | None = None,
        known: Callable[[T], T] | None = None,
    ) -> tuple[Sequence[T], str]:
        """
        All objects that match, and the resourceVersion to watch from.

        What cannot be read goes to *undecodable*; without one it is :class:`BadInput`. *known* may put an equal object
        in place of each: a caller that has them all already need not have them twice. A list that takes so long that
        the server has forgotten where it stood is asked for once more, in one piece.
        """
        path, query = resource.path(namespace), _selection(labels, fields)
        try:
            return await self._pages(resource, path, {**query, "limit": str(PAGE)}, undecodable, known)
        except Gone:
            return await self._pages(resource, path, query, undecodable, known)

    async def _pages(
        self,
        resource: Resource[T],
        path: str,
        query: dict[str, str],
        undecodable: Callable[[Malformed], None] | None,
        known: Callable[[T], T] | None,
    ) -> tuple[Sequence[T], str]:
        items: list[T] = []
        malformed: list[Malformed] = []
        while True:
            page = codec.read_page(
                resource, await self._transport.send("GET", path, query=query, timeout=_LIST_TIMEOUT)
            )
            items += map(known, page.items) if known else page.items
            malformed += page.malformed
            if not page.rest:
                break
            query = {**query, "continue": page.rest}
        for each in malformed:
            (undecodable or _refuse)(each)
        return items, page.version

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource[T],
        version: str,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        lifetime: float = 300.0,
        silence: float = 60.0,
    ) -> AsyncIterator[AsyncIterator[Event[T]]]:
        """
        What happens after *version*, until the server ends the watch after *lifetime* seconds, or is silent for long.

        An ERROR event is raised as what it means.
        """
        query = {
            **_selection(labels, fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(lifetime))),
        }
        async with (
            self._transport.lines(resource.path(namespace), query, silence=silence) as lines,
            aclosing(_events(resource, lines)) as events,
        ):
            yield events

    # --- writing --------------------------------------------------------------------------------------------------
    async def create(
        self, resource: Resource[T], key: str, body: Body, *, field_manager: str = names.FIELD_MANAGER
    ) -> T:
        """Create the object; :class:`AlreadyExists` where there is one."""
        namespace, _ = split(resource, key)
        answer = await self._transport.send(
            "POST",
            resource.path(namespace),
            query={"fieldManager": field_manager},
            body=codec.encode(_named(resource, key, body)),
            guard=self._guard,
        )
        return _whole(resource, answer)

    async def create_review(self, resource: Resource[T], body: Body, *, timeout: float) -> T:
        """Create what is answered at once and stored nowhere, a SubjectAccessReview for example."""
        typed = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
        sent = codec.encode(typed)
        return _whole(resource, await self._transport.send("POST", resource.path(), body=sent, timeout=timeout))

    async def apply(
        self,
        resource: Resource[T],
        key: str,
        body: Body,
        *,
        field_manager: str = names.FIELD_MANAGER,
        force: bool = False,
        subresource: str = "",
        timeout: float = TIMEOUT,
    ) -> T:
        """Server-side apply; :class:`Conflict` where another manager owns a field and not *force*."""
        answer = await self._transport.send(
            "PATCH",
            resource.object_path(key, subresource),
            query={"fieldManager": field_manager, "force": "true" if force else "false"},
            body=codec.encode(_named(resource, key, body)),
            content_type="application/apply-patch+yaml",  # JSON is YAML
            timeout=timeout,
            guard=self._guard,
        )
        return _whole(resource, answer)

    async def patch(
        self,
        resource: Resource[T],
        key: str,
        body: Body | Sequence[Body],
        *,
        kind: PatchKind = "merge",
        field_manager: str = names.FIELD_MANAGER,
        subresource: str = "",
        timeout: float = TIMEOUT,
    ) -> T:
        """Patch the object; with ``metadata.resourceVersion`` in *body* a stale one is :class:`Conflict`."""
        answer = await self._transport.send(
            "PATCH",
            resource.object_path(key, subresource),
            query={"fieldManager": field_manager},
            body=codec.encode(body),
            content_type=_CONTENT_TYPES[kind],
            timeout=timeout,
            guard=self._guard,
        )
        return _whole(resource, answer)

    async def delete(self, resource: Resource[T], key: str, *, uid: str = "") -> None:
        """Delete the object; with *uid* only that one, :class:`Conflict` where another has taken its name."""
        body = codec.encode({"preconditions": {"uid": uid}}) if uid else None
        await self._transport.send("DELETE", resource.object_path(key), body=body, guard=self._guard)


async def _events(resource: Resource[T], lines: AsyncIterator[bytes]) -> AsyncGenerator[Event[T], None]:
    async for line in lines:
        yield codec.read_event(resource, line)


def _selection(labels: str, fields: str) -> dict[str, str]:
    return {name: text for name, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}


def _named(resource: Resource[T], key: str, body: Body) -> dict[str, Any]:
    """*body* with the type and name that *resource* and *key* say."""
    namespace, name = split(resource, key)
    identity = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata = {**body.get("metadata", {}), **identity}
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _whole(resource: Resource[T], raw: bytes) -> T:
    value = codec.read(resource, raw)
    if isinstance(value, Malformed):
        raise _bad(value)
    return value


def _refuse(malformed: Malformed) -> None:
    raise _bad(malformed)


def _bad(malformed: Malformed) -> BadInput:
    return BadInput("object", malformed.key, malformed.why)
