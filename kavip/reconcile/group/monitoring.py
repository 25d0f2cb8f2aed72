"""
What Prometheus needs to find the pods of a group, as keepalived-operator made it, where its operator is installed.

A PodMonitor named as the group, and a Role with its RoleBinding by which Prometheus may look for pods in the namespace.
"""

from typing import Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.reconcile.group.manifests import Manifest, metadata_of

KINDS: Final = (names.POD_MONITOR, names.ROLE, names.ROLE_BINDING)
ACCESS: Final = frozenset({names.ROLE, names.ROLE_BINDING})
"""Those of them that carry a suffix behind the group's name."""

_RBAC: Final = "rbac.authorization.k8s.io"


def bodies_of(group: KeepalivedGroup, *, account: str) -> tuple[Manifest, ...]:
    """PodMonitor, Role and RoleBinding of *group* for the Prometheus that runs as *account* (``ns/name``)."""
    named = f"{group.metadata.name}{names.PROMETHEUS_ROLE_SUFFIX}"
    namespace, _, name = account.partition("/")
    return (
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": names.POD_MONITOR,
            "metadata": metadata_of(group, labels={names.METRICS_LABEL: names.METRICS_LABEL_VALUE}),
            "spec": {
                "selector": {"matchLabels": {names.GROUP_LABEL: group.metadata.name}},
                "podMetricsEndpoints": [{"port": names.METRICS_PORT_NAME}],
            },
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": names.ROLE,
            "metadata": metadata_of(group, name=named),
            "rules": [
                {"apiGroups": [""], "resources": ["endpoints", "pods", "services"], "verbs": ["get", "list", "watch"]}
            ],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": names.ROLE_BINDING,
            "metadata": metadata_of(group, name=named),
            "roleRef": {"apiGroup": _RBAC, "kind": names.ROLE, "name": named},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        },
    )
