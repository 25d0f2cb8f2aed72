"""Who keeps his place on the agent's port, and who loses it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_address

import pytest

from kavip.agent.http.connections import Connection, Places, Stage, sender

CROWD, CLIENT = "192.0.2.1", "198.51.100.7"


class Room:
    """Two places, and connections that stay until they are cut."""

    def __init__(self) -> None:
        self.places = Places(2, at_once=2)
        self.peers: list[socket.socket] = []

    def come(self, stage: Stage = Stage.ASKING, source: str = CROWD) -> Connection:
        """A newcomer."""
        ours, peer = socket.socketpair()
        self.peers.append(peer)
        connection = Connection(ours, sender(ip_address(source)), stage)

        async def stay() -> None:
            await asyncio.Event().wait()

        self.places.give(connection, stay)
        return connection

    async def standing(self, *connections: Connection) -> list[bool]:
        """Which of them still have their places."""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [each.socket.fileno() >= 0 for each in connections]


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    """A room that is empty again afterwards."""
    made = Room()
    yield made
    await made.places.clear()
    for peer in made.peers:
        peer.close()


@pytest.mark.parametrize(
    ("stages", "left"),
    [
        ((Stage.ASKING, Stage.ASKING), [False, True, True]),
        ((Stage.ASKING, Stage.TOLD), [True, False, True]),
        ((Stage.HEARING, Stage.ASKING), [True, False, True]),
        ((Stage.AWAITING, Stage.HEARING), [True, False, True]),
        ((Stage.AWAITING, Stage.AWAITING), [True, True, False]),
    ],
)
async def test_of_one_sender_the_least_far_and_then_the_oldest_goes(
    room: Room, stages: tuple[Stage, ...], left: list[bool]
) -> None:
    """An answer that is being made is never lost; where all are, the newcomer is turned away."""
    assert await room.standing(*(room.come(stage) for stage in (*stages, Stage.ASKING))) == left


async def test_the_sender_that_has_most_pays(room: Room) -> None:
    """A client's only connection outlives a crowd's, older and further ones of it, and takes the place of one."""
    client, one = room.come(source=CLIENT), room.come(Stage.HEARING)
    assert await room.standing(client, one, room.come()) == [True, False, True]
    busy = room.come(Stage.AWAITING)
    assert await room.standing(client, busy, room.come()) == [True, True, False]
    newer = [room.come(source=CLIENT) for _ in range(2)]
    assert await room.standing(client, busy, *newer) == [False, True, False, True]


def test_a_network_of_ipv6_is_one_sender() -> None:
    """One machine may have 2^64 addresses."""
    found = [sender(ip_address(text)) for text in ("2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "192.0.2.1")]
    assert found[0] == found[1]
    assert len(set(found)) == 3
