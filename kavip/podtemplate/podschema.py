"""
How the fields of a pod template merge: ``x-kubernetes-patch-merge-key`` of Kubernetes' OpenAPI, as data.

A test compares it with the OpenAPI of the API server.
"""

from typing import Final

from kavip.podtemplate.strategicmerge import Schema

_CONTAINER: Final = Schema(
    keys={"env": "name", "ports": "containerPort", "volumeDevices": "devicePath", "volumeMounts": "mountPath"}
)
_METADATA: Final = Schema(keys={"ownerReferences": "uid"}, sets=frozenset({"finalizers"}))
_CLAIM_TEMPLATE: Final = Schema(children={"metadata": _METADATA})
_VOLUME: Final = Schema(children={"ephemeral": Schema(children={"volumeClaimTemplate": _CLAIM_TEMPLATE})})
_POD: Final = Schema(
    children={
        "containers": _CONTAINER,
        "ephemeralContainers": _CONTAINER,
        "initContainers": _CONTAINER,
        "volumes": _VOLUME,
    },
    keys={
        "containers": "name",
        "ephemeralContainers": "name",
        "evictionResponders": "name",
        "hostAliases": "ip",
        "imagePullSecrets": "name",
        "initContainers": "name",
        "resourceClaims": "name",
        "schedulingGates": "name",
        "topologySpreadConstraints": "topologyKey",
        "volumes": "name",
    },
)
POD_TEMPLATE: Final = Schema(children={"metadata": _METADATA, "spec": _POD})
"""``spec.template`` of a DaemonSet."""
