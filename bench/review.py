"""
Review Services against a no-op handler: ``python -m bench.review``.

Two servers run in this process, with TLS on loopback: kavip's, and a bare aiohttp handler that parses the same body and
allows it. Clients in other processes keep connections busy, as an API server does, with each server in turn. Two
results count: the ratio, and that the cost of a review does not grow with the number of Services.
"""

import asyncio
import gc
import multiprocessing
import ssl
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from statistics import median
from time import perf_counter, process_time
from typing import Any, Final

import msgspec
from aiohttp import web

from bench import goal
from kavip import names, telemetry
from kavip.api import review
from kavip.api.group import GroupSpec, Instances, KeepalivedGroup
from kavip.api.meta import Condition, Metadata
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.service import Ingress, LoadBalancer, Service, ServicePort, ServiceSpec, ServiceStatus
from kavip.pki import certificates
from kavip.pki.certificates import KeyPair
from kavip.snapshot import Snapshot
from kavip.webhook.body import LIMIT
from kavip.webhook.server import WebhookServer

SIZES: Final = (100, 10_000)  # Services in cache
GROUPS: Final = 20
POOLS: Final = 50
REVIEWS: Final = 4_000  # per round
ROUNDS: Final = 5
CLIENTS: Final = 2  # processes: one client may be slower than the server, and then limits the result
CONNECTIONS: Final = 4  # of each
LEAST: Final = 0.7
MOST: Final = 3.0
FLAT: Final = 1.25  # twice the noise between two runs
HOST: Final = "127.0.0.1"
PATH: Final = names.VALIDATE_SERVICE_PATH


@dataclass(frozen=True, slots=True)
class Round:
    """Reviews per second, latencies in seconds, and what one review costs the server in seconds of CPU."""

    rate: float
    p50: float
    p99: float
    cost: float


def main() -> None:
    """Print the table."""
    print(f"{REVIEWS:,} reviews over {CLIENTS * CONNECTIONS} connections, median of {ROUNDS} rounds")
    telemetry.configure_logging("warning", "text")
    costs = []
    for size in SIZES:
        ours, bare = asyncio.run(compare(size))
        row(f"no-op handler, beside {size:,} Services in cache", bare)
        row(f"kavip with {size:,} Services in cache", ours)
        rate, p50, p99 = ours.rate / bare.rate, ours.p50 / bare.p50, ours.p99 / bare.p99
        goal.row("throughput, kavip / no-op", f"{rate:.2f}", goal=f"at least {LEAST}", met=rate >= LEAST)
        goal.row("p99, kavip / no-op", f"{p99:.2f}", goal=f"under {MOST}", met=p99 < MOST)
        print(f"  {'p50, kavip / no-op':<52} {p50:>10.2f}")
        costs.append(ours.cost - bare.cost)
    growth = costs[-1] / costs[0]
    what = f"what kavip adds to a review, {SIZES[-1]:,} / {SIZES[0]:,} Services"
    goal.row(what, f"{growth:.2f} x", goal=f"flat, under {FLAT}", met=growth < FLAT)


def row(what: str, found: Round) -> None:
    """Print one line of the table."""
    figures = f"{found.rate:7,.0f}/s   p50 {found.p50 * 1e3:5.2f} ms   p99 {found.p99 * 1e3:5.2f} ms"
    print(f"{what:<48} {figures}   CPU {found.cost * 1e6:4.0f} us")


async def compare(size: int) -> tuple[Round, Round]:
    """Send reviews to both servers in turn, round by round, so that other load on the machine affects both."""
    snapshot = cluster(size)
    gc.collect()
    gc.freeze()  # as kavip does once its caches are filled (kavip.app)
    now = datetime.now(UTC)
    ca = certificates.new_ca(now)
    leaf = certificates.new_leaf(ca, [HOST], now)
    async with AsyncExitStack() as stack:
        server = WebhookServer(snapshot)
        server.serve_certificate(leaf)
        ports = [await server.start(HOST, 0), await stack.enter_async_context(no_op(leaf))]
        stack.push_async_callback(server.stop)
        clients = stack.enter_context(Clients(ca.certificate_pem.decode(), review_request()))
        rounds = [[await clients.run_round(port) for port in ports] for _ in range(ROUNDS + 1)][
            1:
        ]  # the first warms up
    ours, bare = (summed(found) for found in zip(*rounds, strict=True))
    return ours, bare


def summed(rounds: Sequence[Round]) -> Round:
    """The median of each figure."""
    return Round(*(median(getattr(each, name) for each in rounds) for name in ("rate", "p50", "p99", "cost")))


# --- the bare handler ---------------------------------------------------------------------------------------------
@asynccontextmanager
async def no_op(leaf: KeyPair) -> AsyncIterator[int]:
    """A server that parses and allows each review; yields its port."""

    async def answer(request: web.Request) -> web.Response:
        review_body = msgspec.json.decode(await request.read())
        response = {"uid": review_body["request"]["uid"], "allowed": True}
        body = {"apiVersion": review.API_VERSION, "kind": review.KIND, "response": response}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    application = web.Application(client_max_size=LIMIT)
    application.router.add_post(PATH, answer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(leaf.certificate_pem + leaf.key_pem)
        file.flush()
        context.load_cert_chain(file.name)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0, ssl_context=context).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


# --- the clients --------------------------------------------------------------------------------------------------
class Clients:
    """Client processes that send reviews at the same time."""

    def __init__(self, trust: str, body: bytes) -> None:
        """Start them; they wait for a port."""
        spawn = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(CLIENTS):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve_rounds, args=(theirs, trust, body))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.close()  # the end of the pipe ends the client
            process.join()

    async def run_round(self, port: int) -> Round:
        """Run one round against the server on *port* of this process."""
        start, spent = perf_counter(), process_time()
        for pipe in self._pipes:
            pipe.send(port)
        found = await asyncio.gather(*(asyncio.to_thread(pipe.recv) for pipe in self._pipes))
        seconds, cost = perf_counter() - start, process_time() - spent
        latencies = sorted(latency for each in found for latency in each)
        count = len(latencies)
        return Round(count / seconds, median(latencies), latencies[count * 99 // 100], cost / count)


def serve_rounds(pipe: Connection, trust: str, body: bytes) -> None:
    """Ask the server on each port that comes through *pipe*, and send back the latencies."""
    head = f"POST {PATH}?timeout=3s HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    context = ssl.create_default_context(cadata=trust)
    while True:
        try:
            port = pipe.recv()
        except EOFError:
            return
        pipe.send(asyncio.run(latencies_of(port, request, context)))


async def latencies_of(port: int, request: bytes, context: ssl.SSLContext) -> list[float]:
    """Send this process's share of a round; the latencies."""
    count = REVIEWS // CLIENTS // CONNECTIONS
    found = await asyncio.gather(*(send_reviews(port, request, context, count=count) for _ in range(CONNECTIONS)))
    return [latency for each in found for latency in each]


async def send_reviews(port: int, request: bytes, context: ssl.SSLContext, *, count: int) -> list[float]:
    """Send *count* reviews over one connection, each after the response to the one before."""
    reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
    latencies = []
    for _ in range(count):
        start = perf_counter()
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = await reader.readexactly(length)
        latencies.append(perf_counter() - start)
        assert head.startswith(b"HTTP/1.1 200") and b'"allowed":true' in answer, (head, answer)
    writer.close()
    await writer.wait_closed()
    return latencies


# --- the objects --------------------------------------------------------------------------------------------------
def cluster(size: int) -> Snapshot:
    """*size* Services with addresses, over all groups (in Shared mode) and pools."""
    groups = [
        KeepalivedGroup(
            metadata=_metadata("lb", f"g{index}"),
            spec=GroupSpec(interface="eth0", segment=f"s{index}", instances=Instances(mode="Shared")),
        )
        for index in range(GROUPS)
    ]
    pools = [
        VIPPool(metadata=_metadata("", f"p{index}"), spec=PoolSpec(addresses=[f"10.{index}.0.0/16"]))
        for index in range(POOLS)
    ]
    services = [service(index, address=f"10.{index % POOLS}.{index >> 8}.{index & 255}") for index in range(size)]
    return Snapshot.from_objects([*groups, *pools, *services])


def service(index: int, *, address: str = "") -> Service:
    """One Service as users write it; with an *address*, as kavip has served it."""
    condition = Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status="True", reason=names.Reason.ASSIGNED)
    status = ServiceStatus(load_balancer=LoadBalancer(ingress=[Ingress(ip=address)]), conditions=[condition])
    note = {names.GROUP_ANNOTATION: f"lb/g{index % GROUPS}", names.POOL_ANNOTATION: f"p{index % POOLS}"}
    return Service(
        metadata=_metadata("shop", f"s{index}", annotations=note, labels={"app": f"a{index}"}),
        spec=ServiceSpec(
            type="LoadBalancer",
            ports=[ServicePort(port=80), ServicePort(port=443)],
            ip_families=["IPv4"],
            ip_family_policy="SingleStack",
            selector={"app": f"a{index}"},
        ),
        status=status if address else ServiceStatus(),
    )


def review_request() -> bytes:
    """A review of the creation of one more Service, as the API server sends it."""
    review_body: dict[str, Any] = msgspec.to_builtins(service(1_000_000))
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": names.SERVICE},
        "resource": {"group": "", "version": "v1", "resource": "services"},
        "name": review_body["metadata"]["name"],
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {"username": "jane", "groups": ["system:authenticated"]},
        "object": {"apiVersion": "v1", "kind": names.SERVICE, **review_body},
        "oldObject": None,
        "dryRun": False,
    }
    return msgspec.json.encode({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": request})


def _metadata(namespace: str, name: str, **more: Any) -> Metadata:
    return Metadata(namespace=namespace, name=name, uid=f"u-{name}", creation_timestamp="2026-01-01T00:00:00Z", **more)


if __name__ == "__main__":
    main()
