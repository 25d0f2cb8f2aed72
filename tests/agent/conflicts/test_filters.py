"""The BPF programs pass what is about the addresses, and nearly nothing else: by an interpreter, and in the kernel."""

import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.testbed import runs
from hack.testbed.segment import Segment
from kavip.agent.conflicts.packets import arp, filters, ndisc
from kavip.agent.conflicts.packets.filters import MOST, Program
from kavip.agent.conflicts.packets.sighting import Sighting, SightingKind
from kavip.agent.conflicts.sockets import packet_socket
from kavip.api.address import Address, parse_address
from tests.agent.conflicts.bpf import OUTGOING, passed
from tests.agent.pod import entered

STRANGER, OWN = bytes.fromhex("0200c0000263"), bytes.fromhex("0200c000020b")
RECEIVE_BUFFER_FORCE = 33  # SO_RCVBUFFORCE
LARGEST = 20_480 // 2
"""Bytes that a program may have: the kernel counts it twice while it converts it, against 20 KB of a socket."""

ipv4 = st.builds(Address, st.just(4), st.one_of(st.integers(1, 40), st.integers(1, 2**32 - 1)))
ipv6 = st.builds(Address, st.just(6), st.one_of(st.integers(1, 40), st.integers(1, 2**120)))


def arp_frame(address: int, *, hardware: bytes = STRANGER, target: int = 0, operation: int = 1) -> bytes:
    """An ARP frame of *hardware* whose sender has *address*."""
    return (
        b"\xff" * 6
        + hardware
        + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, operation)
        + hardware
        + struct.pack("!I6xI", address, target)
    )


@given(st.sets(ipv4, max_size=200), ipv4, st.booleans(), st.sampled_from([OWN, STRANGER]))
def test_arp_claims_of_others_pass(held: set[Address], sender: Address, probes: bool, hardware: bytes) -> None:
    """Those of the addresses, and with many gaps also some between them; never those of this machine."""
    sent, target = (0, sender.value) if probes else (sender.value, 0)
    frame = arp_frame(sent, target=target, hardware=hardware)
    claims = passed(filters.claims_by_arp(held, own=[OWN]), frame)
    sightings = passed(filters.sightings_by_arp(held, own=[OWN]), frame)
    if hardware == OWN:
        assert not claims and not sightings
    elif sender in held:
        assert sightings and claims is not probes
    elif len(held) <= MOST:
        assert not claims and not sightings


@given(st.sets(ipv6, max_size=100), ipv6, st.booleans())
def test_neighbour_messages_about_the_addresses_pass(held: set[Address], target: Address, asks: bool) -> None:
    """Solicitations only where they are wanted; other addresses only if their last 32 bits are the same."""
    frame = (
        ndisc.solicitation(target, source=STRANGER)
        if asks
        else ndisc.advertisement(target, source=STRANGER, is_router=False)
    )
    sightings = passed(filters.sightings_by_ndisc(held), frame)
    claims = passed(filters.claims_by_icmpv6(held), frame[54:])
    is_alike = any((each.value ^ target.value) & 0xFFFF_FFFF == 0 for each in held)
    if is_alike:
        assert sightings and claims is not asks
    elif len(held) <= MOST:
        assert not sightings and not claims


def test_other_packets_are_dropped() -> None:
    """What this machine sends, ARP for other networks, other protocols, and packets that are too short."""
    program = filters.sightings_by_arp([Address(4, 1)], own=[OWN])
    good = arp_frame(1)
    assert passed(program, good) and passed(program, arp_frame(1, operation=2))
    assert not passed(program, good, packet_type=OUTGOING)
    assert not passed(program, good[:30])
    for offset in (12, 14, 16, 18):
        assert not passed(program, good[:offset] + b"\x77\x77" + good[offset + 2 :])
    asks = ndisc.solicitation(Address(6, 1), source=STRANGER)
    program = filters.sightings_by_ndisc([Address(6, 1)])
    assert passed(program, asks)
    assert not any(passed(program, asks[:offset] + b"\x07" + asks[offset + 1 :]) for offset in (12, 20, 54))


def test_nothing_passes_without_addresses() -> None:
    """A node that holds no VIP is never woken."""
    assert not passed(filters.claims_by_arp([], own=[]), arp_frame(1))
    assert not passed(filters.claims_by_icmpv6([]), ndisc.advertisement(Address(6, 1), source=OWN, is_router=True)[54:])


def test_programs_fit_into_a_socket() -> None:
    """Thousands of VIPs with gaps between them, and more hardware addresses than the kernel is told."""
    scattered = [Address(4, 0xC600_0000 + 3 * number) for number in range(20_000)]
    senders = [struct.pack("!HI", 0x0200, number) for number in range(100)]
    for program in (
        filters.claims_by_arp(scattered, own=senders),
        filters.sightings_by_arp(scattered, own=senders),
        filters.sightings_by_ndisc(scattered),
    ):
        assert len(filters.packed(program)) < LARGEST
    assert passed(filters.claims_by_arp(scattered, own=senders), arp_frame(scattered[777].value))


# --- in the kernel ----------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def lan() -> Iterator[Segment]:
    """Two machines on one bridge."""
    with runs.in_memory() as state, Segment(state, nodes=2) as started:
        yield started


def received(lan: Segment, ethertype: int, program: Program, frames: list[bytes]) -> list[bytes]:
    """Those of *frames*, sent by n2, that *program* passes on n1."""
    found = []

    def receive() -> None:
        with packet_socket("eth0", ethertype, program) as listener:
            listener.setsockopt(socket.SOL_SOCKET, RECEIVE_BUFFER_FORCE, 8 << 20)
            entered(lan.node("n2").netns, send)
            listener.settimeout(10)
            while (frame := listener.recv(2048)) != frames[-1]:
                found.append(frame)

    def send() -> None:
        with packet_socket("eth0", 0, ()) as sender:
            for each in frames:
                sender.send(each)

    entered(lan.node("n1").netns, receive)
    return found


@pytest.mark.netns
@pytest.mark.parametrize("number", [1, 7, 300])
def test_the_kernel_agrees_about_arp(lan: Segment, number: int) -> None:
    """Of 400 frames it passes those that the interpreter passes."""
    held = [Address(4, 0xC000_0200 + 3 * each) for each in range(number)]
    program = filters.sightings_by_arp(held, own=[OWN])
    frames = [arp_frame(0xC000_0200 + each, hardware=OWN if each % 5 == 0 else STRANGER) for each in range(200)]
    frames += [arp_frame(0, target=0xC000_0200 + each) for each in range(200)]
    last = arp_frame(held[0].value, operation=2)
    found = received(lan, arp.ETHERTYPE, program, [*frames, last])
    assert [each[:42] for each in found] == [each for each in frames if passed(program, each)] != []


@pytest.mark.netns
def test_the_kernel_agrees_about_neighbour_messages(lan: Segment) -> None:
    """They are well-formed: the client answers when it is asked for its own address."""
    first = parse_address(lan.client.ipv6).value - 60
    held = [Address(6, first + 3 * each) for each in range(100)]
    program = filters.sightings_by_ndisc(held)
    asked = [Address(6, first + each) for each in range(100)]
    frames = [ndisc.solicitation(each, source=STRANGER) for each in asked]
    frames += [ndisc.advertisement(each, source=STRANGER, is_router=True) for each in asked]
    last = ndisc.advertisement(held[0], source=OWN, is_router=False)
    found = received(lan, ndisc.ETHERTYPE, program, [*frames, last])
    answers = {ndisc.read(each) for each in found if each not in frames}
    assert [each for each in found if each in frames] == [each for each in frames if passed(program, each)] != []
    client = lan.client.address
    assert answers == {Sighting(parse_address(client.ipv6), client.mac, SightingKind.CLAIM)}
