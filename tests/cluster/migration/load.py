"""
Sends requests to several URLs from one place, each on a new connection, and prints what was lost.

``python -m tests.cluster.migration.load EVERY URL...`` asks each URL every EVERY seconds until its standard input
closes. It prints "ready" when every URL has answered once, and at the end one JSON object: for each URL the list of
``[seconds since start, seconds until the answer or null, problem]``, in the order of sending.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hack.demo import prober
from hack.testbed.cluster import Cluster
from tests.cluster.migration.watching import watching

Row = tuple[float, float | None, str]


@dataclass(slots=True)
class Load:
    """What the clients saw, by URL; complete after the block of :func:`load`."""

    rows: dict[str, list[Row]] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """The number of requests."""
        return sum(map(len, self.rows.values()))

    @property
    def problems(self) -> dict[str, Counter[str]]:
        """The problems of each URL that lost a request."""
        found = {url: Counter(row[2] for row in rows if row[1] is None) for url, rows in self.rows.items()}
        return {url: each for url, each in found.items() if each}

    def silence(self, url: str) -> float:
        """The longest time without an answer, in seconds; 0: nothing was lost."""
        return prober.longest_silence([(sent, took) for sent, took, _ in self.rows[url]])


@contextmanager
def load(cluster: Cluster, addresses: Sequence[str], *, every: float) -> Iterator[Load]:
    """Let the client of *cluster* ask port 80 of each of *addresses* during the block."""
    urls = [f"http://{each}/" for each in addresses]
    found = Load()
    with watching(cluster, "tests.cluster.migration.load", str(every), *urls) as output:
        yield found
    found.rows.update({url: [tuple(row) for row in rows] for url, rows in output.items()})


async def ask_all(every: float, urls: Sequence[str]) -> dict[str, list[Row]]:
    """Ask until standard input closes."""
    loop = asyncio.get_running_loop()
    for url in urls:
        while (await prober.ask(url)).body is None:
            await asyncio.sleep(0.1)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    stopped = loop.run_in_executor(None, sys.stdin.read)
    began = loop.time()
    found: dict[str, list[Row]] = {url: [] for url in urls}
    running: set[asyncio.Task[None]] = set()

    async def once(url: str, sent: float) -> None:
        answer = await prober.ask(url)
        found[url].append((sent - began, None if answer.body is None else loop.time() - sent, answer.problem))

    pause = every / len(urls)
    while not stopped.done():
        for url in urls:
            task = asyncio.create_task(once(url, loop.time()))
            running.add(task)
            task.add_done_callback(running.discard)
            await asyncio.sleep(pause)
    await asyncio.gather(*running)
    return {url: sorted(rows) for url, rows in found.items()}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(ask_all(float(sys.argv[1]), sys.argv[2:]))))
