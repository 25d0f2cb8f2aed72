"""
The writes of a controller, made again by a bare Python client: ``python -m bench.replay KUBECONFIG``.

It reads the writes of each turn from a line of stdin, as JSON, and prints the CPU seconds of a turn. Nothing is stored
(dryRun), so what a running controller sees does not change, and the API server answers as it answered the controller.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bench.bare import Bare, connected
from bench.site import MERGE, STRATEGIC
from hack.testbed.audit import AuditLog, Event

VERBS: Final = {"create": "POST", "update": "PUT", "patch": "PATCH"}
PAUSE: Final = 0.5  # seconds between two turns, as between the events of a controller
TIMES: Final = 4  # that each turn is repeated: it takes milliseconds, and their mean varies by a tenth
_APPLY: Final = "application/apply-patch+yaml"

Call = tuple[str, str, Any, str]
"""Method, path, body and content type."""


def writes(log: AuditLog, agent: str) -> list[Event]:
    """The successful writes in *log* whose User-Agent begins with *agent*, without those of a lease."""
    return [
        each
        for each in log
        if each.verb in VERBS and each.code < 300 and each.agent.startswith(agent) and each.resource != "leases"
    ]


def calls(events: Iterable[Event]) -> list[Call]:
    """The calls that make the writes *events* again."""
    return [_call(each) for each in events]


async def cost(kubeconfig: Path, turns: list[list[Call]]) -> float:
    """The mean CPU seconds of a turn, of a client that has carried out the first turn once before."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.replay", str(kubeconfig)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate("\n".join(map(json.dumps, (turns[0], *turns * TIMES))).encode())
    assert process.returncode == 0
    return float(out)


def _call(event: Event) -> Call:
    body, uri = event.body, event.uri + ("&" if "?" in event.uri else "?") + "dryRun=All"
    body.get("metadata", {}).pop("resourceVersion", None)  # another one is there by now
    if event.verb == "create":  # it exists now
        body["metadata"]["name"] += ".again"
    kind = _APPLY if "force=" in event.uri else STRATEGIC if event.resource == "services" else MERGE
    return VERBS[event.verb], uri, body, "application/json" if event.verb != "patch" else kind


async def _main(kubeconfig: str) -> None:
    first, *turns = [json.loads(line) for line in sys.stdin]
    total = 0.0
    async with connected(Path(kubeconfig)) as bare:
        for number, turn in enumerate((first, *turns)):
            await asyncio.sleep(PAUSE)
            await _renew(bare, turn)
            began = time.process_time()
            for call in turn:
                await bare.send(*call)
            total += time.process_time() - began if number else 0.0
    print(total / len(turns))


async def _renew(bare: Bare, turn: Iterable[Call]) -> None:
    """Put the current resourceVersion into what replaces an object."""
    for method, uri, body, _ in turn:
        if method == "PUT":
            body["metadata"]["resourceVersion"] = (await bare.send("GET", uri))["metadata"]["resourceVersion"]


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
