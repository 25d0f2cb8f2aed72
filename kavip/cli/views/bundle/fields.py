"""
The fields of objects that a support bundle may hold. The documentation has this table too.

A path ends at plain values: text, numbers, booleans. ``[]`` are the elements of a list, ``{}`` the entries of a map,
``{keys}`` its keys without the values, ``{selected}`` the labels by which groups, pools and Services select, ``[key]``
the entry with this key. ``[known]`` are the elements of a list that are among :data:`KNOWN`.
"""

from collections.abc import Mapping
from typing import Final

from kavip import names
from kavip.reconcile.group.manifests import KEEPALIVED_COMMAND

KNOWN: Final = frozenset({*KEEPALIVED_COMMAND, "kavip", "run", "webhook", "controller", "agent", "--once"})
"""What containers of kavip run; other arguments may hold anything."""

_METADATA: Final = ("metadata.name", "metadata.creationTimestamp", "metadata.deletionTimestamp", "metadata.generation")
_NAMESPACED: Final = (*_METADATA, "metadata.namespace")
_CONDITIONS: Final = tuple(
    f"status.conditions[].{each}"
    for each in ("type", "status", "reason", "message", "lastTransitionTime", "observedGeneration")
)
_SELECTOR: Final = (
    "{0}.matchLabels{{}}",
    "{0}.matchExpressions[].key",
    "{0}.matchExpressions[].operator",
    "{0}.matchExpressions[].values[]",
)
_NODE_TERMS: Final = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[]"
_STATES: Final = (
    *("waiting.reason", "waiting.message", "running.startedAt", "terminated.reason", "terminated.exitCode"),
    *("terminated.signal", "terminated.startedAt", "terminated.finishedAt"),
)


def _selector(path: str) -> tuple[str, ...]:
    return tuple(each.format(path) for each in _SELECTOR)


def _annotations(*keys: str) -> tuple[str, ...]:
    return tuple(f"metadata.annotations[{key}]" for key in keys)


def _containers(path: str) -> tuple[str, ...]:
    return tuple(
        f"{path}.{list_}[].{each}"
        for list_ in ("initContainers", "containers")
        for each in ("name", "image", "command[known]", "args[known]", "resources.limits{}", "resources.requests{}")
    )


def _statuses(list_: str) -> tuple[str, ...]:
    states = tuple(f"{state}.{each}" for state in ("state", "lastState") for each in _STATES)
    fields = ("name", "image", "imageID", "ready", "started", "restartCount", *states)
    return tuple(f"status.{list_}[].{each}" for each in fields)


def _workload(*status: str) -> tuple[str, ...]:
    spec = ("serviceAccountName", "hostNetwork", "priorityClassName", "nodeSelector{}")
    return (
        *_NAMESPACED,
        *(f"metadata.labels[app.kubernetes.io/{each}]" for each in ("name", "component", "version")),
        f"metadata.labels[{names.GROUP_LABEL}]",
        "spec.replicas",
        *(f"spec.template.spec.{each}" for each in spec),
        *_containers("spec.template.spec"),
        *(f"status.{each}" for each in (*status, "observedGeneration")),
        *_CONDITIONS,
    )


GROUP: Final = (
    *_NAMESPACED,
    f"metadata.labels[{names.DEFAULT_GROUP_LABEL}]",
    *_annotations(names.TAKE_OVER_ANNOTATION, names.REBALANCE_ANNOTATION),
    *(
        f"spec.{each}"
        for each in (
            *("image", "agentImage", "interface", "interfaceFromIP", "vrrpInterface", "nodeSelector{}"),
            *("passwordAuth.secretRef.name", "passwordAuth.secretKey", "verbatimConfig{keys}", "allowVerbatim[]"),
            *("blacklistRouterIDs[]", "unicastEnabled", "vrrpVersion", "advertIntervalMilliseconds", "segment"),
            *("openshiftClusterName", "instances.mode", "instances.count", "noPreempt", "preemptDelaySeconds"),
            *("virtualIPs[].address", "virtualIPs[].interface", "virtualIPs[].routerID", "drainOn[]", "allowScripts"),
            *("placement.preferred[].weight", "placement.preferred[].nodeSelector{}", "metricsPort"),
            *(f"checks[].{each}" for each in ("name", "url", "intervalSeconds", "timeoutSeconds", "failAfter")),
            *(f"checks[].{each}" for each in ("succeedAfter", "onFailure", "weight", "expectedStatus")),
            *(f"checks[].caFrom.{each}" for each in ("kind", "name", "key")),
            *("daemonsetPodPriorityClassName", "serviceAccountName", "updateStrategy.type"),
            "updateStrategy.rollingUpdate.maxUnavailable",
            *("resources.limits{}", "resources.requests{}", "podTemplate{keys}", "configTemplateRef.name"),
            "daemonsetPodAnnotations{keys}",
            *(f"tolerations[].{each}" for each in ("key", "operator", "effect", "tolerationSeconds")),
        )
    ),
    *_selector("spec.allowedNamespaces"),
    *(f"{_NODE_TERMS}.matchExpressions[].{each}" for each in ("key", "operator", "values[]")),
    *(f"{_NODE_TERMS}.matchFields[].{each}" for each in ("key", "operator", "values[]")),
    *_CONDITIONS,
    *(
        f"status.{each}"
        for each in (
            *("routerIDs{}", "observedGeneration", "drainedNodes[]", "configHash", "metricsPort"),
            *("nodes.desired", "nodes.ready", "nodes.current"),
            *(f"instances[].{each}" for each in ("name", "routerID", "family", "node", "state", "virtualIPs")),
            *(f"virtualIPs[].{each}" for each in ("address", "node", "state")),
        )
    ),
)
POOL: Final = (
    *_METADATA,
    *_annotations(names.ALLOW_STRANDING_ANNOTATION),
    *(
        f"spec.{each}"
        for each in (
            *("addresses[]", "exclude[]", "autoAssign", "priority", "groups[]", "avoidBuggyIPs", "cooldownSeconds"),
            *("reservations[].address", "reservations[].service", "conflictDetection", "maxPerNamespace", "interface"),
            *("routing.gateway", "routing.gatewayIPv6", "routing.table"),
        )
    ),
    *_selector("spec.serviceSelector"),
    *_selector("spec.namespaceSelector"),
    *(f"status.{family}.{each}" for family in ("ipv4", "ipv6") for each in ("total", "assigned", "available")),
    *(f"status.cooling[].{each}" for each in ("address", "service", "until", "reason")),
    *_CONDITIONS,
)
SERVICE: Final = (
    *_NAMESPACED,
    "metadata.labels{selected}",
    *_annotations(*(each for each in names.SERVICE_ANNOTATIONS if each != names.VERBATIM_ANNOTATION)),
    *(
        f"spec.{each}"
        for each in (
            *("type", "clusterIP", "clusterIPs[]", "externalIPs[]", "loadBalancerIP", "loadBalancerClass"),
            *("loadBalancerSourceRanges[]", "ipFamilies[]", "ipFamilyPolicy", "externalTrafficPolicy"),
            *("internalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts", "sessionAffinity"),
            *(f"ports[].{each}" for each in ("name", "protocol", "port", "targetPort", "nodePort", "appProtocol")),
        )
    ),
    *(f"status.loadBalancer.ingress[].{each}" for each in ("ip", "hostname", "ipMode")),
    *_CONDITIONS,
)
NODE: Final = (
    *_METADATA,
    "metadata.labels{selected}",
    *_annotations(names.DRAIN_ANNOTATION),
    *("spec.unschedulable", "spec.podCIDRs[]", "spec.taints[].key", "spec.taints[].effect"),
    *("status.addresses[].type", "status.addresses[].address"),
    *(
        f"status.nodeInfo.{each}"
        for each in (
            *("kubeletVersion", "kubeProxyVersion", "kernelVersion", "osImage", "operatingSystem", "architecture"),
            "containerRuntimeVersion",
        )
    ),
    *_CONDITIONS,
)
DEPLOYMENT: Final = _workload("replicas", "readyReplicas", "updatedReplicas", "availableReplicas")
DAEMON_SET: Final = _workload(
    *("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled", "numberReady", "numberAvailable"),
    "numberMisscheduled",
)
POD: Final = (
    *_NAMESPACED,
    f"metadata.labels[{names.GROUP_LABEL}]",
    *("spec.nodeName", "spec.hostNetwork", "spec.serviceAccountName", "spec.priorityClassName"),
    *_containers("spec"),
    *("status.phase", "status.reason", "status.message", "status.podIP", "status.hostIP", "status.startTime"),
    *_CONDITIONS,
    *_statuses("initContainerStatuses"),
    *_statuses("containerStatuses"),
)
LEASE: Final = (
    *_NAMESPACED,
    *_annotations(names.COOLDOWNS_ANNOTATION),
    *(
        f"spec.{each}"
        for each in ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions")
    ),
)
EVENT: Final = (
    *_NAMESPACED,
    *("type", "reason", "note", "action", "reportingController", "reportingInstance", "eventTime"),
    *("deprecatedLastTimestamp", "series.count", "series.lastObservedTime"),
    *("regarding.kind", "regarding.namespace", "regarding.name"),
)

ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    names.KEEPALIVED_GROUP: GROUP,
    names.VIP_POOL: POOL,
    names.SERVICE: SERVICE,
    names.NODE: NODE,
    names.DEPLOYMENT: DEPLOYMENT,
    names.DAEMON_SET: DAEMON_SET,
    names.POD: POD,
    names.LEASE: LEASE,
    "Event": EVENT,
}
"""By kind."""
