"""Python programs that a benchmark runs on another machine of a segment; each prints that it is up."""

from typing import Final

SENDER: Final = """
import socket, sys, time
from kavip.agent.conflicts.packets import arp
from kavip.api.address import Address
rate, count = map(int, sys.argv[1:])
opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
opened.bind(("eth0", 0))
frames = [arp.announcement(Address(4, 0xC0000300 + each), source=bytes.fromhex("0200c0000263")) for each in range(250)]
print("up", flush=True)
began = time.perf_counter()
for number in range(count):
    opened.send(frames[number % 250])
    if rate and number % 10 == 9:
        time.sleep(max(0.0, number / rate - (time.perf_counter() - began)))
print(time.process_time())
"""
"""Sends ARP announcements of addresses that are no VIPs: so many a second, 0 for as fast as it can; and how many."""

READER: Final = """
import socket
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806)) as opened:
    opened.bind(("eth0", 0x0806))
    print("up", flush=True)
    while True:
        opened.recv(2048)
"""
"""Reads each ARP packet."""

SERVER: Final = """
import asyncio, json, sys
bodies = {path.encode(): body.encode() for path, body in json.loads(sys.stdin.readline()).items()}
async def answer(reader, writer):
    body = bodies[(await reader.readuntil(b"\\r\\n\\r\\n")).split()[1]]
    writer.write(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
    await writer.drain()
    writer.close()
async def main():
    async with await asyncio.start_server(answer, "", int(sys.argv[1])) as server:
        print("up", flush=True)
        await server.serve_forever()
asyncio.run(main())
"""
"""Answers each path that it reads from stdin as JSON with the text of it."""

FILTER: Final = """
import sys
from kavip.agent.conflicts.packets import arp
from kavip.agent.conflicts.packets.filters import claims_by_arp
from kavip.agent.conflicts.sockets import packet_socket
from kavip.api.address import Address
vips = [Address(4, 0xC6120000 + 3 * number) for number in range(int(sys.argv[1]))]
with packet_socket("eth0", arp.ETHERTYPE, claims_by_arp(vips, own=[bytes.fromhex("0200c000020b")])):
    print("up", flush=True)
    sys.stdin.read()
"""
"""Listens for claims on so many VIPs."""
