"""An artificial audit log: lines as kube-apiserver 1.35 writes them; each test changes one."""

import itertools
from datetime import UTC, datetime
from typing import Any

from hack.faults import facts
from hack.faults.checker import Checker, Findings

KAVIP = "kavip/0.5"


class FakeAuditLog:
    """Writes one line for each call; a second passes between two."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._objects: dict[str, dict[str, Any]] = {}
        self._versions = itertools.count(100)
        self.clock = 1_790_000_000.0

    def pool(self, name: str = "edge", *addresses: str, **spec: Any) -> None:
        """A user writes a pool, by default with one address."""
        body = {"metadata": {"name": name}, "spec": {"addresses": list(addresses or ["192.0.2.1-192.0.2.1"]), **spec}}
        self._line("vippools", name, "create", {**body, "status": self._status(name)})

    def service(self, name: str, *, notes: dict[str, str] | None = None, born: int = 0, **spec: Any) -> None:
        """A user creates or edits a Service."""
        settled = {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"port": 80}], **spec}
        key = f"shop/{name}"
        created = f"2026-01-01T00:00:{born:02}Z"
        metadata = {"namespace": "shop", "name": name, "creationTimestamp": created, "annotations": notes or {}}
        verb = "update" if key in self._objects else "create"
        self._line("services", key, verb, {"metadata": metadata, "spec": settled, "status": self._status(key)})

    def assign(self, name: str, *addresses: str, reason: str = "Assigned", agent: str = KAVIP) -> None:
        """kavip writes a status."""
        key = f"shop/{name}"
        condition = {"type": "kavip.io/AddressAssigned", "reason": reason, "lastTransitionTime": str(self.clock)}
        status = {"loadBalancer": {"ingress": [{"ip": each} for each in addresses]}, "conditions": [condition]}
        since = self._objects[key]["metadata"]["resourceVersion"]
        self._line("services", key, "patch", {**self._objects[key], "status": status}, part="status", agent=agent)
        self.lines[-1]["requestObject"] = {"metadata": {"resourceVersion": since}, "status": status}

    def assign_without_response(self, name: str, *addresses: str, reason: str = "Assigned") -> None:
        """As :meth:`assign`, but kavip is stopped before the response: the write is done, and logged as failed."""
        self.assign(name, *addresses, reason=reason)
        self.lines[-1] |= {"responseStatus": {"code": 504}, "responseObject": {"kind": "Status"}}

    def count(self, assigned: int, *, pool: str = "edge", agent: str = KAVIP) -> None:
        """kavip writes a pool's status."""
        status = {"ipv4": {"assigned": assigned}}
        self._line("vippools", pool, "patch", {**self._objects[pool], "status": status}, part="status", agent=agent)

    def delete(self, name: str) -> None:
        """A user deletes a Service; the answer names no version."""
        removed = self._objects.pop(f"shop/{name}")
        answer = {"kind": "Status", "details": {"name": name, "uid": removed["metadata"]["uid"]}}
        self._append("services", f"shop/{name}", "delete", answer)

    def check(self) -> Findings:
        """The verdict of the checker."""
        existing_objects = [{**each, "kind": "Service"} for key, each in self._objects.items() if "/" in key]
        return Checker().replay(facts.complete(list(facts.parse(self.lines)), existing_objects))

    def delete_pool(self, pool: str) -> None:
        """A user deletes a pool."""
        removed = self._objects.pop(pool)
        self._append("vippools", pool, "delete", {"kind": "Status", "details": {"uid": removed["metadata"]["uid"]}})

    def _status(self, key: str) -> dict[str, Any]:
        status: dict[str, Any] = self._objects.get(key, {}).get("status", {})
        return status

    def _line(
        self, kind: str, key: str, verb: str, body: dict[str, Any], *, part: str = "", agent: str = "users"
    ) -> None:
        metadata = {**body["metadata"], "uid": f"uid-{key}", "resourceVersion": str(next(self._versions))}
        self._objects[key] = {**body, "metadata": metadata}
        self._append(kind, key, verb, self._objects[key], part=part, agent=agent)

    def _append(
        self, kind: str, key: str, verb: str, answer: dict[str, Any], *, part: str = "", agent: str = "users"
    ) -> None:
        self.clock += 1
        namespace, _, name = key.rpartition("/")
        self.lines.append(
            {
                "stage": "ResponseComplete",
                "verb": verb,
                "userAgent": agent,
                "user": {"username": agent.partition("/")[0]},
                "objectRef": {"resource": kind, "namespace": namespace, "name": name, "subresource": part},
                "responseStatus": {"code": 200},
                "responseObject": answer,
                "requestReceivedTimestamp": _time(self.clock),
                "stageTimestamp": _time(self.clock + 0.25),
            }
        )


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
