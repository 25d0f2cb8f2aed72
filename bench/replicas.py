"""
Two replicas of the webhook at 1,000 reviews a second: ``python -m bench.replicas [SERVICES [RATE [SECONDS]]]``.

Each replica is a process that has all Services in its cache. As behind a Service, each connection of the client goes to
one of them. The client sends each review when it is due, and counts its time from then: a replica that is too slow
shows as latency that grows. Client and replicas share the cores of this machine.
"""

import asyncio
import gc
import multiprocessing
import os
import ssl
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from statistics import median, quantiles
from typing import Final

from bench.goal import row
from bench.review import HOST, PATH, cluster, review_request
from bench.site import resident
from bench.timing import plain, spent
from kavip import telemetry
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.webhook.server import WebhookServer

SERVICES: Final = 50_000
RATE: Final = 1_000  # reviews a second
SECONDS: Final = 20
REPLICAS: Final = 2
CONNECTIONS: Final = 8
LATE: Final = 1.05


def serve(pipe: Connection, size: int, certificate: bytes, key: bytes) -> None:
    """Serve reviews beside *size* Services; send the port through *pipe*, and stop at what comes back."""
    telemetry.configure_logging("warning", "text")
    snapshot = cluster(size)
    gc.collect()
    gc.freeze()  # as kavip does once its caches are filled (kavip.app)

    async def run() -> None:
        server = WebhookServer(snapshot)
        server.serve_certificate(KeyPair.load(certificate, key))
        pipe.send(await server.start(HOST, 0))
        await asyncio.to_thread(pipe.poll, None)
        await server.stop()

    asyncio.run(run())


@contextmanager
def replicas(size: int, leaf: KeyPair) -> Iterator[list[tuple[int, int]]]:
    """Run the replicas during the block; yields the pid and the port of each."""
    spawn, pair = multiprocessing.get_context("spawn"), (leaf.certificate_pem, leaf.key_pem)
    pipes = [spawn.Pipe() for _ in range(REPLICAS)]
    started = [spawn.Process(target=serve, args=(theirs, size, *pair)) for _, theirs in pipes]
    for each in started:
        each.start()
    try:
        yield [(each.pid or 0, ours.recv()) for each, (ours, _) in zip(started, pipes, strict=True)]
    finally:
        for ours, _ in pipes:
            ours.send(None)
        for each in started:
            each.join()


async def send_all(ports: Sequence[int], context: ssl.SSLContext, *, rate: int, count: int) -> list[float]:
    """Send *count* reviews at *rate* a second over all connections; the seconds from when each is due to its answer."""
    body = review_request()
    head = f"POST {PATH}?timeout=3s HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    numbers, found, began = iter(range(count)), list[float](), time.perf_counter() + 1

    async def send(port: int) -> None:
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
        for number in numbers:
            due = began + number / rate
            await asyncio.sleep(due - time.perf_counter())
            writer.write(request)
            answered = await reader.readuntil(b"\r\n\r\n")
            length = int(answered.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            answer = await reader.readexactly(length)
            found.append(time.perf_counter() - due)
            assert answered.startswith(b"HTTP/1.1 200") and b'"allowed":true' in answer, (answered, answer)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(send(ports[number % len(ports)]) for number in range(CONNECTIONS)))
    return found


def main(size: int = SERVICES, rate: int = RATE, seconds: int = SECONDS) -> None:
    """Print the table."""
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    context = ssl.create_default_context(cadata=ca.certificate_pem.decode())
    with replicas(size, certificates.new_leaf(ca, [HOST], now)) as started:
        pids, ports = zip(*started, strict=True)
        asyncio.run(send_all(ports, context, rate=rate, count=rate))  # warms up
        before, began = sum(map(spent, pids)), time.perf_counter()
        latencies = asyncio.run(send_all(ports, context, rate=rate, count=rate * seconds))
        took, cpu = time.perf_counter() - began - 1, sum(map(spent, pids)) - before
        memory = [resident(pid) for pid in pids]
    print(f"{rate:,} reviews a second for {seconds} s, {REPLICAS} replicas, {size:,} Services; {os.cpu_count()} cores")
    late = took / seconds
    row("time that the reviews took, to the time planned", f"{late:.2f} x", goal=f"under {LATE:g} x", met=late < LATE)
    plain("latency from when each was due: median", f"{median(latencies) * 1e3:.1f} ms")
    plain("latency of the slowest 1 %", f"{quantiles(latencies, n=100)[-1] * 1e3:.1f} ms")
    plain("CPU time of both replicas, of one core", f"{cpu / took:.0%}")
    plain("resident memory of each", ", ".join(map(str, memory)) + " MiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
