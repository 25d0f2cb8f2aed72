"""
Unknown fields of manifests, and values that the API server does not know: its strict field validation refuses them.

``kubectl apply`` asks for that validation. The types of kavip have only the fields that it reads, so the names of the
others are here, as of Kubernetes 1.36; a test compares them with its client. Values are checked of the fields of a
Service by which kavip decides.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.service import Service
from kavip.api.typeproblem import short
from kavip.api.unknownfields import unknown_fields

METADATA: Final = msgspec.defstruct(
    "Metadata",
    (
        *("annotations", "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
        *("generateName", "generation", "labels", "managedFields", "name", "namespace", "ownerReferences"),
        *("resourceVersion", "selfLink", "uid"),
    ),
)
PORT: Final = msgspec.defstruct("Port", ("appProtocol", "name", "nodePort", "port", "protocol", "targetPort"))
SERVICE_SPEC: Final = msgspec.defstruct(
    "ServiceSpec",
    (
        *("allocateLoadBalancerNodePorts", "clusterIP", "clusterIPs", "externalIPs", "externalName"),
        *("externalTrafficPolicy", "healthCheckNodePort", "internalTrafficPolicy", "ipFamilies", "ipFamilyPolicy"),
        *("loadBalancerClass", "loadBalancerIP", "loadBalancerSourceRanges", ("ports", list[PORT])),  # type: ignore[valid-type]  # made above
        *("publishNotReadyAddresses", "selector", "sessionAffinity", "sessionAffinityConfig", "trafficDistribution"),
        "type",
    ),
)
_SPECS: Final[dict[type, type]] = {Service: SERVICE_SPEC, KeepalivedGroup: GroupSpec, VIPPool: PoolSpec}
_OBJECTS: Final = {
    kind: msgspec.defstruct(kind.__name__, ("apiVersion", "kind", ("metadata", METADATA), ("spec", spec), "status"))
    for kind, spec in _SPECS.items()
}
_VALUES: Final = {
    "externalTrafficPolicy": ("Cluster", "Local"),
    "ipFamilyPolicy": ("PreferDualStack", "RequireDualStack", "SingleStack"),
    "type": ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
}
"""Values of ``spec`` of a Service that decide what kavip does."""
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


def field_problems(content: dict[str, Any], kind: type) -> Iterator[tuple[str, str]]:
    """
    The problems of *content*, which has the types of a *kind*, each with its field.

    A Service with a ``uid`` comes from an API server, maybe a later one, and has none.
    """
    if kind not in _OBJECTS or (kind is Service and (content.get("metadata") or {}).get("uid")):
        return
    for path, meant in unknown_fields(content, _OBJECTS[kind], path=""):
        yield path.lstrip("."), f"unknown field{_hint(meant)}"
    if kind is Service:
        spec = content.get("spec") or {}
        for name, values in _VALUES.items():
            yield from _value_problem(spec.get(name), values, f"spec.{name}")
        for index, port in enumerate(spec.get("ports") or ()):
            yield from _value_problem(port.get("protocol"), _PROTOCOLS, f"spec.ports[{index}].protocol")


def _value_problem(value: Any, values: tuple[str, ...], field: str) -> Iterator[tuple[str, str]]:
    if value and value not in values:
        meant = next(iter(get_close_matches(value[:80], values, 1)), "")
        yield field, f'"{short(value)}": want {", ".join(values[:-1])} or {values[-1]}{_hint(meant)}'


def _hint(meant: str) -> str:
    return f'; did you mean "{meant}"?' if meant else ""
