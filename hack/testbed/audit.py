"""The API server's audit log, for tests: requests with their users, and responses.

The API server writes the log before it sends the response, so a test with a response finds the request here. Only
writes have bodies. Requests of system components are not recorded, because no test needs them.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_BLOCK: Final = 65_536
SYSTEM = [
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "system:kube-proxy",
]
POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": SYSTEM},
        {"level": "None", "userGroups": ["system:nodes", "system:serviceaccounts:kube-system"]},
        {"level": "None", "nonResourceURLs": ["/readyz*", "/livez*", "/healthz*", "/openapi/*", "/api*", "/version"]},
        {"level": "Request", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "Metadata"},
    ],
}


def with_response_bodies(*resources: tuple[str, str]) -> dict[str, Any]:
    """
    An audit policy that also keeps the response body of each write of *resources*, (group, plural), subresources
    included.
    """
    rules = [
        {
            "level": "RequestResponse",
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [{"group": group, "resources": [plural, f"{plural}/*"]}],
        }
        for group, plural in resources
    ]
    return {**POLICY, "rules": [*rules, *POLICY["rules"]]}


@dataclass(frozen=True, slots=True)
class Event:
    """One request. A watch appears twice: when it starts and when it ends."""

    verb: str
    user: str
    agent: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    stage: str
    uri: str
    received: str  # time of receipt, by the API server's clock
    body: Any  # JSON as it was sent; None for reads


class AuditLog:
    """The audit log of one API server. `mark()` skips everything before this moment."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def mark(self) -> None:
        """Let `events` start here. A line that the server is writing now counts as later."""
        self._offset = end_of_last_line(self.path) if self.path.exists() else 0

    def take(self) -> list[Event]:
        """The requests since the mark, which moves behind the last of them."""
        lines = list(self.lines())
        self._offset += sum(map(len, lines))
        return [_event(json.loads(line)) for line in lines]

    def events(self, **wanted: object) -> list[Event]:
        """The requests since the mark whose attributes equal the given ones: `events(verb="patch", user="kavip")`."""
        return [event for event in self if all(getattr(event, key) == value for key, value in wanted.items())]

    def __iter__(self) -> Iterator[Event]:
        return (_event(json.loads(line)) for line in self.lines())

    def lines(self) -> Iterator[bytes]:
        """The lines since the mark, as the server wrote them."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):  # else the server is still writing it
                    yield line


def end_of_last_line(path: Path) -> int:
    """The offset behind the last newline of the file at *path*: its size, or less while a line is being written."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


def _event(line: dict[str, Any]) -> Event:
    ref = line.get("objectRef", {})
    return Event(
        verb=line["verb"],
        user=line["user"].get("username", ""),
        agent=line.get("userAgent", ""),
        resource=ref.get("resource", ""),
        subresource=ref.get("subresource", ""),
        namespace=ref.get("namespace", ""),
        name=ref.get("name", ""),
        code=line.get("responseStatus", {}).get("code", 0),
        stage=line["stage"],
        uri=line["requestURI"],
        received=line.get("requestReceivedTimestamp", ""),
        body=line.get("requestObject"),
    )
