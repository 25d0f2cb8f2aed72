"""A machine on the segment that is no node: it has an address, or says that it has one."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hack.testbed import process
from hack.testbed.segment import Host
from kavip.agent.conflicts.packets import arp, ndisc
from kavip.agent.conflicts.sockets import packet_socket
from kavip.api.address import parse_address
from tests.agent.pod import entered
from tests.vrrp.livedaemons import BEFORE_OTHERS


@contextmanager
def having(host: Host, *addresses: str, dev: str = "eth0") -> Iterator[None]:
    """*host* has *addresses* during the block. It says nothing by itself, and answers requests."""
    for each in addresses:
        bits = 128 if ":" in each else 32
        host.exec("ip", "addr", "add", f"{each}/{bits}", "dev", dev, *(["nodad"] if ":" in each else []))
    try:
        yield
    finally:
        for each in addresses:
            host.exec("ip", "addr", "del", each, "dev", dev)


def announce(host: Host, address: str, *, mac: str = "") -> None:
    """*host* says once that the machine with *mac*, else itself, has *address*."""
    source, parsed = bytes.fromhex((mac or host.address.mac).replace(":", "")), parse_address(address)
    if parsed.family == 4:
        send(host, arp.announcement(parsed, source=source))
    else:
        send(host, ndisc.advertisement(parsed, source=source, is_router=False))


@contextmanager
def announcing(host: Host, address: str) -> Iterator[None]:
    """*host* says again and again during the block that it has *address*, with the priority of an agent."""
    arguments = address, host.address.mac.replace(":", "")
    talker = host.spawn(*BEFORE_OTHERS, sys.executable, "-c", _TALKER, *arguments, log=host.home / "talker.log")
    try:
        yield
    finally:
        process.kill([talker])


_TALKER = """
import sys, time
from kavip.agent.conflicts.packets import arp
from kavip.agent.conflicts.sockets import packet_socket
from kavip.api.address import parse_address
frame = arp.announcement(parse_address(sys.argv[1]), source=bytes.fromhex(sys.argv[2]))
with packet_socket("eth0", 0, ()) as opened:
    while True:
        opened.send(frame)
        time.sleep(0.02)
"""


def send(host: Host, *frames: bytes) -> None:
    """*host* sends *frames*."""

    def work() -> None:
        with packet_socket("eth0", 0, ()) as opened:
            for each in frames:
                opened.send(each)

    entered(host.netns, work)


@contextmanager
def sysctl(host: Host, name: str, value: int) -> Iterator[None]:
    """*host* has the kernel parameter *name* set to *value* during the block."""
    path = f"/proc/sys/{name}"
    before = host.exec("cat", path).stdout.strip()
    host.exec("sh", "-c", f"echo {value} > {path}")
    try:
        yield
    finally:
        host.exec("sh", "-c", f"echo {before} > {path}")
