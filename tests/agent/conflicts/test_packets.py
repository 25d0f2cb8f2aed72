"""ARP and neighbour discovery: what frames say, and that frames of any content are read without an error."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from kavip.agent.conflicts.packets import arp, ndisc
from kavip.agent.conflicts.packets.sighting import Sighting, SightingKind, hardware_text
from kavip.api.address import parse_address

MAC, TEXT = bytes.fromhex("0200c0000263"), "02:00:c0:00:02:63"
VIP, VIP6 = parse_address("192.0.2.130"), parse_address("2001:db8:2::130")


def test_arp_probes_and_announcements() -> None:
    """A probe has no sender's address (RFC 5227, 1.1); an announcement has the address twice."""
    probe, announcement = arp.probe(VIP, source=MAC), arp.announcement(VIP, source=MAC)
    assert probe[28:32] == bytes(4) and probe[38:42] == announcement[28:32] == announcement[38:42]
    assert probe[:6] == announcement[:6] == b"\xff" * 6
    assert arp.read(probe) == Sighting(VIP, TEXT, SightingKind.PROBE)
    assert arp.read(announcement) == Sighting(VIP, TEXT, SightingKind.CLAIM)


def test_every_arp_packet_with_the_address_of_its_sender_is_a_claim() -> None:
    """Replies and ordinary requests too (RFC 5227, 2.1.1); padding does not matter."""
    frame = bytearray(arp.announcement(VIP, source=MAC))
    for operation, target in ((1, 7), (2, 7)):
        frame[20:22], frame[38:42] = struct.pack("!H", operation), struct.pack("!I", target)
        assert arp.read(bytes(frame) + bytes(18)) == Sighting(VIP, TEXT, SightingKind.CLAIM)
    frame[20:22] = struct.pack("!H", 8)  # inverse ARP
    assert arp.read(bytes(frame)) is None


def test_an_answer_to_an_announcement_is_no_claim() -> None:
    """A router with proxy ARP sends it; an answer to a probe has no target, and an announcement goes to all."""
    frame = bytearray(arp.announcement(VIP, source=MAC))
    frame[20:22] = struct.pack("!H", arp.REPLY)
    assert arp.read(bytes(frame)) == Sighting(VIP, TEXT, SightingKind.CLAIM)
    frame[:6] = bytes.fromhex("0200c000020b")
    assert arp.read(bytes(frame)) == Sighting(VIP, TEXT, SightingKind.ANSWER)
    frame[38:42] = bytes(4)
    assert arp.read(bytes(frame)) == Sighting(VIP, TEXT, SightingKind.CLAIM)


def test_hardware_addresses_of_many_machines_say_nothing() -> None:
    """Neither a multicast address nor zero is one machine's."""
    assert arp.read(arp.announcement(VIP, source=bytes(6))) is None
    assert arp.read(arp.announcement(VIP, source=b"\x01\x00\x5e\x00\x00\x01")) is None
    assert hardware_text(MAC) == TEXT and hardware_text(MAC[:5]) == ""


def test_neighbour_messages() -> None:
    """A solicitation from :: asks (RFC 4862, 5.4.2); one from an address resolves it, and says nothing about others."""
    asks = ndisc.solicitation(VIP6, source=MAC)
    assert asks[:6] == bytes.fromhex("3333ff000130")
    assert ndisc.read(asks) == Sighting(VIP6, TEXT, SightingKind.PROBE)
    resolves = bytearray(asks)
    resolves[37] = 1  # the last byte of the source
    assert ndisc.read(bytes(resolves)) is None
    claims = ndisc.advertisement(VIP6, source=MAC, is_router=True)
    assert ndisc.read(claims) == ndisc.read_advertisement(claims[54:]) == Sighting(VIP6, TEXT, SightingKind.CLAIM)
    assert claims[58] & 0xE0 == 0xA0  # a router overrides; nobody asked
    assert ndisc.advertisement(VIP6, source=MAC, is_router=False)[58] & 0xE0 == 0x20


def test_the_option_names_the_machine_and_not_the_sender() -> None:
    """A proxy sends for others; without the option the sender counts, if it is known."""
    frame = bytearray(ndisc.advertisement(VIP6, source=MAC, is_router=False))
    frame[6:12] = bytes.fromhex("0200c0000264")
    assert ndisc.read(bytes(frame)) == Sighting(VIP6, TEXT, SightingKind.CLAIM)
    bare = bytes(frame[:18]) + struct.pack("!H", 24) + bytes(frame[20:78])
    assert ndisc.read(bare) == Sighting(VIP6, "02:00:c0:00:02:64", SightingKind.CLAIM)
    assert ndisc.read_advertisement(bare[54:]) is None


def test_packets_from_behind_a_router_say_nothing() -> None:
    """Their hop limit is less than 255."""
    frame = bytearray(ndisc.advertisement(VIP6, source=MAC, is_router=False))
    frame[21] = 254
    assert ndisc.read(bytes(frame)) is None


@given(st.binary(max_size=120), st.integers(0, 100))
def test_any_frame_is_read_without_an_error(content: bytes, cut: int) -> None:
    """Also one that begins like a good one, or ends too early."""
    for good in (arp.probe(VIP, source=MAC), ndisc.advertisement(VIP6, source=MAC, is_router=False)):
        for frame in (content, good[:cut] + content, good[: 54 + cut % 20] + content):
            for found in (arp.read(frame), ndisc.read(frame), ndisc.read_advertisement(frame)):
                assert found is None or found.hardware
