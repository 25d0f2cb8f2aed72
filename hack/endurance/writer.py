"""
Write Services through the API server without a pause, and report the result of every write.

``python -m hack.endurance.writer KUBECONFIG`` writes until its standard input closes, then prints one JSON document, a
:class:`Record`. Each of its connections makes a Service, annotates it a few times, has one update refused, and deletes
it. A write has failed if its status is not the expected one; but the update that kavip should have refused is
unreviewed if it succeeds, for then no webhook saw it. A call that ``failurePolicy: Ignore`` let pass is in the counters
of the API server (:mod:`hack.endurance.metrics`).
"""

import asyncio
import base64
import json
import ssl
import sys
import tempfile
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import msgspec

from kavip import names

NAMESPACE: Final = "endurance"
GROUP: Final = "endurance/edge"
UPDATES: Final = 6  # of each Service, between its creation and its refusal
TIMEOUT: Final = 70.0  # the API server gives each webhook thirty seconds at most, and there are two of them
_TEXT: Final = 400


class WrongAnswer(msgspec.Struct, frozen=True):
    """A write that was not answered as it should have been; *at* is when it was answered (CLOCK_MONOTONIC)."""

    at: float
    verb: str
    text: str


class Record(msgspec.Struct, frozen=True):
    """
    When each write was answered (CLOCK_MONOTONIC, the same in every process).

    Among them are the *failures*, and the *unreviewed* ones: they succeeded although kavip would have refused them.
    """

    writes: list[float]
    failures: list[WrongAnswer] = []
    unreviewed: list[WrongAnswer] = []

    @property
    def wrong(self) -> list[WrongAnswer]:
        """The writes that were not answered as they should have been: both kinds."""
        return self.failures + self.unreviewed

    def __add__(self, later: "Record") -> "Record":
        return Record(self.writes + later.writes, self.failures + later.failures, self.unreviewed + later.unreviewed)

    def between(self, since: float, until: float) -> "Record":
        """The part that was answered in that time."""
        failures, unreviewed = (
            [each for each in found if since <= each.at < until] for found in (self.failures, self.unreviewed)
        )
        return Record([at for at in self.writes if since <= at < until], failures, unreviewed)


@dataclass(frozen=True, slots=True)
class Access:
    """The URL of the API server, and a TLS context with the administrator's certificate."""

    server: str
    tls: ssl.SSLContext

    @classmethod
    def read(cls, kubeconfig: Path) -> "Access":
        """Read a kubeconfig of the testbed: one cluster, one user, certificates inline."""
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        context = ssl.create_default_context(cadata=authority)
        with tempfile.NamedTemporaryFile() as file:
            for key in ("client-certificate-data", "client-key-data"):
                file.write(base64.b64decode(user[key]))
            file.flush()
            context.load_cert_chain(file.name)
        return cls(cluster["server"], context)


class Pace:
    """Limits the writes per second over all connections; a late write does not let later ones follow faster."""

    def __init__(self, rate: float) -> None:
        self._every, self._next = 1 / rate, 0.0

    async def turn(self) -> None:
        """Return when the next write is due."""
        now = time.monotonic()
        self._next = max(self._next + self._every, now)
        await asyncio.sleep(self._next - now)


class Writer:
    """One connection, and the results of its writes."""

    def __init__(self, number: int, session: aiohttp.ClientSession, pace: Pace, stopped: asyncio.Event) -> None:
        self._number, self._session, self._pace, self._stopped = number, session, pace, stopped
        self.writes: list[float] = []
        self.failures: list[WrongAnswer] = []
        self.unreviewed: list[WrongAnswer] = []

    async def run(self) -> None:
        """Write Services one after the other until *stopped* is set."""
        count = 0
        while not self._stopped.is_set():
            await self._one(f"w{self._number}-{count}")
            count += 1

    async def _one(self, name: str) -> None:
        if await self._write("POST", "", json=_service(name), wants=201) is None:
            return
        for step in range(UPDATES):
            await self._write("PATCH", name, data=_annotation("endurance/step", str(step)), wants=200)
        await self._write("PATCH", name, data=_annotation(names.SPREAD_ANNOTATION, "perhaps"), wants=422)
        await self._write("DELETE", name, wants=200)

    async def _write(self, verb: str, name: str, *, wants: int, **body: Any) -> Any:
        """The object in the answer; None if the status is not the expected one."""
        await self._pace.turn()
        headers = {"Content-Type": "application/merge-patch+json"} if "data" in body else {}
        url = f"/api/v1/namespaces/{NAMESPACE}/services{name and '/'}{name}"
        try:
            async with self._session.request(verb, url, headers=headers, **body) as answer:
                text = await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            self.writes.append(time.monotonic())
            self.failures.append(WrongAnswer(time.monotonic(), verb, repr(error)))
            return None
        self.writes.append(time.monotonic())
        if answer.status == wants:
            return json.loads(text)
        is_unreviewed = wants == HTTPStatus.UNPROCESSABLE_ENTITY and answer.ok
        found = self.unreviewed if is_unreviewed else self.failures
        found.append(WrongAnswer(time.monotonic(), verb, f"{answer.status} in place of {wants}: {_message(text)}"))
        return None


async def write(kubeconfig: Path, *, connections: int, rate: float) -> Record:
    """Write until standard input closes."""
    access = Access.read(kubeconfig)
    stopped = asyncio.Event()
    asyncio.get_running_loop().run_in_executor(None, sys.stdin.read).add_done_callback(lambda _: stopped.set())
    connector = aiohttp.TCPConnector(ssl=access.tls, limit=connections)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    async with aiohttp.ClientSession(access.server, connector=connector, timeout=timeout) as session:
        pace = Pace(rate)
        writers = [Writer(number, session, pace, stopped) for number in range(connections)]
        await asyncio.gather(*(each.run() for each in writers))
    return Record(
        writes=sorted(at for each in writers for at in each.writes),
        failures=sorted((wrong for each in writers for wrong in each.failures), key=lambda wrong: wrong.at),
        unreviewed=sorted((wrong for each in writers for wrong in each.unreviewed), key=lambda wrong: wrong.at),
    )


def _service(name: str) -> dict[str, Any]:
    """A Service that names its group, so each update calls the mutating and the validating webhook."""
    spec = {
        "type": "LoadBalancer",
        "loadBalancerClass": names.LOAD_BALANCER_CLASS,
        "allocateLoadBalancerNodePorts": False,
        "ports": [{"port": 80}],
    }
    metadata = {"name": name, "annotations": {names.GROUP_ANNOTATION: GROUP}}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _message(text: str) -> str:
    """The message of a Status; of any other body its first characters."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, LookupError, TypeError):
        return text[:_TEXT]


def _annotation(key: str, value: str) -> str:
    return json.dumps({"metadata": {"annotations": {key: value}}})


@click.command()
@click.argument("kubeconfig", type=click.Path(path_type=Path))
@click.option("--connections", default=8, show_default=True)
@click.option("--rate", default=100.0, show_default=True, help="Writes a second, over all connections.")
def main(kubeconfig: Path, connections: int, rate: float) -> None:
    """Write Services until standard input closes."""
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(write(kubeconfig, connections=connections, rate=rate))))


if __name__ == "__main__":
    main()
