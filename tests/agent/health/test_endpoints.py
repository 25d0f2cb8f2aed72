"""Which Services answer on this node: the answers of kube-proxy's health ports, and what silence means."""

import asyncio
from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from kavip.agent.health import endpoints, kubeproxy
from kavip.agent.health.endpoints import LocalEndpoints
from kavip.agent.health.kubeproxy import PATIENCE, PERIOD, RETRY, TIMEOUT
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.api.agentconfig import LocalTrack
from kavip.vrrp.tracking import local_track
from tests.support.streamserver import stream_server

WEB, API = local_track("shop/web"), local_track("shop/api")
NOON = 1000.0  # by the monotonic clock
FULL = 1_700_000_010.0  # a full half-minute by the wall clock
Port = partial(kubeproxy.HealthPort, wall=lambda: FULL)  # whenever a silence begins


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round of questions waits until every port has answered: a busy machine takes longer than 0.1 s."""
    monkeypatch.setattr(endpoints, "_ANSWERED", (0.01,) * 1000)
    monkeypatch.setattr(kubeproxy, "TIMEOUT", 60.0)


@dataclass(slots=True)
class Health:
    """A health port as kube-proxy serves it; with *status* 0 it reads requests and does not answer."""

    status: int = 200
    parts: float = 0.0  # seconds between head and body
    requests: int = 0
    connections: set[asyncio.StreamWriter] = field(default_factory=set)
    port: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        self.connections.add(writer)
        try:
            while (await reader.readuntil(b"\r\n\r\n")).startswith(b"GET /healthz HTTP/1.1\r\n"):
                self.requests += 1
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
        """Close all connections, as a server may do with idle ones."""
        for each in self.connections:
            each.close()
        self.connections.clear()


@asynccontextmanager
async def serving(health: Health, *, port: int = 0) -> AsyncIterator[Health]:
    """Serve *health* on a port of loopback."""
    async with stream_server(health.serve, port=port) as health.port:
        yield health


async def answered(port: kubeproxy.HealthPort, now: float = NOON, *, looks: int = 1000) -> bool | None:
    """Ask once and wait for the answer, or for silence; the result then."""
    port.send(now)
    for _ in range(looks):
        if port.receive(now):
            break
        await asyncio.sleep(0.01)
    return port.ready(now)


class RecordingTrackFiles(TrackFiles):
    """Track files that only record what is written."""

    def __init__(self) -> None:
        self.recorded: list[tuple[frozenset[str], frozenset[str]]] = []
        self.fails = 0

    async def update_endpoints(self, *, unready: frozenset[str], awaited: frozenset[str] = frozenset()) -> None:
        """Record it, or fail like a full disk."""
        if self.fails:
            self.fails -= 1
            raise OSError("full")
        self.recorded.append((unready, awaited))


@asynccontextmanager
async def following(tracks: RecordingTrackFiles, *wanted: LocalTrack) -> AsyncIterator[LocalEndpoints]:
    """The endpoints of node n1 for *wanted*."""
    made = LocalEndpoints("n1", tracks, hosts=("127.0.0.1",))
    made.configure(wanted)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(tracks: RecordingTrackFiles, unready: Set[str], awaited: Set[str] = frozenset()) -> None:
    """Wait until *tracks* was last set to these tracks."""
    async with asyncio.timeout(30):
        while tracks.recorded[-1:] != [(frozenset(unready), frozenset(awaited))]:
            await asyncio.sleep(0.01)


async def test_the_status_of_a_port_is_the_result() -> None:
    """200 means ready, 503 not ready, over one open connection; other statuses count as silence."""
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
        assert (health.requests, len(health.connections)) == (4, 2)
        port.close()


async def test_an_answer_may_come_in_parts() -> None:
    """The status comes with the head; the rest is no answer to the next request."""
    async with serving(Health(parts=0.02)) as health:
        port = Port(health.port, ("127.0.0.1",), now=NOON)
        for _ in range(3):
            assert await answered(port) is True
            await asyncio.sleep(0.1)
        assert (health.requests, len(health.connections)) == (3, 1)
        port.close()


async def test_after_a_closed_connection_the_request_is_repeated_at_once() -> None:
    """A server may close an idle connection; that is no result."""
    async with serving(Health()) as health:
        port = Port(health.port, ("127.0.0.1",), now=NOON)
        assert await answered(port) is True
        health.hang_up()
        await asyncio.sleep(0.05)
        assert await answered(port) is True
        assert await answered(port) is True
        assert health.requests >= 2
        port.close()


async def test_other_addresses_of_the_node_are_tried() -> None:
    """kube-proxy may listen on some addresses only (nodePortAddresses); the one that answers is kept."""
    async with serving(Health()) as health:
        port = Port(health.port, ("127.0.0.9", "::1", "127.0.0.1"), now=NOON)
        found = [await answered(port) for _ in range(4)]
        assert found == [None, None, True, True]
        port.close()


async def test_a_long_silence_means_not_ready() -> None:
    """The last answer counts until the next full half-minute after a silence of PATIENCE seconds."""
    async with serving(Health()) as health:
        port = Port(health.port, ("127.0.0.1",), now=NOON)
        assert await answered(port, NOON) is True
        health.status = 0
        assert await answered(port, NOON, looks=3) is True
        assert port.receive(NOON + TIMEOUT)
        end = NOON + TIMEOUT + PERIOD
        assert [port.ready(end - 0.1), port.ready(end)] == [True, False]
        health.status = 200
        assert await answered(port, end) is True
        port.close()


async def test_all_nodes_give_up_a_silent_port_at_one_moment() -> None:
    """Whenever each began to ask; until then nothing is known, and no VIP moves."""
    for began in (0.5, PERIOD - PATIENCE):
        port = kubeproxy.HealthPort(1, ("127.0.0.1",), now=NOON + began, wall=partial(float, FULL + began))
        assert await answered(port, NOON + PERIOD - 0.1) is None
        assert await answered(port, NOON + PERIOD) is False


@pytest.mark.parametrize("jump", [10 * PERIOD, -10 * PERIOD])
async def test_a_wall_clock_that_jumps_gives_nothing_up(jump: float) -> None:
    """The length of a silence is measured by the monotonic clock."""
    wall = FULL
    async with serving(Health()) as health:
        port = kubeproxy.HealthPort(health.port, ("127.0.0.1",), now=NOON, wall=lambda: wall)
        assert await answered(port) is True
        health.status = 0
        assert await answered(port, looks=3) is True
        assert port.receive(NOON + TIMEOUT)
        wall += jump
        end = NOON + TIMEOUT + PERIOD
        assert [port.ready(end - 0.1), port.ready(end)] == [True, False]
        port.close()


async def test_a_closed_port_is_polled_rarely() -> None:
    """A refused connection is tried again after RETRY seconds."""
    port = Port(1, ("127.0.0.1",), now=NOON)
    assert await answered(port) is None
    async with serving(Health()) as health:
        port._number = health.port
        assert await answered(port, NOON + RETRY / 2) is None
        assert await answered(port, NOON + RETRY) is True
        port.close()


@pytest.mark.usefixtures("patient")
async def test_only_changes_are_written() -> None:
    """Ports are polled; for Services without a port the list of nodes counts."""
    async with serving(Health()) as health:
        tracks, wanted = (
            RecordingTrackFiles(),
            (LocalTrack(track=API, nodes=("n2", "n3")), LocalTrack(track=WEB, port=health.port)),
        )
        async with following(tracks, *wanted) as found:
            await until(tracks, {API})
            requests = health.requests
            health.status = 503
            await until(tracks, {API, WEB})
            assert [*found.states] == [(API, False), (WEB, False)]
            found.configure((LocalTrack(track=API, nodes=("n1",)), wanted[1]))
            await until(tracks, {WEB})
            health.status = 200
            await until(tracks, set())
            assert health.requests > requests
            found.configure(())
            await until(tracks, set())
            assert found.states == ()
        assert len(tracks.recorded) == 4


async def test_a_silent_port_is_awaited() -> None:
    """Nothing is written about its Service, so that an earlier agent's result stays."""
    tracks = RecordingTrackFiles()
    async with serving(Health()) as health:
        free = health.port
    async with following(tracks, LocalTrack(track=WEB, port=free)):
        await until(tracks, set(), {WEB})


async def test_a_failed_write_is_repeated() -> None:
    """With the next step of the agent."""
    tracks = RecordingTrackFiles()
    tracks.fails = 2
    wanted = (LocalTrack(track=API, nodes=("n2",)),)
    async with following(tracks, *wanted) as found, asyncio.timeout(30):
        while not tracks.recorded:
            await asyncio.sleep(0.01)
            found.configure(wanted)
    assert tracks.recorded == [(frozenset({API}), frozenset())]


@pytest.mark.usefixtures("patient")
async def test_each_port_is_polled_once_before_keepalived_starts() -> None:
    """The init container waits for no silent port."""
    tracks = RecordingTrackFiles()
    async with serving(Health(status=503)) as health:
        locals_ = LocalEndpoints("n1", tracks, hosts=("127.0.0.1",))
        await locals_.run_once((LocalTrack(track=API, nodes=("n2",)), LocalTrack(track=WEB, port=health.port)))
    assert tracks.recorded == [(frozenset({API, WEB}), frozenset())]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("number", [-1, 65536, 10**30])
async def test_an_invalid_port_does_not_affect_others(tmp_path: Path, number: int) -> None:
    """The state of its Service is unknown, and the next port is polled."""
    async with serving(Health(status=503)) as health:
        tracks = TrackFiles(tmp_path / "track")
        found = LocalEndpoints("n1", tracks, hosts=("127.0.0.1",))
        await found.run_once((LocalTrack(track=API, port=number), LocalTrack(track=WEB, port=health.port)))
        assert found.states == ((API, None), (WEB, False))
