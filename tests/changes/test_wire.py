"""What the adverts on a wire say about who was master."""

import math
import socket
import struct

import pytest

from tests.changes.wire import Advert, doubles, parse, reigns


def _adverts(*heard: tuple[float, str, int]) -> list[Advert]:
    return [Advert(moment, node, 4, 51, priority, 0.2) for moment, node, priority in heard]


def test_a_hand_over_is_two_reigns_and_no_double() -> None:
    """One ends where the other begins, whether it says goodbye or not."""
    heard = _adverts((0.0, "a", 200), (0.2, "a", 200), (0.3, "a", 0), (0.4, "b", 150), (0.6, "b", 150), (0.7, "a", 200))
    assert [each.node for each in reigns(heard)] == ["a", "b", "a"]
    assert doubles(heard) == ()


def test_two_that_go_on_are_a_double() -> None:
    """Both are heard, in turns: from the second's first advert to the last of one of them."""
    turns = [(n / 10, "ab"[n % 2], 200 - n % 2) for n in range(6)]
    (found,) = doubles(_adverts(*turns))
    assert (found.router_id, found.nodes) == (51, ("a", "b"))
    assert abs(found.seconds - 0.3) < 1e-6


@pytest.mark.parametrize("late", [0.01, 0.19])
def test_adverts_that_cross_are_no_double(late: float) -> None:
    """The old master speaks once more, and answers, when it hears the new one, however busy its machine is."""
    heard = (0.0, "a", 150), (0.2 - late, "b", 200), (0.2, "a", 150), (0.201, "a", 150), (0.4, "b", 200)
    assert doubles(_adverts(*heard)) == ()


def test_a_pause_ends_a_reign() -> None:
    """A node that was silent for longer than it said is master anew."""
    assert len(reigns(_adverts((0.0, "a", 200), (0.2, "a", 200), (3.0, "a", 200)))) == 2


def test_a_new_master_stands_when_it_speaks_again() -> None:
    """To the same peer: what it says to all at once is said once."""
    heard = [
        each._replace(target=to)
        for each, to in zip(_adverts(*[(n / 10, "a", 200) for n in range(4)]), "xyxy", strict=True)
    ]
    (reign,) = reigns(heard)
    assert (reign.began, reign.stood, reign.goodbye) == (0.0, 0.2, None)
    assert reigns(heard[:2])[0].stood == math.inf


def test_adverts_are_read_from_frames() -> None:
    """Version 3 says its interval in hundredths, version 2 in seconds; other frames are none."""
    target = "192.0.2.12"
    ethernet = bytes(12) + struct.pack("!H", 0x0800)
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 255, 112, 0, socket.inet_aton("192.0.2.11"), socket.inet_aton(target)
    )
    assert parse(ethernet + ip + struct.pack("!BBBBHH", 0x31, 51, 200, 1, 20, 0)) == (4, 51, 200, 0.2, target)
    assert parse(ethernet + ip + struct.pack("!BBBBBBH", 0x21, 51, 200, 1, 0, 3, 0)) == (4, 51, 200, 3.0, target)
    assert parse(ethernet + ip.replace(b"\xff\x70", b"\xff\x06") + bytes(20)) is None
