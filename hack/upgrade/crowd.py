"""
Two groups with many VIPs during an upgrade: what they run, and which nodes have each VIP.

The pods of the first group are replaced with kavip's; those of the second stay, as its ``updateStrategy`` is OnDelete.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from hack.demo.session import Session
from hack.endurance.endurancerun import object_of
from hack.testbed.process import wait_for
from hack.upgrade.presence import Presence, addresses, watching
from kavip import names
from kavip.vrrp.packed import in_full, is_packed
from kavip.vrrp.running import running_instances

NAMESPACE: Final = "crowd"
REPLACED, KEPT = "replaced", "kept"
"""The names of the groups."""
SHARE: Final = 16
"""One in this number of VIPs is in the group that keeps its pods."""
EACH: Final = 32
"""VIPs of one Service: its address, and externalIPs."""
PATIENCE: Final = 900.0
MANY: Final = 2_000
INTERVAL: Final = 1_000
"""
Milliseconds between two adverts of groups with more than :data:`MANY` VIPs: keepalived sends none while it adds them.
"""
_EXTERNAL: Final = "198.19.{}.{}"
_POOL: Final = "198.18.128.0/17"


class Crowd:
    """The groups on the cluster of *session*, with *vips* VIPs in all."""

    def __init__(self, session: Session, vips: int) -> None:
        self._session = session
        self._services = -(-vips // EACH)
        self.vips: Mapping[str, frozenset[str]] = {}

    def create(self) -> None:
        """Create groups and Services; wait until each VIP is on one node."""
        pool = f"{names.KAVIP_GROUP}/{names.VERSION}", names.VIP_POOL
        groups = [f"{NAMESPACE}/{each}" for each in (REPLACED, KEPT)]
        group = f"{names.REDHATCOP_GROUP}/{names.VERSION}", names.KEEPALIVED_GROUP
        interval = {"advertIntervalMilliseconds": INTERVAL} if self._services * EACH > MANY else {}
        spec = {"interface": "eth0", "segment": "default", "instances": {"mode": "Shared"}, **interval}
        kept = {"updateStrategy": {"type": "OnDelete"}}
        objects = [
            object_of("v1", "Namespace", name=NAMESPACE),
            object_of(*pool, name=NAMESPACE) | {"spec": {"addresses": [_POOL], "groups": groups}},
            object_of(*group, name=REPLACED, namespace=NAMESPACE) | {"spec": spec},
            object_of(*group, name=KEPT, namespace=NAMESPACE) | {"spec": {**spec, **kept}},
        ]
        self._session.cluster.apply(*objects)
        wait_for("both groups are accepted", self._are_accepted, timeout=PATIENCE, interval=1)
        self._session.cluster.apply(*map(self._service, range(self._services)))
        wait_for("each VIP is on one node", self._is_up, timeout=PATIENCE, interval=2)

    def router_ids(self) -> dict[str, dict[str, int]]:
        """The VRID of each instance, by group."""
        return {name: _router_ids(self._text(name)) for name in (REPLACED, KEPT)}

    def describe_text(self) -> str:
        """The notation and the size of the larger group's text."""
        text = self._text(REPLACED)
        return f"{len(text):,} bytes{', packed' if is_packed(text) else ''}"

    def images_that_stay(self) -> list[str]:
        """The images of the pods that are not replaced."""
        pods = self._session.get("pods", "-n", NAMESPACE, "-l", f"{names.GROUP_LABEL}={KEPT}")["items"]
        return sorted({each["image"] for pod in pods for each in pod["spec"]["containers"]})

    def watching(self) -> AbstractContextManager[Mapping[str, Presence]]:
        """Look at all kernels again and again during the block; yields what is seen, by group."""
        return watching(self._session.cluster.nodes, self.vips)

    def _service(self, number: int) -> dict[str, Any]:
        first = number * (EACH - 1)
        external = [_EXTERNAL.format(each // 250, each % 250 + 1) for each in range(first, first + EACH - 1)]
        notes = {names.GROUP_ANNOTATION: f"{NAMESPACE}/{_group_of(number)}"}
        found = object_of("v1", names.SERVICE, name=f"s{number}", namespace=NAMESPACE, annotations=notes)
        spec = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}
        return found | {"spec": {**spec, "externalIPs": external}}

    def _are_accepted(self) -> bool:
        condition = self._session.condition
        found = {condition("keepalivedgroup", f"{NAMESPACE}/{each}", "Accepted")[0] for each in (REPLACED, KEPT)}
        return found == {"True"}

    def _is_up(self) -> bool:
        services = self._session.get("services", "-n", NAMESPACE)["items"]
        found: dict[str, set[str]] = {REPLACED: set(), KEPT: set()}
        for each in services:
            ingress = each.get("status", {}).get("loadBalancer", {}).get("ingress") or ()
            group = each["metadata"]["annotations"][names.GROUP_ANNOTATION].partition("/")[2]
            found[group] |= {*each["spec"]["externalIPs"], *(one["ip"] for one in ingress)}
        self.vips = {name: frozenset(vips) for name, vips in found.items()}
        held = [addresses(node) for node in self._session.cluster.nodes]
        wanted = frozenset().union(*self.vips.values())
        return (
            len(wanted) == self._services * EACH
            and wanted <= frozenset().union(*held)
            and not any(one & other & wanted for at, one in enumerate(held) for other in held[:at])
        )

    def _text(self, group: str) -> str:
        found = self._session.get("configmap", group, "-n", NAMESPACE) or {}
        return str(found.get("data", {}).get(names.CONFIG_KEY, ""))


def _group_of(number: int) -> str:
    return REPLACED if (number + 1) % SHARE else KEPT


def _router_ids(text: str) -> dict[str, int]:
    return {name: each.identity.router_id for name, each in running_instances(in_full(text)).items()}
