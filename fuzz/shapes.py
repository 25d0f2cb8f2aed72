"""
Strategies for objects with the right fields and unusual values, generated from the wire types.

So a new field is fuzzed as soon as it exists.
"""

import json
from typing import Any, Final

import msgspec.inspect as wire
from hypothesis import strategies as st

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service

TEXTS: Final = (
    *("", " ", "lb/g0", "lb/full", "lb/edeg", "lb/", "p0", "p1", "nowhere", "true", "false", "LoadBalancer"),
    *("ClusterIP", "Local", "IPv4", "IPv6", "RequireDualStack", "PreferDualStack", "SingleStack", "Shared"),
    *(names.LOAD_BALANCER_CLASS, "other/one", "eth0", "lo", "en.5", "x" * 16, "In", "Exists", "NotIn"),
    *("10.0.0.1", "10.1.0.9", "10.0.0.256", "010.0.0.1", "::1", "2001:DB8::1", "fe80::1%eth0", "10.0.0.1,2001:db8::1"),
    *("10.0.0.0/8", "10.0.0.5/8", "10.0.0.9-10.0.0.1", "0.0.0.0/0", "::/0", "192.0.2.0-192.0.2.255", "2001:db8::/64"),
    *(
        "{}",
        "[]",
        '{"debug": "2"}',
        '{"notify": "/bin/sh"}',
        '{"track_interface": "eth0\\n}"}',
        "{" * 2000,
        "\0",
        "\x85",
    ),
    *("2026-05-01T00:00:00Z", "\U0001f980", "\u202e", "a" * 5000, "https://x:1", "kubelet"),
)
KEYS: Final = (*names.SERVICE_ANNOTATIONS, "kavip.io/x", names.ALLOW_STRANDING_ANNOTATION, "app", "debug", "a b", "")
EXTREMES: Final = (-1, 0, 1, 2, 3, 255, 256, 9650, 65535, 65536, 2**31, -(2**63), 2**63 - 1)

_TEXT: Final = st.sampled_from(TEXTS) | st.text(max_size=8)
_SCALAR: Final = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT
JSON: Final = st.recursive(
    _SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3), max_leaves=8
)


def shape(info: wire.Type) -> st.SearchStrategy[Any]:
    """Values of type *info*."""
    match info:
        case wire.StructType(fields=fields):
            required = {each.encode_name: shape(each.type) for each in fields if each.required}
            optional = {each.encode_name: shape(each.type) for each in fields if not each.required}
            return st.fixed_dictionaries(required, optional=optional)
        case wire.ListType(item_type=item):
            return st.lists(shape(item), max_size=3)
        case wire.DictType(value_type=value):
            return st.dictionaries(st.sampled_from(KEYS), shape(value), max_size=4)
        case wire.UnionType(types=types):
            return st.one_of(*map(shape, types))
        case wire.StrType() | wire.EnumType():  # an enum of the wire types takes any text
            return _TEXT
        case wire.BoolType():
            return st.booleans()
        case wire.IntType():
            return st.sampled_from(EXTREMES) | st.integers(0, 300)
        case wire.NoneType():
            return st.none()
    return _SCALAR


OBJECTS: Final = {kind: shape(wire.type_info(kind)) for kind in (Service, KeepalivedGroup, VIPPool)}
OPERATIONS: Final = st.sampled_from(("CREATE", "UPDATE", "UPDATE", "DELETE", "CONNECT"))


def kind_of(path: str) -> type[Service] | type[KeepalivedGroup] | type[VIPPool]:
    """The kind that *path* validates."""
    return Service if "service" in path else VIPPool if "pool" in path else KeepalivedGroup


def managed(service: dict[str, Any]) -> dict[str, Any]:
    """*service* as one that kavip manages, as far as it has the fields of a Service."""
    spec, metadata = service.get("spec"), service.get("metadata")
    if isinstance(metadata, dict):
        notes = {names.GROUP_ANNOTATION: "lb/g0"} | (metadata.get("annotations") or {})
        service = {**service, "metadata": {**metadata, "annotations": notes}}
    if isinstance(spec, dict):
        service = {**service, "spec": {**spec, "type": "LoadBalancer", "loadBalancerClass": None}}
    return service


@st.composite
def bodies(draw: st.DrawFn, path: str) -> bytes:
    """A review for *path*: the envelope is valid, the objects need not be, and an UPDATE may have equal objects."""
    anything = OBJECTS[kind_of(path)] | st.none() | JSON
    new = draw(anything)
    if kind_of(path) is Service and isinstance(new, dict) and draw(st.booleans()):
        new = managed(new)
    request: dict[str, Any] = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": kind_of(path).__name__},
        "operation": draw(OPERATIONS),
        "namespace": draw(st.sampled_from(("shop", "lb", ""))),
        "userInfo": {"username": "jane"},
        "object": new,
        "oldObject": draw(st.just(new) | anything),
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()
