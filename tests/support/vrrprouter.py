"""
A router that is no keepalived: it sends adverts of VRRP version 3 with a VRID once a second, whatever it receives.

``python -m tests.support.vrrprouter VRID SOURCE ADDRESS`` sends them from the address SOURCE until it is killed, as the
master of ADDRESS with the lowest priority. A keepalived would fall silent, because it puts off its next advert with
each one that it refuses.
"""

import socket
import struct
import sys
import time
from ipaddress import IPv4Address

_VRRP = 112
_ADVERT, _PRIORITY, _CENTISECONDS = 0x31, 1, 100
_TTL = 255
_EVERYBODY = IPv4Address("224.0.0.18")


def advert(router_id: int, source: IPv4Address, address: IPv4Address) -> bytes:
    """The advert (RFC 5798, section 5.2)."""
    head, tail = struct.pack("!BBBBH", _ADVERT, router_id, _PRIORITY, 1, _CENTISECONDS), address.packed
    pseudo = struct.pack("!4s4sxBH", source.packed, _EVERYBODY.packed, _VRRP, len(head) + 2 + len(tail))
    return head + struct.pack("!H", _checksum(pseudo + head + tail)) + tail


def _checksum(content: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(content) // 2}H", content))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def main(router_id: str, source: str, address: str) -> None:
    """Send until killed."""
    packet = advert(int(router_id), IPv4Address(source), IPv4Address(address))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, _VRRP) as wire:
        wire.bind((source, 0))
        wire.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, _TTL)
        wire.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, IPv4Address(source).packed)
        while True:
            wire.sendto(packet, (str(_EVERYBODY), 0))
            time.sleep(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
