"""Which nodes were master, by captured adverts."""

import math
import socket
import struct

import pytest

from tests.transitions.adverts import Advert, double_masters, master_periods, parse


def _adverts(*received: tuple[float, str, int]) -> list[Advert]:
    return [Advert(moment, node, 4, 51, priority, 0.2) for moment, node, priority in received]


def test_a_hand_over_is_two_periods_and_no_double_master() -> None:
    """One period ends where the other begins, with or without an advert of priority 0."""
    received = _adverts(
        (0.0, "a", 200), (0.2, "a", 200), (0.3, "a", 0), (0.4, "b", 150), (0.6, "b", 150), (0.7, "a", 200)
    )
    assert [each.node for each in master_periods(received)] == ["a", "b", "a"]
    assert double_masters(received) == ()


def test_two_masters_that_both_go_on_are_a_double_master() -> None:
    """Both nodes send adverts in turn, from the second node's first advert to the last advert of one of them."""
    turns = [(n / 10, "ab"[n % 2], 200 - n % 2) for n in range(6)]
    (found,) = double_masters(_adverts(*turns))
    assert (found.router_id, found.nodes) == (51, ("a", "b"))
    assert abs(found.seconds - 0.3) < 1e-6


@pytest.mark.parametrize("late", [0.01, 0.19])
def test_adverts_that_cross_are_no_double_master(late: float) -> None:
    """The old master may send one more round when it receives the new one's advert, however busy its machine is."""
    received = (0.0, "a", 150), (0.2 - late, "b", 200), (0.2, "a", 150), (0.201, "a", 150), (0.4, "b", 200)
    assert double_masters(_adverts(*received)) == ()


def test_a_pause_ends_a_period() -> None:
    """A node that sends no advert for longer than it announced begins a new period."""
    assert len(master_periods(_adverts((0.0, "a", 200), (0.2, "a", 200), (3.0, "a", 200)))) == 2


def test_a_new_master_is_established_at_its_second_advert() -> None:
    """The second advert to the same peer counts: the first round goes to all peers at once."""
    received = [
        each._replace(target=to)
        for each, to in zip(_adverts(*[(n / 10, "a", 200) for n in range(4)]), "xyxy", strict=True)
    ]
    (period,) = master_periods(received)
    assert (period.began, period.established, period.resigned) == (0.0, 0.2, None)
    assert master_periods(received[:2])[0].established == math.inf


def test_adverts_are_read_from_frames() -> None:
    """Version 3 announces its interval in hundredths of a second, version 2 in seconds; other frames are no adverts."""
    target = "192.0.2.12"
    ethernet = bytes(12) + struct.pack("!H", 0x0800)
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 255, 112, 0, socket.inet_aton("192.0.2.11"), socket.inet_aton(target)
    )
    assert parse(ethernet + ip + struct.pack("!BBBBHH", 0x31, 51, 200, 1, 20, 0)) == (4, 51, 200, 0.2, target)
    assert parse(ethernet + ip + struct.pack("!BBBBBBH", 0x21, 51, 200, 1, 0, 3, 0)) == (4, 51, 200, 3.0, target)
    assert parse(ethernet + ip.replace(b"\xff\x70", b"\xff\x06") + bytes(20)) is None
