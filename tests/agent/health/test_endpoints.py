"""Which Services answer on this node: what kube-proxy's health ports say, and what silence means."""

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from kavip.agent.health import kubeproxy
from kavip.agent.health.endpoints import Locals
from kavip.agent.health.kubeproxy import PATIENCE, PERIOD, RETRY, TIMEOUT
from kavip.agent.keepalived.trackfiles import Tracks
from kavip.api.agent import LocalTrack
from kavip.vrrp.tracking import local_track

WEB, API = local_track("shop/web"), local_track("shop/api")
NOON = 1000.0  # by the monotonic clock
FULL = 1_700_000_010.0  # a full half-minute by the wall clock
Port = partial(kubeproxy.Port, wall=lambda: FULL)  # whenever a silence begins


@dataclass(slots=True)
class Health:
    """A health port as kube-proxy serves it; *status* 0: it takes the question and says nothing."""

    status: int = 200
    parts: float = 0.0  # seconds between head and body
    asked: int = 0
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client until it goes."""
        self.connections.add(writer)
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /healthz HTTP/1.1\r\n"):
                self.asked += 1
                if self.status:
                    body = b'{"localEndpoints": 1}'
                    head = f"HTTP/1.1 {self.status} Whatever\r\nContent-Length: {len(body)}\r\n\r\n"
                    writer.write(head.encode() if self.parts else head.encode() + body)
                    if self.parts:
                        await asyncio.sleep(self.parts)
                        writer.write(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    def hang_up(self) -> None:
        """Close what is open, as a server may do with idle connections."""
        for each in self.connections:
            each.close()
        self.connections.clear()


@asynccontextmanager
async def serving(health: Health, *, port: int = 0) -> AsyncIterator[Health]:
    """*health* on a port of loopback."""
    server = await asyncio.start_server(health.serve, "127.0.0.1", port)
    health.port = server.sockets[0].getsockname()[1]
    try:
        yield health
    finally:
        health.hang_up()
        server.close()


async def answered(port: kubeproxy.Port, now: float = NOON, *, looks: int = 1000) -> bool | None:
    """Ask once, and wait for the answer, or for silence; what is known then."""
    port.ask(now)
    for _ in range(looks):
        if port.hear(now):
            break
        await asyncio.sleep(0.01)
    return port.ready(now)


class Told(Tracks):
    """Track files that only remember what they are told."""

    def __init__(self) -> None:
        self.told: list[tuple[frozenset[str], frozenset[str]]] = []
        self.fails = 0

    async def tell_endpoints(self, *, unready: frozenset[str], awaited: frozenset[str] = frozenset()) -> None:
        """Remember it, unless the disk is full."""
        if self.fails:
            self.fails -= 1
            raise OSError("full")
        self.told.append((unready, awaited))


@asynccontextmanager
async def following(tracks: Told, *wanted: LocalTrack) -> AsyncIterator[Locals]:
    """An agent's part that follows *wanted* on node n1."""
    made = Locals("n1", tracks, hosts=("127.0.0.1",))
    made.want(wanted)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(tracks: Told, unready: Set[str], awaited: Set[str] = frozenset()) -> None:
    """Wait until keepalived was told this last."""
    async with asyncio.timeout(30):
        while tracks.told[-1:] != [(frozenset(unready), frozenset(awaited))]:
            await asyncio.sleep(0.01)


async def test_a_port_says_whether_there_is_a_ready_endpoint() -> None:
    """200 yes, 503 no, over one connection that stays open; anything else says nothing."""
    async with serving(Health()) as health:
        port = Port(health.port, ("127.0.0.1",), now=NOON)
        assert port.ready(NOON) is None
        assert await answered(port) is True
        health.status = 503
        assert await answered(port) is False
        health.status = 404
        assert await answered(port) is False
        health.status = 200
        assert await answered(port) is True
        assert (health.asked, len(health.connections)) == (4, 2)
        port.close()


async def test_an_answer_may_come_in_parts() -> None:
    """The status is known with the head; what comes later is no answer to the next question."""
    async with serving(Health(parts=0.02)) as health:
        port = Port(health.port, ("127.0.0.1",), now=NOON)
        for _ in range(3):
            assert await answered(port) is True
            await asyncio.sleep(0.1)
        assert (health.asked, len(health.connections)) == (3, 1)
        port.close()


async def test_a_server_that_hangs_up_is_asked_again_at_once() -> None:
    """Servers may close what is idle; that says nothing about endpoints."""
    async with serving(Health()) as health:
        port = Port(health.port, ("127.0.0.1",), now=NOON)
        assert await answered(port) is True
        health.hang_up()
        await asyncio.sleep(0.05)
        assert await answered(port) is True
        assert await answered(port) is True
        assert health.asked >= 2
        port.close()


async def test_other_addresses_of_the_node_are_tried() -> None:
    """kube-proxy may listen on some only (nodePortAddresses); the one that answers is kept."""
    async with serving(Health()) as health:
        port = Port(health.port, ("127.0.0.9", "::1", "127.0.0.1"), now=NOON)
        found = [await answered(port) for _ in range(4)]
        assert found == [None, None, True, True]
        port.close()


async def test_silence_is_no_answer_until_it_lasts() -> None:
    """What was said last counts until the full half-minute that comes after a while of silence; then: not ready."""
    async with serving(Health()) as health:
        port = Port(health.port, ("127.0.0.1",), now=NOON)
        assert await answered(port, NOON) is True
        health.status = 0
        assert await answered(port, NOON, looks=3) is True
        assert port.hear(NOON + TIMEOUT)
        end = NOON + TIMEOUT + PERIOD
        assert [port.ready(end - 0.1), port.ready(end)] == [True, False]
        health.status = 200
        assert await answered(port, end) is True
        port.close()


async def test_all_nodes_give_up_what_nobody_serves_at_one_moment() -> None:
    """However far apart they began to ask; until then nothing is known, and nobody's VIP moves."""
    for began in (0.5, PERIOD - PATIENCE):
        port = kubeproxy.Port(1, ("127.0.0.1",), now=NOON + began, wall=partial(float, FULL + began))
        assert await answered(port, NOON + PERIOD - 0.1) is None
        assert await answered(port, NOON + PERIOD) is False


@pytest.mark.parametrize("jump", [10 * PERIOD, -10 * PERIOD])
async def test_a_wall_clock_that_jumps_gives_nothing_up(jump: float) -> None:
    """How long a silence lasts is for the monotonic clock to say."""
    wall = FULL
    async with serving(Health()) as health:
        port = kubeproxy.Port(health.port, ("127.0.0.1",), now=NOON, wall=lambda: wall)
        assert await answered(port) is True
        health.status = 0
        assert await answered(port, looks=3) is True
        assert port.hear(NOON + TIMEOUT)
        wall += jump
        end = NOON + TIMEOUT + PERIOD
        assert [port.ready(end - 0.1), port.ready(end)] == [True, False]
        port.close()


async def test_what_nobody_serves_is_asked_rarely() -> None:
    """A refused connection is tried again after a while."""
    port = Port(1, ("127.0.0.1",), now=NOON)
    assert await answered(port) is None
    async with serving(Health()) as health:
        port._number = health.port
        assert await answered(port, NOON + RETRY / 2) is None
        assert await answered(port, NOON + RETRY) is True
        port.close()


async def test_keepalived_is_told_what_changes_and_nothing_else() -> None:
    """Ports are asked, nodes are compared; what is told again stays untold."""
    async with serving(Health()) as health:
        tracks, wanted = Told(), (LocalTrack(track=API, nodes=("n2", "n3")), LocalTrack(track=WEB, port=health.port))
        async with following(tracks, *wanted) as found:
            await until(tracks, {API})
            asked = health.asked
            health.status = 503
            await until(tracks, {API, WEB})
            assert [*found.seen] == [(API, False), (WEB, False)]
            found.want((LocalTrack(track=API, nodes=("n1",)), wanted[1]))
            await until(tracks, {WEB})
            health.status = 200
            await until(tracks, set())
            assert health.asked > asked
            found.want(())
            await until(tracks, set())
            assert found.seen == ()
        assert len(tracks.told) == 4


async def test_whom_nobody_serves_is_awaited() -> None:
    """Nothing is told of it, so that its file stays as an earlier agent left it."""
    tracks = Told()
    async with serving(Health()) as health:
        free = health.port
    async with following(tracks, LocalTrack(track=WEB, port=free)):
        await until(tracks, set(), {WEB})


async def test_what_cannot_be_written_is_told_again() -> None:
    """With the next look at the mount."""
    tracks = Told()
    tracks.fails = 2
    wanted = (LocalTrack(track=API, nodes=("n2",)),)
    async with following(tracks, *wanted) as found, asyncio.timeout(30):
        while not tracks.told:
            await asyncio.sleep(0.01)
            found.want(wanted)
    assert tracks.told == [(frozenset({API}), frozenset())]


async def test_keepalived_starts_with_what_can_be_known_at_once() -> None:
    """The init container asks once, and waits for nobody."""
    tracks = Told()
    async with serving(Health(status=503)) as health:
        locals_ = Locals("n1", tracks, hosts=("127.0.0.1",))
        await locals_.ask_once((LocalTrack(track=API, nodes=("n2",)), LocalTrack(track=WEB, port=health.port)))
    assert tracks.told == [(frozenset({API, WEB}), frozenset())]


@pytest.mark.parametrize("number", [-1, 65536, 10**30])
async def test_a_port_that_cannot_be_silences_no_other(tmp_path: Path, number: int) -> None:
    """Nothing is known of its Service, and the next one is asked all the same."""
    async with serving(Health(status=503)) as health:
        tracks = Tracks(tmp_path / "track")
        found = Locals("n1", tracks, hosts=("127.0.0.1",))
        await found.ask_once((LocalTrack(track=API, port=number), LocalTrack(track=WEB, port=health.port)))
        assert found.seen == ((API, None), (WEB, False))
