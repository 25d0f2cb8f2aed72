"""Random requests of users: Services, pools, and edits of both. Pure."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hack.faults.rules import ADDRESSES, CLASS, POOL, SHARING

NAMESPACES: Final = tuple(f"team{number}" for number in range(4))
_STACKS: Final[list[dict[str, Any]]] = [
    {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]},
    {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]},
    {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4", "IPv6"]},
    {"ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv6", "IPv4"]},
    {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]},
]
_ODDS: Final = (45, 15, 15, 10, 15)
_FEWEST: Final = 4  # addresses of a pool


@dataclass(frozen=True, slots=True)
class Demand:
    """The requests of *services* Services; their pools hold fewer addresses than are requested."""

    services: int
    rng: random.Random

    # --- pools ----------------------------------------------------------------------------------------------------
    def pools(self) -> dict[str, dict[str, Any]]:
        """Name -> spec, at the beginning."""
        size = self._size
        few = max(_FEWEST, size // 3)
        return {
            "alpha": {"addresses": [_four(0, size), _six(0, size)], "priority": 10},
            "beta": {"addresses": [_four(1, size)], "priority": 20},
            "gamma": {"addresses": [_six(2, size)], "priority": 30},
            "named": {"addresses": [_four(3, few), _six(3, few)], "autoAssign": False},
            "extra": self.extra(),
        }

    def extra(self) -> dict[str, Any]:
        """The spec of the pool that is deleted and created again."""
        few = max(_FEWEST, self._size // 6)
        return {"addresses": [_four(5, few), _six(5, few)], "priority": 15}

    def pool_edit(self) -> tuple[str, dict[str, Any] | None]:
        """A pool and a merge patch of its spec; None deletes the pool or creates it again."""
        size = self._size
        few = max(1, size // 8)
        alpha = [_four(0, size), _six(0, size)]
        choice: list[tuple[str, dict[str, Any] | None]] = [
            ("alpha", {"addresses": [*alpha, _four(4, few)]}),
            ("alpha", {"addresses": alpha}),
            ("beta", {"exclude": [_four(1, few)]}),
            ("beta", {"exclude": None, "priority": self.rng.choice((5, 20, 40))}),
            ("gamma", {"autoAssign": self.rng.choice((True, False))}),
            ("extra", None),
        ]
        return self.rng.choice(choice)

    @property
    def _size(self) -> int:
        return max(_FEWEST, self.services // 8)

    # --- Services -------------------------------------------------------------------------------------------------
    def service(self, number: int) -> dict[str, Any]:
        """A new Service."""
        rng = self.rng
        spec: dict[str, Any] = {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": False,
            "ports": [{"port": self._port()}],
            "selector": {"app": rng.choice(("one", "two"))},
            **rng.choices(_STACKS, _ODDS)[0],
        }
        if rng.random() < 0.08:
            spec["externalTrafficPolicy"] = "Local"
        if (luck := rng.random()) < 0.2:
            spec["loadBalancerClass"] = CLASS if luck < 0.17 else "example.com/other"
        notes = {**self._sharing(0.2), **self._pool(0.12), **self._wishes(0.08)}
        metadata = {"name": f"s{number}", "namespace": rng.choice(NAMESPACES), "annotations": notes}
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}

    def service_edit(self, made: Mapping[str, Any]) -> dict[str, Any]:
        """A merge patch for a Service that was created as *made*."""
        rng = self.rng
        kinds: list[dict[str, Any]] = [
            {"spec": {"ports": [{"port": self._port()}]}},
            _notes({SHARING: None, **self._sharing(0.6)}),
            _notes({ADDRESSES: None, **self._wishes(0.5)}),
            _notes({POOL: None, **self._pool(0.5)}),
            _notes({"example.com/note": str(rng.randrange(100))}),
        ]
        if made["spec"]["ipFamilies"] != ["IPv6"]:
            policy = rng.choice(("SingleStack", "PreferDualStack", "RequireDualStack"))
            kinds.append({"spec": {"ipFamilyPolicy": policy}})
        if "loadBalancerClass" not in made["spec"]:  # with a class the API server refuses to change the type
            kinds.append({"spec": {"type": "ClusterIP", "allocateLoadBalancerNodePorts": None}})
            kinds.append({"spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False}})
        return rng.choice(kinds)

    def _port(self) -> int:
        return self.rng.choice((53, 80, 443, 8080, self.rng.randrange(1024, 60000)))

    def _sharing(self, odds: float) -> dict[str, str]:
        return {SHARING: f"key{self.rng.randrange(6)}"} if self.rng.random() < odds else {}

    def _pool(self, odds: float) -> dict[str, str]:
        choice = ("named", "named", "alpha", "extra", "nowhere")
        return {POOL: self.rng.choice(choice)} if self.rng.random() < odds else {}

    def _wishes(self, odds: float) -> dict[str, str]:
        """Explicitly requested addresses of the pools alpha and named, most of them already assigned."""
        if self.rng.random() >= odds:
            return {}
        net, offset = self.rng.choice((0, 0, 3)), self.rng.randrange(self._size)
        both = [_four(net, 1, offset).partition("-")[0], _six(net, 1, offset).partition("-")[0]]
        return {ADDRESSES: self.rng.choice((both[0], both[0], both[1], ",".join(both)))}


def _notes(notes: Mapping[str, str | None]) -> dict[str, Any]:
    return {"metadata": {"annotations": dict(notes)}}


def _four(net: int, size: int, offset: int = 0) -> str:
    last = offset + size - 1
    return f"10.{64 + net}.{offset >> 8}.{offset & 255}-10.{64 + net}.{last >> 8}.{last & 255}"


def _six(net: int, size: int, offset: int = 0) -> str:
    return f"2001:db8:{net}::{offset:x}-2001:db8:{net}::{offset + size - 1:x}"
