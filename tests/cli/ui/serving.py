"""A server of ``kavip ui`` with the example, and a client that sends any headers."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp

from kavip.cli.ui import files
from kavip.cli.ui.board import Board, Moment
from kavip.cli.ui.server import Source, UIServer
from kavip.cli.views.explain import explain_service
from kavip.cli.views.picture.picture import picture_of
from kavip.cli.views.picture.servicepage import service_page
from tests.support.pictureexample import agents, listing

NOW = datetime(2026, 5, 1, 4, tzinfo=UTC)
PAGE = files.load()


def moment(number: int, moved: str = "", *, error: str = "") -> Moment:
    """The example, with the VIP 192.0.2.130 on the node *moved*."""
    found = listing(moved)
    return Moment(number, NOW, picture_of(found, agents(moved), now=NOW), found, error)


def page_of(at: Moment, key: str) -> dict[str, Any]:
    """The page of the Service *key*."""
    return service_page(explain_service(at.listing, key, now=NOW), at.picture)


@dataclass
class Reader:
    """A client of the server on *port*; *links*: what the server announced. *base*: the origin that it uses."""

    port: int
    board: Board
    links: list[str]
    client: aiohttp.ClientSession
    cookie: str = ""
    key: str = ""
    base: str = field(init=False)

    def __post_init__(self) -> None:
        self.base = f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        """That of the last link."""
        return self.links[-1].partition("#")[2]

    async def log_in(self) -> None:
        """Exchange the token."""
        async with self.post_token(self.token) as answer:
            assert answer.status == 200, await answer.text()
            self.key = (await answer.json())["key"]
            self.cookie = answer.cookies[f"kavip-ui-{self.port}"].value

    def post_token(self, token: str, **headers: str) -> Any:
        """Send *token*."""
        return self.client.post(f"{self.base}/session", data=token.encode(), headers={"Origin": self.base, **headers})

    def get(self, path: str, *, headers: Mapping[str, str] | None = None, key: str | None = None) -> Any:
        """Get *path* with the secrets of the session, if there is one."""
        given = {"Cookie": f"kavip-ui-{self.port}={self.cookie}"} if self.cookie else {}
        found = self.key if key is None else key
        url = f"{self.base}{path}{'&' if '?' in path else '?'}key={found}" if found else f"{self.base}{path}"
        return self.client.get(url, headers={**given, **(headers or {})})


@asynccontextmanager
async def serving(board: Board | None = None) -> AsyncIterator[Reader]:
    """The server with the pictures of *board*, by default the example, and a client without a session."""
    board, links = board or Board(moment(1)), list[str]()
    source = Source("https://k8s.example.com:6443", is_live=True, service_page=page_of)
    server = UIServer(board, source, files=PAGE, announce=links.append)
    async with server.serving() as port, aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as client:
        yield Reader(port, board, links, client)


async def next_event(answer: aiohttp.ClientResponse, kind: str) -> dict[str, Any]:
    """The content of the next event of this *kind* in a stream."""
    event = ""
    async for raw in answer.content:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name == "event":
            event = value
        elif name == "data" and event == kind:
            found: dict[str, Any] = json.loads(value)
            return found
    raise AssertionError(f"the stream ends before an event {kind!r}")
