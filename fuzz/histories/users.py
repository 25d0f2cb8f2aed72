"""
Strategies for the objects of users and administrators: Services, pools, nodes and groups that conflict often.

There are few addresses and few names, so that pools are full, requests collide and sharing keys repeat.
"""

from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Node
from kavip.api.group import GroupVirtualIP, KeepalivedGroup
from kavip.api.meta import LabelSelector
from kavip.api.pool import Reservation, VIPPool
from kavip.api.service import Service
from kavip.snapshot import Object
from tests.support import build

GROUP: Final = "lb/edge"
SPACES: Final = ("a", "b")
KEYS: Final = tuple(f"{space}/{name}" for space in SPACES for name in ("p", "q", "r", "s"))
ADDRESSES: Final = ("192.0.2.0", "192.0.2.1", "192.0.2.2", "198.51.100.0", "203.0.113.1", "2001:db8::", "2001:db8::1")
OUTSIDE: Final = "198.18.0.9"  # in no pool

_SELECTED: Final = LabelSelector(match_labels={"env": "prod"})
_STACKS: Final = (
    (("IPv4",), "SingleStack"),
    (("IPv4",), "SingleStack"),
    (("IPv6",), "SingleStack"),
    (("IPv4", "IPv6"), "PreferDualStack"),
    (("IPv4", "IPv6"), "RequireDualStack"),
    (("IPv6", "IPv4"), "PreferDualStack"),
)
_REQUESTED: Final = (
    *("", "", "", "", "192.0.2.1", "192.0.2.0, 2001:db8::1", "203.0.113.1", "198.51.100.0", "not one"),
    "192.0.2.1, 192.0.2.2",
)
_RANGES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "dual": (
        ("192.0.2.0/31", "2001:db8::/127"),
        ("192.0.2.0/30", "2001:db8::/126"),
        ("192.0.2.0/32", "2001:db8::/128"),
        ("192.0.2.1-192.0.2.3", "2001:db8::1"),
        ("192.0.2.0/31",),
        ("192.0.2.1/24",),  # host bits: malformed
    ),
    "four": (("198.51.100.0-198.51.100.2",), ("198.51.100.0/31",), ("198.51.100.0/32", "192.0.2.2/31")),
    "named": (("203.0.113.0/31",), ("203.0.113.1/32", "2001:db8::2")),
    "late": (("192.0.2.1/32",), ("203.0.113.0/30",), ("192.0.2.0/31", "198.51.100.0/32")),
}
POOLS: Final = tuple(_RANGES)
FIRST: Final = (
    build.pool("dual", *_RANGES["dual"][0]),
    build.pool("four", *_RANGES["four"][0], priority=200, max_per_namespace=2, namespace_selector=_SELECTED),
    build.pool("named", *_RANGES["named"][0], auto_assign=False),
)


def own(obj: Object) -> set[Address]:
    """The addresses that a node or a group has itself."""
    match obj:
        case Node():
            return set(obj.addresses("InternalIP", "ExternalIP"))
        case KeepalivedGroup():
            return set(obj.virtual_ips)
    return set()


def stamp(number: int) -> str:
    """The creationTimestamp of the object *number*; two successive objects have the same."""
    return f"2026-01-01T{number // 120:02}:{number // 2 % 60:02}:00Z"


@st.composite
def services(draw: st.DrawFn, key: str, number: int) -> Service:
    """A Service: half of them are plain, and the others have random requests."""
    families, policy = draw(st.sampled_from(_STACKS))
    sharing = draw(st.sampled_from(("", "", "web")))
    port = draw(st.sampled_from((80, 443)))
    notes = {names.SHARING_KEY_ANNOTATION: sharing} if sharing else {}
    odd: dict[str, Any] = draw(_oddities()) if draw(st.booleans()) else {"labels": {"env": "prod"}}
    finalizers = odd.pop("finalizers", None)
    built = build.service(
        key,
        families=families,
        ip_family_policy=policy,
        port=port,
        created=stamp(number),
        annotations={**notes, **odd.pop("annotations", {})} or None,
        **{"group": GROUP, **odd},
    )
    return msgspec.structs.replace(built, metadata=msgspec.structs.replace(built.metadata, finalizers=finalizers))


def _often(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((usual,) * 5 + others)


@st.composite
def _oddities(draw: st.DrawFn) -> dict[str, Any]:
    notes = {
        names.REASSIGN_ANNOTATION: draw(_often("", "true")),
        names.COUNT_ANNOTATION: draw(_often("", "2", "3", "x")),
    }
    return {
        "group": draw(_often(GROUP, "lb/gone", "")),
        "pool": draw(st.sampled_from(("", "", "", "dual", "four", "named", "late"))),
        "wants": draw(st.sampled_from(_REQUESTED)),
        "labels": {"env": draw(_often("prod", "test"))},
        "annotations": {key: value for key, value in notes.items() if value},
        "type": draw(_often("LoadBalancer", "ClusterIP")),
        "external_traffic_policy": draw(_often("Cluster", "Local")),
        "selector": {"app": draw(st.sampled_from(("one", "two")))},
        "load_balancer_class": draw(_often(None, names.LOAD_BALANCER_CLASS, "other/one")),
        "external_ips": draw(_often(None, ["192.0.2.1"])),
        "load_balancer_ip": draw(_often("", "192.0.2.2")),
        "finalizers": draw(_often(None, ["example.org/wait"])),
    }


FACETS: Final = ("annotations", "labels", "ports", "families", "policy", "type", "external", "kind of traffic", "all")


def edited(old: Service, new: Service, facet: str) -> Service:
    """*old* with *facet* of *new*, as far as the API server accepts such an edit."""
    spec, meta = old.spec, old.metadata
    first = (old.spec.ip_families or [])[:1]
    may_change = (new.spec.ip_families or [])[:1] == first
    changes: dict[str, dict[str, Any]] = {
        "ports": {"ports": new.spec.ports},
        "families": {"ip_families": new.spec.ip_families, "ip_family_policy": new.spec.ip_family_policy}
        if may_change
        else {"ip_families": first, "ip_family_policy": "SingleStack"},
        "policy": {"ip_family_policy": new.spec.ip_family_policy} if len(spec.ip_families or ()) > 1 else {},
        "type": {"type": "ClusterIP" if old.is_load_balancer else "LoadBalancer"},
        "external": {"external_ips": new.spec.external_ips, "load_balancer_ip": new.spec.load_balancer_ip},
        "kind of traffic": {
            "external_traffic_policy": new.spec.external_traffic_policy,
            "selector": new.spec.selector,
        },
    }
    every = {name: value for change in changes.values() for name, value in change.items()}
    spec = msgspec.structs.replace(spec, **(every if facet == "all" else changes.get(facet, {})))
    if facet in ("annotations", "all"):
        meta = msgspec.structs.replace(meta, annotations=new.metadata.annotations)
    if facet in ("labels", "all"):
        meta = msgspec.structs.replace(meta, labels=new.metadata.labels)
    return msgspec.structs.replace(old, metadata=meta, spec=spec)


@st.composite
def pools(draw: st.DrawFn, name: str, number: int) -> VIPPool:
    """The pool *name*, with its first or other ranges, and with up to two other rules."""
    ranges = _RANGES[name][0] if draw(st.booleans()) else draw(st.sampled_from(_RANGES[name]))
    first = ranges[0].partition("/")[0].partition("-")[0]
    rules: dict[str, tuple[Any, ...]] = {
        "exclude": (["192.0.2.1"], ["2001:db8::/127"], [first]),
        "auto_assign": (False,),
        "priority": (50, 300),
        "service_selector": (_SELECTED,),
        "namespace_selector": (_SELECTED,),
        "groups": ([GROUP], ["lb/other"]),
        "avoid_buggy_ips": (True,),
        "reservations": ([Reservation(first, "a/p")], [Reservation(first, "b/q")]),
        "cooldown_seconds": (2, 60),
        "max_per_namespace": (0, 1, 2),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(rules)), max_size=2, unique=True))
    spec: dict[str, Any] = {rule: draw(st.sampled_from(rules[rule])) for rule in chosen}
    return build.pool(name, *ranges, created=stamp(number), **{"auto_assign": name != "named", **spec})


@st.composite
def node(draw: st.DrawFn) -> Node:
    """A node, perhaps with an address of a pool."""
    return build.node("n1", draw(st.sampled_from(("10.0.0.1", "10.0.0.1", "192.0.2.1", "2001:db8::"))))


@st.composite
def group(draw: st.DrawFn) -> KeepalivedGroup:
    """The group, without nodes: perhaps the default group, perhaps with a VIP of a pool."""
    own = draw(st.sampled_from((None, None, None, "192.0.2.0/24", "198.51.100.1")))
    return build.group(
        GROUP,
        default=draw(st.booleans()),
        node_selector={"none": "such"},
        virtual_ips=[GroupVirtualIP(address=own)] if own else None,
    )
