"""RBAC rights as values: those that roles grant, and those that an audit log shows in use."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hack.testbed.audit import Event
from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from tests.support import manifests

_WRITES_NEW = frozenset({"create"})


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """*verb* on *resource* (``pods``, ``services/status``) of an API *group*, in a *namespace*, for a *name*."""

    group: str
    resource: str
    verb: str
    namespace: str = ""
    name: str = ""

    def covers(self, other: "Right") -> bool:
        """Whether this right permits *other*."""
        same = (self.group, self.resource, self.verb) == (other.group, other.resource, other.verb)
        return same and self.namespace in ("", other.namespace) and self.name in ("", other.name)

    def __str__(self) -> str:
        """The text in failures."""
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}.{self.group or 'core'} {self.name}{where}".rstrip()


def wait_bound(plane: ControlPlane, account: str, *, leads: bool = True) -> None:
    """
    Wait until the API server permits *account* what the chart grants: it reads RBAC objects by watches.

    The account *leads* if it has a Lease; otherwise it has the CA.
    """
    own = f"--namespace={manifests.NAMESPACE}"
    for action in (
        ("list", "vippools.kavip.io"),
        ("list", "services", "-A"),
        ("create", "leases.coordination.k8s.io" if leads else "secrets", own),
    ):
        may = ("auth", "can-i", *action, f"--as={account}")

        def holds(may: tuple[str, ...] = may) -> bool:
            return not plane.kubectl(*may, check=False).returncode

        wait_for(" ".join(may), holds, timeout=150)


def granted(roles: Iterable[dict[str, Any]]) -> Iterator[Right]:
    """Every single right of *roles*; a Role is limited to its namespace, a ClusterRole is not."""
    for role in roles:
        namespace = role["metadata"].get("namespace", "")
        for rule in role["rules"]:
            yield from (
                Right(group, resource, verb, namespace, name)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for name in rule.get("resourceNames", [""])
            )


def used(events: Iterable[Event]) -> set[Right]:
    """The rights that the requests *events* needed; a server-side apply that creates an object needs two."""
    found = set()
    for event in events:
        resource = f"{event.resource}/{event.subresource}" if event.subresource else event.resource
        verbs = {event.verb} | (_WRITES_NEW if event.verb == "patch" and event.code == 201 else set())
        found |= {Right(group_of(event.uri), resource, verb, event.namespace, event.name) for verb in verbs}
    return found


def group_of(uri: str) -> str:
    """The API group in the URL of a request."""
    match = re.match(r"/apis/([^/?]+)/", uri)
    return match[1] if match else ""
