"""
The verbs of the Kubernetes API, typed by :class:`Resource`.

A call takes at most ten seconds, and fails with one of :mod:`kavip.errors`. The client never retries: only the caller
can determine whether its decision is still valid. Objects are named by key: ``ns/name``, or ``name`` for a
cluster-scoped kind. Request bodies are plain JSON values; results are Structs.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import Any, Final, Literal, Self

from kavip import names
from kavip.errors import BadInput, Gone
from kavip.kube import codec, resources
from kavip.kube.auth import Credentials
from kavip.kube.codec import Malformed, Page, WatchEvent
from kavip.kube.resources import Resource, T, split
from kavip.kube.transport import JSON, TIMEOUT, Guard, Observe, Transport

Body = Mapping[str, Any]
PatchKind = Literal["merge", "strategic", "json"]

_LIST_TIMEOUT: Final = 30.0  # per page: an API server that has just started first reads its storage
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
        """A client for *kubeconfig*; if that is empty, for the cluster that kubectl would use."""
        return cls(Transport(Credentials(kubeconfig), observe=observe))

    def guarded(self, guard: Guard) -> Self:
        """The same client whose writes call *guard* right before they are sent."""
        return type(self)(self._transport, guard=guard)

    async def __aenter__(self) -> Self:
        """Load the credentials and open the session."""
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._transport.__aexit__(kind, value, trace)

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._transport.server

    # --- reading --------------------------------------------------------------------------------------------------
    async def get(self, resource: Resource[T], key: str, *, timeout: float = TIMEOUT) -> T:
        """The object with *key*."""
        return _decoded(resource, await self._transport.send("GET", resource.object_path(key), timeout=timeout))

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        exactly: str = "",
        on_malformed: Callable[[Malformed], None] | None = None,
        receive: Callable[[Sequence[T], bool], Sequence[T]] | None = None,
    ) -> tuple[Sequence[T], str]:
        """
        All objects that match, and the resourceVersion to watch from.

        A malformed object is passed to *on_malformed*; without it the call raises :class:`BadInput`. *receive* is
        called with the objects of each page, and whether they are the first ones of an attempt. It may return equal
        objects that the caller already has, so that they are not in memory twice. If the token of a next page has
        expired, everything is listed again without pages. *exactly*: the objects as they were at this resourceVersion;
        raises :class:`Gone` if the API server does not have it any more.
        """
        path, query = resource.path(namespace), _selection(labels, fields)
        if exactly:
            query |= {"resourceVersion": exactly, "resourceVersionMatch": "Exact"}
        paged = {**query, "limit": str(resource.page_size)}
        try:
            return await self._all_pages(resource, path, paged, on_malformed, receive)
        except Gone:
            return await self._all_pages(resource, path, query, on_malformed, receive)

    async def _all_pages(
        self,
        resource: Resource[T],
        path: str,
        query: dict[str, str],
        on_malformed: Callable[[Malformed], None] | None,
        receive: Callable[[Sequence[T], bool], Sequence[T]] | None,
    ) -> tuple[Sequence[T], str]:
        items: list[T] = []
        malformed: list[Malformed] = []
        version = ""
        async with aclosing(self._pages(resource, path, query)) as pages:
            async for page in pages:
                found, unread = page.decode()
                items += receive(found, not version) if receive else found
                malformed += unread
                version = page.version
        for each in malformed:
            (on_malformed or _raise)(each)
        return items, version

    async def _pages(self, resource: Resource[T], path: str, query: dict[str, str]) -> AsyncGenerator[Page[T], None]:
        """The pages of a list. The API server already prepares the next one while the caller decodes one."""
        accept = _accepted(resource, "PartialObjectMetadataList")

        def request(query: dict[str, str]) -> asyncio.Task[bytes]:
            call = self._transport.send("GET", path, query=query, accept=accept, timeout=_LIST_TIMEOUT)
            return asyncio.create_task(call, name=f"kube:list {resource.plural}")

        first = {name: text for name, text in query.items() if not name.startswith("resourceVersion")}
        answer = request(query)
        try:
            while True:
                page = codec.open_page(resource, await answer)
                if not page.next_page:
                    yield page
                    return
                answer = request({**first, "continue": page.next_page})  # the token has the version
                await asyncio.sleep(0)  # the request leaves before the caller decodes
                yield page
        finally:
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)

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
    ) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
        """
        The events after *version*; an ERROR event is raised as its exception.

        The watch ends after *lifetime* seconds, or when the server has sent nothing for *silence* seconds.
        """
        query = {
            **_selection(labels, fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(max(1, round(lifetime))),
        }
        async with (
            self._transport.stream_lines(
                resource.path(namespace), query, accept=_accepted(resource, "PartialObjectMetadata"), silence=silence
            ) as lines,
            aclosing(_events(resource, lines)) as events,
        ):
            yield events

    async def version(self) -> str:
        """The version of the API server, such as ``v1.35.0``."""
        return codec.decode_version(await self._transport.send("GET", "/version"))

    async def read_from_pod(self, key: str, path: str, *, port: int, most: int, timeout: float = TIMEOUT) -> bytes:
        """What the pod *key* answers at *path*, through the API server; at most *most* bytes."""
        proxy = resources.PODS.object_path(f"{key}:{port}", f"proxy{path}")
        return await self._transport.read(proxy, most=most, timeout=timeout)

    async def read_log(self, key: str, query: Mapping[str, str], *, most: int, timeout: float = TIMEOUT) -> bytes:
        """The log of the pod *key*; *query* has the fields of PodLogOptions. At most *most* bytes."""
        return await self._transport.read(
            resources.PODS.object_path(key, "log"), query=query, most=most, timeout=timeout
        )

    async def create_dry_run(self, resource: Resource[T], key: str, body: Body) -> None:
        """Let the API server review the creation of an object, which it does not store."""
        namespace, _ = split(resource, key)
        typed = codec.encode(_named(resource, key, body))
        await self._transport.send("POST", resource.path(namespace), query={"dryRun": "All"}, body=typed)

    # --- writing --------------------------------------------------------------------------------------------------
    async def create(
        self, resource: Resource[T], key: str, body: Body, *, field_manager: str = names.FIELD_MANAGER
    ) -> T:
        """Create the object; raises :class:`AlreadyExists`."""
        namespace, _ = split(resource, key)
        answer = await self._transport.send(
            "POST",
            resource.path(namespace),
            query={"fieldManager": field_manager},
            body=codec.encode(_named(resource, key, body)),
            guard=self._guard,
        )
        return _decoded(resource, answer)

    async def create_review(self, resource: Resource[T], body: Body, *, timeout: float) -> T:
        """Create an object that the API server answers and does not store, such as a SubjectAccessReview."""
        typed = codec.encode({**body, "apiVersion": resource.api_version, "kind": resource.kind})
        return _decoded(resource, await self._transport.send("POST", resource.path(), body=typed, timeout=timeout))

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
        """Server-side apply; raises :class:`Conflict` if another manager owns a field, unless *force*."""
        answer = await self._transport.send(
            "PATCH",
            resource.object_path(key, subresource),
            query={"fieldManager": field_manager, "force": "true" if force else "false"},
            body=codec.encode(_named(resource, key, body)),
            content_type="application/apply-patch+yaml",  # JSON is YAML
            timeout=timeout,
            guard=self._guard,
        )
        return _decoded(resource, answer)

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
        """Patch the object; raises :class:`Conflict` if *body* has an old ``metadata.resourceVersion``."""
        answer = await self._transport.send(
            "PATCH",
            resource.object_path(key, subresource),
            query={"fieldManager": field_manager},
            body=codec.encode(body),
            content_type=_CONTENT_TYPES[kind],
            timeout=timeout,
            guard=self._guard,
        )
        return _decoded(resource, answer)

    async def delete(self, resource: Resource[T], key: str, *, uid: str = "") -> None:
        """Delete the object; with *uid* only that object: raises :class:`Conflict` for another one of the same name."""
        body = codec.encode({"preconditions": {"uid": uid}}) if uid else None
        await self._transport.send("DELETE", resource.object_path(key), body=body, guard=self._guard)


async def _events(resource: Resource[T], lines: AsyncIterator[bytes]) -> AsyncGenerator[WatchEvent[T], None]:
    async for line in lines:
        yield codec.decode_event(resource, line)


def _accepted(resource: Resource[T], partial: str) -> str:
    """The media types of an answer; *partial*: the kind without content."""
    return f"{JSON};as={partial};g=meta.k8s.io;v=v1,{JSON}" if resource.metadata_only else JSON


def _selection(labels: str, fields: str) -> dict[str, str]:
    return {name: text for name, text in (("labelSelector", labels), ("fieldSelector", fields)) if text}


def _named(resource: Resource[T], key: str, body: Body) -> dict[str, Any]:
    """*body* with type, name and namespace."""
    namespace, name = split(resource, key)
    identity = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata = {**body.get("metadata", {}), **identity}
    return {**body, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def _decoded(resource: Resource[T], raw: bytes) -> T:
    value = codec.decode(resource, raw)
    if isinstance(value, Malformed):
        raise _bad_input(value)
    return value


def _raise(malformed: Malformed) -> None:
    raise _bad_input(malformed)


def _bad_input(malformed: Malformed) -> BadInput:
    return BadInput("object", malformed.key, malformed.error)
