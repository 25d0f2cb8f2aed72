"""
What of a cluster concerns kavip: Services, labels that selectors name, pods and their containers, Events.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

import msgspec

from kavip import names
from kavip.api.event import Event
from kavip.api.group import KeepalivedGroup
from kavip.api.installation import WholeObject
from kavip.api.meta import LabelSelector
from kavip.api.pool import VIPPool
from kavip.api.selector import parse_selector
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice
from kavip.errors import BadInput

OWN_PODS: Final = "app.kubernetes.io/name in (kavip,kavip-controller)"
"""The label selector of kavip's Deployments and their pods."""
MOST_EVENTS: Final = 2_000
_CONTAINERS: Final = frozenset({"kavip", names.KEEPALIVED_CONTAINER, names.AGENT_CONTAINER, names.SETUP_CONTAINER})
"""Their logs are in a bundle; those of other containers may hold anything."""

Subject = tuple[str, str]
"""The kind and the key of an object that an Event is about."""
T = TypeVar("T", bound=KeepalivedGroup | VIPPool | Service)


def typed(objects: Iterable[WholeObject], kind: type[T]) -> Iterator[T]:
    """*objects* as kavip reads them, without those that are malformed."""
    for each in objects:
        with suppress(msgspec.ValidationError):
            yield msgspec.convert(msgspec.to_builtins(each), kind)


def is_served(found: WholeObject) -> bool:
    """Whether kavip serves the Service, or would: another controller's class excludes it."""
    return any(
        each.selects_kavip or (each.is_load_balancer and not each.has_foreign_class) for each in typed([found], Service)
    )


def node_labels(groups: Iterable[KeepalivedGroup], services: Iterable[WholeObject]) -> frozenset[str]:
    """The keys of the labels by which groups and Services select nodes."""
    found: set[str] = set()
    for group in groups:
        found.update(group.spec.node_selector or ())
        for each in group.spec.placement.preferred or ():
            found.update(each.node_selector or ())
        found.update(_affinity_keys(group.spec.affinity))
    for service in services:
        text = service.metadata.annotation(names.PREFERRED_NODES_ANNOTATION)
        try:
            found.update(_selector_keys(parse_selector(text, names.PREFERRED_NODES_ANNOTATION) if text else None))
        except BadInput:
            continue
    return frozenset(found)


def service_labels(pools: Iterable[VIPPool]) -> frozenset[str]:
    """The keys of the labels by which pools select Services."""
    return frozenset(key for pool in pools for key in _selector_keys(pool.spec.service_selector))


def _selector_keys(selector: LabelSelector | None) -> Iterator[str]:
    if selector is not None:
        yield from selector.match_labels or ()
        yield from (each.key for each in selector.match_expressions or ())


def _affinity_keys(affinity: Any) -> Iterator[str]:
    """The keys in ``nodeAffinity``, whose form the API server has checked in the DaemonSet only."""
    for name in ("nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"):
        affinity = affinity.get(name) if isinstance(affinity, dict) else None
    for term in affinity if isinstance(affinity, list) else ():
        for each in (term.get("matchExpressions") if isinstance(term, dict) else None) or ():
            if isinstance(each, dict) and isinstance(each.get("key"), str):
                yield each["key"]


def endpoint_counts(slices: Iterable[EndpointSlice], services: Iterable[str]) -> dict[str, dict[str, dict[str, int]]]:
    """By Service and node, the number of endpoints in each state; "": on no node."""
    served = frozenset(services)
    counts: dict[str, dict[str, Counter[str]]] = {}
    for each in slices:
        if each.service not in served:
            continue
        nodes = counts.setdefault(each.service, {})
        for endpoint in each.endpoints or ():
            state = "ready" if endpoint.is_ready else "draining" if endpoint.is_draining else "notReady"
            nodes.setdefault(endpoint.node_name, Counter())[state] += 1
    return {
        service: {node: dict(sorted(states.items())) for node, states in sorted(nodes.items())}
        for service, nodes in sorted(counts.items())
    }


def further_subjects(namespace: str) -> Iterator[Subject]:
    """What Events of a kavip in *namespace* are about besides the objects in the bundle: its CA, and its values."""
    yield names.SECRET, f"{namespace}/{names.CA_SECRET_NAME}"
    yield names.CONFIG_MAP, f"{namespace}/{names.VALUES_CONFIGMAP_NAME}"


def group_of(pod: WholeObject) -> str:
    """The key of the group whose DaemonSet would have *pod*."""
    return f"{pod.metadata.namespace}/{pod.metadata.label(names.GROUP_LABEL)}"


def node_of(pod: WholeObject) -> str:
    """The name of the node of *pod*, or "" for a pod without a node."""
    return str((pod.spec or {}).get("nodeName", ""))


def agent_port(group: WholeObject) -> int:
    """The port of the agents of *group*."""
    ports = ((part or {}).get("metricsPort") for part in (group.status, group.spec))
    return next((each for each in ports if isinstance(each, int) and each), names.AGENT_PORT)


def logged_containers(pod: WholeObject) -> Iterator[tuple[str, bool]]:
    """The containers of kavip in *pod*, and whether each had a predecessor."""
    status = pod.status or {}
    for name in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(name) or ():
            if isinstance(each, dict) and each.get("name") in _CONTAINERS:
                yield each["name"], bool(each.get("restartCount"))


def metrics_port(pod: WholeObject) -> int:
    """The port of ``/metrics`` of kavip in *pod*."""
    for container in (pod.spec or {}).get("containers") or ():
        for each in (container.get("ports") if isinstance(container, dict) else None) or ():
            if isinstance(each, dict) and each.get("name") == names.METRICS_PORT_NAME:
                port = each.get("containerPort")
                return port if isinstance(port, int) else names.METRICS_PORT
    return names.METRICS_PORT


def events_about(events: Iterable[Event], subjects: Iterable[Subject]) -> list[Event]:
    """The latest events about *subjects*, the oldest first."""
    known = frozenset(subjects)
    found = [each for each in events if _subject(each) in known]
    return sorted(found, key=lambda each: (each.last_time or each.event_time or "", each.metadata.key))[-MOST_EVENTS:]


def _subject(event: Event) -> Subject:
    """What *event* is about; a ReplicaSet counts as its Deployment."""
    about = event.regarding
    if about.kind == "ReplicaSet":
        return names.DEPLOYMENT, f"{about.namespace}/{about.name.rpartition('-')[0]}"
    # the reference to a cluster-scoped object may have the namespace of the Event
    cluster_scoped = about.kind in (names.NODE, names.VIP_POOL)
    return about.kind, about.name if cluster_scoped or not about.namespace else f"{about.namespace}/{about.name}"
