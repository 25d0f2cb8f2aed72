"""
What users and administrators do: any Service, any pool, any node, drawn so that they get in each other's way.

All is small on purpose: a few addresses, a few names, so that pools are full, wishes collide and keys are shared.
"""

from typing import Any, Final

import msgspec
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Namespace, Node
from kavip.api.group import GroupVirtualIP, KeepalivedGroup
from kavip.api.meta import LabelSelector
from kavip.api.pool import Reservation, VIPPool
from kavip.api.service import Service
from kavip.snapshot import Object, own_virtual_ips
from tests import build

GROUP: Final = "lb/edge"
SPACES: Final = ("a", "b")
KEYS: Final = tuple(f"{space}/{name}" for space in SPACES for name in ("p", "q", "r", "s"))
ADDRESSES: Final = ("192.0.2.0", "192.0.2.1", "192.0.2.2", "198.51.100.0", "203.0.113.1", "2001:db8::", "2001:db8::1")
ELSEWHERE: Final = "198.18.0.9"  # in no pool

_SELECTED: Final = LabelSelector(match_labels={"env": "prod"})
_STACKS: Final = (
    (("IPv4",), "SingleStack"),
    (("IPv4",), "SingleStack"),
    (("IPv6",), "SingleStack"),
    (("IPv4", "IPv6"), "PreferDualStack"),
    (("IPv4", "IPv6"), "RequireDualStack"),
    (("IPv6", "IPv4"), "PreferDualStack"),
)
_WISHES: Final = ("", "", "", "", "192.0.2.1", "192.0.2.0, 2001:db8::1", "203.0.113.1", "198.51.100.0", "not one")
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
    build.pool("four", *_RANGES["four"][0], priority=200, max_per_namespace=2),
    build.pool("named", *_RANGES["named"][0], auto_assign=False),
)


def own(obj: Object) -> set[Address]:
    """The addresses that a node or a group has itself."""
    match obj:
        case Node():
            return set(obj.addresses("InternalIP", "ExternalIP"))
        case KeepalivedGroup():
            return set(own_virtual_ips(obj))
    return set()


def stamp(number: int) -> str:
    """The time of creation of what was made as the *number*-th; two at a time are of one age."""
    return f"2026-01-01T{number // 120:02}:{number // 2 % 60:02}:00Z"


@st.composite
def services(draw: st.DrawFn, key: str, number: int) -> Service:
    """A Service that asks for anything."""
    families, policy = draw(st.sampled_from(_STACKS))
    given = {
        names.SHARING_KEY_ANNOTATION: draw(st.sampled_from(("", "", "", "web", "web", "db"))),
        names.REASSIGN_ANNOTATION: draw(st.sampled_from(("",) * 7 + ("true",))),
    }
    spec: dict[str, Any] = {
        "type": draw(st.sampled_from(("LoadBalancer",) * 7 + ("ClusterIP",))),
        "ip_family_policy": policy,
        "port": draw(st.sampled_from((80, 80, 443))),
        "external_traffic_policy": draw(st.sampled_from(("Cluster", "Cluster", "Cluster", "Local"))),
        "selector": {"app": draw(st.sampled_from(("one", "two")))},
        "load_balancer_class": draw(st.sampled_from((None,) * 8 + (names.LOAD_BALANCER_CLASS, "other/one"))),
        "external_ips": draw(st.sampled_from((None,) * 7 + (["192.0.2.1"],))),
        "load_balancer_ip": draw(st.sampled_from(("",) * 9 + ("192.0.2.2",))),
    }
    built = build.service(
        key,
        group=draw(st.sampled_from((GROUP,) * 8 + ("lb/gone", ""))),
        pool=draw(st.sampled_from(("", "", "", "", "dual", "four", "named", "late"))),
        wants=draw(st.sampled_from(_WISHES)),
        labels={"env": draw(st.sampled_from(("prod", "prod", "test")))},
        annotations={name: value for name, value in given.items() if value},
        families=families,
        created=stamp(number),
        **spec,
    )
    finalizers = draw(st.sampled_from((None, None, None, ["example.org/wait"])))
    return msgspec.structs.replace(built, metadata=msgspec.structs.replace(built.metadata, finalizers=finalizers))


FACETS: Final = ("annotations", "labels", "ports", "families", "policy", "type", "external", "kind of traffic", "all")


def edited(old: Service, new: Service, facet: str) -> Service:
    """*old*, with *facet* as in *new*, as far as the API server lets it be changed."""
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
    """A pool of that name with any rules."""
    ranges = draw(st.sampled_from(_RANGES[name]))
    reserved = draw(st.sampled_from((None, None, None, (ranges[0].partition("/")[0].partition("-")[0], "a/p"))))
    spec: dict[str, Any] = {
        "exclude": draw(st.sampled_from((None, None, None, ["192.0.2.1"], ["2001:db8::/127"]))),
        "auto_assign": draw(st.sampled_from((True, True, True, False))) and name != "named",
        "priority": draw(st.sampled_from((100, 100, 50, 300))),
        "service_selector": draw(st.sampled_from((None, None, None, _SELECTED))),
        "namespace_selector": draw(st.sampled_from((None, None, None, _SELECTED))),
        "groups": draw(st.sampled_from((None, None, None, None, [GROUP], ["lb/other"]))),
        "avoid_buggy_ips": draw(st.sampled_from((False, False, False, True))),
        "reservations": [Reservation(*reserved)] if reserved else None,
        "cooldown_seconds": draw(st.sampled_from((0, 0, 0, 2, 60))),
        "max_per_namespace": draw(st.sampled_from((None, None, None, 0, 1, 2))),
    }
    return build.pool(name, *ranges, created=stamp(number), **spec)


@st.composite
def node(draw: st.DrawFn) -> Node:
    """A node, perhaps with an address that a pool has."""
    return build.node("n1", draw(st.sampled_from(("10.0.0.1", "10.0.0.1", "192.0.2.1", "2001:db8::"))))


@st.composite
def group(draw: st.DrawFn) -> KeepalivedGroup:
    """The group, which has no nodes of its own: perhaps the default one, perhaps with a VIP that a pool has."""
    own = draw(st.sampled_from((None, None, None, "192.0.2.0/24", "198.51.100.1")))
    return build.group(
        GROUP,
        default=draw(st.booleans()),
        node_selector={"none": "such"},
        virtual_ips=[GroupVirtualIP(address=own)] if own else None,
    )


@st.composite
def namespace(draw: st.DrawFn) -> Namespace:
    """A namespace with other labels."""
    return build.namespace(draw(st.sampled_from(SPACES)), env=draw(st.sampled_from(("prod", "test"))))
