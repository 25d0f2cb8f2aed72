"""Status writes of Services in the API server's audit log, with their User-Agent and times."""

import asyncio
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean

from hack.testbed.audit import end_of_last_line

PATIENCE = 300.0


@dataclass(frozen=True, slots=True)
class Write:
    """A successful status write: its Service, *agent* (User-Agent), times since the epoch, and *size* of its body."""

    namespace: str
    name: str
    agent: str
    began: float
    ended: float
    size: int


class Writes:
    """The status writes from now on. They are parsed only on request, because parsing would disturb a measurement."""

    def __init__(self, log: Path) -> None:
        """Begin at the end of *log*."""
        self._log, self._offset = log, end_of_last_line(log)
        self._lines: list[bytes] = []

    def by(self, agent: str) -> list[Write]:
        """The writes so far whose User-Agent begins with *agent*."""
        self._read()
        found = (_write(json.loads(line)) for line in self._lines)
        return [each for each in found if each and each.agent.startswith(agent)]

    async def until(self, agent: str, count: int) -> None:
        """Return as soon as *agent* has written *count* times."""
        mark = f'"userAgent":"{agent}'.encode()
        async with asyncio.timeout(PATIENCE):
            while sum(mark in line for line in self._lines) < count:
                await asyncio.sleep(0.1)
                self._read()

    def _read(self) -> None:
        with self._log.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):  # the server is still writing it
                    break
                self._offset += len(line)
                if b'"subresource":"status"' in line and b'"resource":"services"' in line:
                    self._lines.append(line)


def duration(writes: list[Write]) -> float:
    """The seconds from the receipt of the first write to the response to the last."""
    return max(each.ended for each in writes) - min(each.began for each in writes)


def size(writes: list[Write]) -> int:
    """The mean size of a body, in bytes of JSON."""
    return round(mean(each.size for each in writes))


def _write(line: dict[str, object]) -> Write | None:
    about, answer = line.get("objectRef"), line.get("responseStatus")
    assert isinstance(about, dict)
    assert isinstance(answer, dict)
    if about.get("resource") != "services" or answer.get("code") != 200:
        return None
    body = json.dumps(line.get("requestObject"), separators=(",", ":"))
    began, ended = (_seconds(line[name]) for name in ("requestReceivedTimestamp", "stageTimestamp"))
    return Write(about["namespace"], about["name"], str(line.get("userAgent", "")), began, ended, len(body))


def _seconds(text: object) -> float:
    return datetime.fromisoformat(str(text)).timestamp()
