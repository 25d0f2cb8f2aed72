"""Which connection keeps its slot on the agent's port, and which one is evicted."""

import asyncio
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest

from kavip.agent.http.connections import AgentConnection, ConnectionSlots, Stage
from kavip.http.shares import network_of

CROWD, CLIENT = "192.0.2.1", "198.51.100.7"


class Room:
    """Two slots, and connections that last until they are evicted."""

    def __init__(self) -> None:
        self.places = ConnectionSlots(2, at_once=2)
        self.peers: list[socket.socket] = []

    def come(self, stage: Stage = Stage.READING, source: str = CROWD) -> AgentConnection:
        """Add a connection."""
        ours, peer = socket.socketpair()
        self.peers.append(peer)
        connection = AgentConnection(ours, network_of(ip_address(source)), stage)

        async def stay() -> None:
            await asyncio.Event().wait()

        self.places.add(connection, stay)
        return connection

    async def standing(self, *connections: AgentConnection) -> list[bool]:
        """Which of *connections* still have their slots."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [each.socket.fileno() >= 0 for each in connections]


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    """Slots that are closed after the test."""
    made = Room()
    yield made
    await made.places.close()
    for peer in made.peers:
        peer.close()


@pytest.mark.parametrize(
    ("stages", "left"),
    [
        ((Stage.READING, Stage.READING), [False, True, True]),
        ((Stage.READING, Stage.SENT), [True, False, True]),
        ((Stage.SENDING, Stage.READING), [True, False, True]),
        ((Stage.ANSWERING, Stage.SENDING), [True, False, True]),
        ((Stage.ANSWERING, Stage.ANSWERING), [True, True, False]),
    ],
)
async def test_the_connection_that_has_progressed_least_is_evicted(
    room: Room, stages: tuple[Stage, ...], left: list[bool]
) -> None:
    """The oldest of several. A connection whose answer is being made is never evicted; then the new one is closed."""
    assert await room.standing(*(room.come(stage) for stage in (*stages, Stage.READING))) == left


async def test_the_client_with_the_most_connections_is_evicted(room: Room) -> None:
    """A client's only connection stays, and can evict a connection of a client with several."""
    client, one = room.come(source=CLIENT), room.come(Stage.SENDING)
    assert await room.standing(client, one, room.come()) == [True, False, True]
    busy = room.come(Stage.ANSWERING)
    assert await room.standing(client, busy, room.come()) == [True, True, False]
    newer = [room.come(source=CLIENT) for _ in range(2)]
    assert await room.standing(client, busy, *newer) == [False, True, False, True]


async def test_settled_returns_when_the_evicted_connections_are_closed(room: Room) -> None:
    """Those that keep their slots stay open."""
    crowd = [room.come() for _ in range(20)]
    await room.places.settled()
    assert [each.socket.fileno() >= 0 for each in crowd] == [False] * 18 + [True] * 2
