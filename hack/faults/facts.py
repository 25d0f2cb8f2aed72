"""
The audit log as facts: each successful write of a Service or pool, in the order of its version.

A resourceVersion is a revision of the API server's storage, so it puts the writes of all kinds into one order. A
deletion has none: it is placed before the first write that was requested after it. This allows a hand-over of an
address within the few milliseconds of a DELETE, and no more.

A write whose sender is stopped may succeed and be logged as failed. Its result appears in the next write of another
client, or at the end.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

KINDS: Final = ("services", "vippools")
_WRITES: Final = ("create", "update", "patch", "delete")


@dataclass(frozen=True, slots=True)
class Fact:
    """
    One write: *made* is the object that came of it, None where it is gone; *at* is when it was answered.

    *since*: the version that it was conditional on, 0 where it was not.
    """

    kind: str
    key: str
    verb: str
    part: str
    agent: str
    user: str
    code: int
    requested_at: float
    at: float
    made: dict[str, Any] | None
    uid: str
    since: int = 0

    @property
    def version(self) -> int:
        """Its place in the order of all writes; 0 where it has none of its own."""
        return int(self.made["metadata"]["resourceVersion"]) if self.made else 0

    @property
    def is_kavips(self) -> bool:
        """Whether kavip wrote it."""
        return self.agent.startswith("kavip/")


def read(path: Path, *, existing_objects: Iterable[dict[str, Any]] = ()) -> list[Fact]:
    """The successful writes in the audit log at *path*, in order; *existing_objects* are those at the end."""
    return complete(requests(path), existing_objects)


def complete(found: Sequence[Fact], existing_objects: Iterable[dict[str, Any]]) -> list[Fact]:
    """The successful writes of *found* in order, and those without a response whose result is *existing_objects*."""
    return ordered([*found, *_unacknowledged(found, existing_objects)])


def _unacknowledged(found: Sequence[Fact], existing_objects: Iterable[dict[str, Any]]) -> Iterator[Fact]:
    reported = {fact.version for fact in found if fact.made}
    failed = {(fact.kind, fact.key): fact for fact in found if fact.code >= HTTPStatus.INTERNAL_SERVER_ERROR}
    for each in existing_objects:
        metadata, kind = each["metadata"], f"{each['kind']}s".lower()
        key = "/".join(filter(None, (metadata.get("namespace", ""), metadata["name"])))
        if int(metadata["resourceVersion"]) not in reported and (fact := failed.get((kind, key))) is not None:
            yield replace(fact, code=int(HTTPStatus.OK), made=each, uid=metadata["uid"])


def requests(path: Path) -> list[Fact]:
    """Every requested write, including refused ones, in the order of the answers."""
    with path.open("rb") as file:
        return list(parse(json.loads(line) for line in file if line.endswith(b"\n")))


def parse(lines: Iterable[dict[str, Any]]) -> Iterator[Fact]:
    """The writes of Services and pools among *lines*, refused ones too."""
    for line in lines:
        about = line.get("objectRef") or {}
        if about.get("resource") not in KINDS or line["verb"] not in _WRITES or line["stage"] != "ResponseComplete":
            continue
        answer = line.get("responseObject") or {}
        code = line.get("responseStatus", {}).get("code", 0)
        metadata = answer.get("metadata") or {}
        is_made = code < 300 and line["verb"] != "delete"
        yield Fact(
            kind=about["resource"],
            key="/".join(filter(None, (about.get("namespace", ""), metadata.get("name") or about.get("name", "")))),
            verb=line["verb"],
            part=about.get("subresource", ""),
            agent=line.get("userAgent", ""),
            user=line.get("user", {}).get("username", ""),
            code=code,
            requested_at=moment(line["requestReceivedTimestamp"]),
            at=moment(line["stageTimestamp"]),
            made=answer if is_made else None,
            uid=metadata.get("uid") or (answer.get("details") or {}).get("uid", ""),
            since=_since(line.get("requestObject") or {}),
        )


def ordered(facts: Iterable[Fact]) -> list[Fact]:
    """The successful ones of *facts*, as they happened."""
    done = [fact for fact in facts if fact.code < 300]
    made = sorted((fact for fact in done if fact.made), key=lambda fact: (fact.version, not fact.is_kavips, fact.at))
    # the response to an edit without a change has the current version: such an edit does not count
    versions = [0, *(fact.version for fact in made)]
    made = [fact for fact, before in zip(made, versions, strict=False) if fact.is_kavips or fact.version != before]
    gone = sorted((fact for fact in done if not fact.made), key=lambda fact: fact.requested_at)
    last = {fact.uid: place for place, fact in enumerate(made)}
    result: list[Fact] = []
    for place, fact in enumerate(made):
        while gone and gone[0].requested_at <= fact.requested_at and last.get(gone[0].uid, -1) < place:
            result.append(gone.pop(0))
        result.append(fact)
    return result + gone


def _since(body: Mapping[str, Any]) -> int:
    return int((body.get("metadata") or {}).get("resourceVersion") or 0)


def moment(text: str) -> float:
    """Seconds since the epoch."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
