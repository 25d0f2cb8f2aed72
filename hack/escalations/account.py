"""One account of kavip: its real token, and requests with it. Every write is a dry run, so attempts do not add up."""

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hack.testbed.controlplane import ControlPlane

RBAC: Final = "RBAC"
_RBAC_MESSAGES: Final = ("cannot ", "attempting to grant RBAC permissions not currently held")
_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '([\w-]+)'")


@dataclass(frozen=True, slots=True)
class Request:
    """*verb* of HTTP, *path* with its query, and for writes a *body* of *content* type."""

    verb: str
    path: str
    body: Any = None
    content: str = "application/json"
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The HTTP status, and the message of the API server."""

    code: int
    message: str

    @property
    def is_accepted(self) -> bool:
        """Whether the request succeeded."""
        return self.code < 300

    @property
    def refused_by(self) -> str:
        """RBAC, or the name of the policy; otherwise the whole answer."""
        if self.code in (403, 422) and (policy := _POLICY.search(self.message)):
            return policy[1]
        if self.code == 403 and any(words in self.message for words in _RBAC_MESSAGES):
            return RBAC
        return f"{self.code} {self.message}"


class Account:
    """The ServiceAccount *name* in *namespace*."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str) -> None:
        """Let the API server issue a token (TokenRequest)."""
        self.name = name
        self._server = plane.server
        self._token = plane.kubectl("create", "token", name, f"--namespace={namespace}").stdout.strip()
        context = ssl.create_default_context(cadata=plane.authority.pem.decode())
        proxy, https = urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(proxy, https)

    def send(self, request: Request) -> Answer:
        """Send *request*."""
        url = f"{self._server}{request.path}"
        if request.verb != "GET":
            url += f"{'&' if '?' in url else '?'}dryRun=All"
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": request.content, **(request.headers or {})}
        data = None if request.body is None else json.dumps(request.body).encode()
        sent = urllib.request.Request(url, data=data, headers=headers, method=request.verb)
        try:
            with self._opener.open(sent, timeout=60) as answer:
                return Answer(answer.status, "")
        except urllib.error.HTTPError as error:
            return Answer(error.code, _message(error.read()))


def apply(path: str, body: Mapping[str, Any]) -> Request:
    """Server-side apply, as kavip does it."""
    name = body["metadata"]["name"]
    return Request("PATCH", f"{path}/{name}?fieldManager=kavip&force=true", body, "application/apply-patch+yaml")


def merge(path: str, patch: Mapping[str, Any]) -> Request:
    """A merge patch."""
    return Request("PATCH", path, patch, "application/merge-patch+json")


def replace(path: str, changes: list[dict[str, Any]]) -> Request:
    """A JSON patch."""
    return Request("PATCH", path, changes, "application/json-patch+json")


def create(path: str, body: Mapping[str, Any]) -> Request:
    """A new object."""
    return Request("POST", path, body)


def _message(answer: bytes) -> str:
    try:
        return str(json.loads(answer).get("message", ""))
    except ValueError:
        return answer.decode(errors="replace")
