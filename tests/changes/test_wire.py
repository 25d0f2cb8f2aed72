"""What the adverts on a wire say about who was master."""

import socket
import struct

from tests.changes.wire import Advert, doubles, parse, reigns


def _adverts(*heard: tuple[float, str, int]) -> list[Advert]:
    return [Advert(moment, node, 4, 51, priority, 0.2) for moment, node, priority in heard]


def test_a_hand_over_is_two_reigns_and_no_double() -> None:
    """One ends where the other begins, whether it says goodbye or not."""
    heard = _adverts((0.0, "a", 200), (0.2, "a", 200), (0.3, "a", 0), (0.4, "b", 150), (0.6, "b", 150), (0.7, "a", 200))
    assert [each.node for each in reigns(heard)] == ["a", "b", "a"]
    assert doubles(heard) == ()


def test_two_that_go_on_are_a_double() -> None:
    """Both are heard, in turns: from the second's first advert to the first's last."""
    (found,) = doubles(_adverts((0.0, "a", 200), (0.1, "b", 150), (0.2, "a", 200), (0.3, "b", 150), (0.4, "a", 200)))
    assert (found.router_id, found.nodes) == (51, ("a", "b"))
    assert abs(found.seconds - 0.2) < 1e-6


def test_adverts_that_cross_are_no_double() -> None:
    """The old master sends one more at the moment at which the new one begins."""
    assert doubles(_adverts((0.0, "a", 150), (0.19, "b", 200), (0.2, "a", 150), (0.39, "b", 200))) == ()


def test_a_pause_ends_a_reign() -> None:
    """A node that was silent for longer than it said is master anew."""
    assert len(reigns(_adverts((0.0, "a", 200), (0.2, "a", 200), (3.0, "a", 200)))) == 2


def test_adverts_are_read_from_frames() -> None:
    """Version 3 says its interval in hundredths, version 2 in seconds; other frames are none."""
    ethernet = bytes(12) + struct.pack("!H", 0x0800)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 255, 112, 0, socket.inet_aton("192.0.2.11"), bytes(4))
    assert parse(ethernet + ip + struct.pack("!BBBBHH", 0x31, 51, 200, 1, 20, 0)) == (4, 51, 200, 0.2)
    assert parse(ethernet + ip + struct.pack("!BBBBBBH", 0x21, 51, 200, 1, 0, 3, 0)) == (4, 51, 200, 3.0)
    assert parse(ethernet + ip.replace(b"\xff\x70", b"\xff\x06") + bytes(20)) is None
