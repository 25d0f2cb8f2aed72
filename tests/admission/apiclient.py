"""A minimal HTTP client of the API server: the requests that kubectl sends, without a process for each."""

import json
import ssl
from dataclasses import dataclass, field
from http.client import HTTPSConnection
from time import monotonic
from typing import Any, Final
from urllib.parse import urlencode

from hack.refusals import Manifest
from hack.testbed.controlplane import ADMINS, ControlPlane

_PLURALS: Final = {"Service": "services", "KeepalivedGroup": "keepalivedgroups", "VIPPool": "vippools"}
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
STEPS: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
_IDLE: Final = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Answer:
    """A response of the API server."""

    code: int
    body: Any

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Fields and messages of a refusal, in their order."""
        details = self.body.get("details") or {}
        return [(each.get("field", ""), each["message"]) for each in details.get("causes") or ()]


@dataclass(slots=True)
class ApiClient:
    """One connection to *plane* as its administrator."""

    plane: ControlPlane
    _connection: HTTPSConnection = field(init=False)
    _used: float = 0.0

    def __post_init__(self) -> None:
        """Issue the credentials; the first request opens the connection."""
        trust = ssl.create_default_context(cadata=self.plane.authority.pem.decode())
        trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        pair = self.plane.authority.issue("asking", ADMINS)
        trust.load_cert_chain(*pair.write(self.plane.state, "asking"))
        address = self.plane.address
        self._connection = HTTPSConnection(address.host, address.port, context=trust, timeout=60)

    def request(
        self, method: str, path: str, body: object = None, *, kind: str = "application/json", **query: str
    ) -> Answer:
        """Send one request."""
        target = f"{path}?{urlencode(query)}" if query else path
        if monotonic() - self._used > _IDLE:
            self._connection.close()  # the API server may have closed it; the next request opens another
        self._connection.request(
            method, target, body=json.dumps(body) if body else None, headers={"Content-Type": kind}
        )
        answer = self._connection.getresponse()
        found = Answer(answer.status, json.loads(answer.read()))
        self._used = monotonic()
        return found

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def collection_path(manifest: Manifest) -> str:
    """The path at which objects like *manifest* are created."""
    version, namespace = manifest["apiVersion"], manifest["metadata"].get("namespace")
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/{f'namespaces/{namespace}/' if namespace else ''}{_PLURALS[manifest['kind']]}"


def object_path(manifest: Manifest) -> str:
    """The path of the object *manifest*."""
    return f"{collection_path(manifest)}/{manifest['metadata']['name']}"
