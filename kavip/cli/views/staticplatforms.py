"""
A static pod in the shape that a platform takes it, and the account with which its agents read nodes.

:mod:`kavip.cli.views.static` makes the pod. It is the same everywhere; only the folder and the wrapping differ.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kavip.cli.views.static import Manifest, StaticGroup, static_pod, yaml_of

FOLDERS: Final[Mapping[str, str]] = {
    "kubeadm": "/etc/kubernetes/manifests",
    "k3s": "/var/lib/rancher/k3s/agent/pod-manifests",
    "machineconfig": "/etc/kubernetes/manifests",
    "butane": "/etc/kubernetes/manifests",
}
"""kubelet's folder of static pods, by platform."""

ACCOUNT: Final = "kavip-static"
_ROLE_LABEL: Final = "node-role.kubernetes.io/"
_DEFAULT_ROLE: Final = "master"
_IGNITION: Final = "3.2.0"
_BUTANE: Final = "1.5.0"
_MODE: Final = 0o644


def path_on_node(group: StaticGroup, platform: str) -> str:
    """Where the pod of *group* is a file on the nodes of *platform*."""
    return f"{FOLDERS[platform]}/kavip-{group.file_name}.yaml"


def machine_config(group: StaticGroup) -> Manifest:
    """The MachineConfig that puts the pod of *group* on the nodes of a pool; Ignition takes a file as a data URL."""
    role = _role(group)
    content = base64.b64encode(_pod_text(group).encode()).decode()
    file = {
        "path": path_on_node(group, "machineconfig"),
        "mode": _MODE,
        "overwrite": True,
        "contents": {"source": f"data:text/plain;charset=utf-8;base64,{content}"},
    }
    return {
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {
            "name": f"99-{role}-kavip-{group.file_name}",
            "labels": {"machineconfiguration.openshift.io/role": role},
        },
        "spec": {"config": {"ignition": {"version": _IGNITION}, "storage": {"files": [file]}}},
    }


def butane(groups: Iterable[StaticGroup]) -> Mapping[str, Any]:
    """The Butane configuration that puts the pods of *groups* on a machine with Fedora CoreOS."""
    files = [
        {
            "path": path_on_node(group, "butane"),
            "mode": _MODE,
            "contents": {"inline": _pod_text(group)},
        }
        for group in groups
    ]
    return {"variant": "fcos", "version": _BUTANE, "storage": {"files": files}}


def account(group: StaticGroup) -> tuple[Manifest, ...]:
    """An account that may list nodes and nothing else, and a token for it that does not expire."""
    namespace = group.config_map["metadata"]["namespace"]
    name = f"{ACCOUNT}-{group.config_map['metadata']['name']}"
    cluster_wide = f"{ACCOUNT}-{group.file_name}"
    role_of = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": cluster_wide}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    rbac = "rbac.authorization.k8s.io/v1"
    return (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}},
        {
            "apiVersion": rbac,
            "kind": "ClusterRole",
            "metadata": {"name": cluster_wide},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}],
        },
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": cluster_wide},
            "roleRef": role_of,
            "subjects": [subject],
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "annotations": {"kubernetes.io/service-account.name": name},
            },
            "type": "kubernetes.io/service-account-token",
        },
    )


def _role(group: StaticGroup) -> str:
    """The pool of machines that the nodeSelector of *group* names."""
    selector = group.pod.get("nodeSelector") or {}
    roles = (key.removeprefix(_ROLE_LABEL) for key in sorted(selector) if key.startswith(_ROLE_LABEL))
    role = next(roles, _DEFAULT_ROLE)
    return _DEFAULT_ROLE if role == "control-plane" else role  # OpenShift's pool has the older name


def _pod_text(group: StaticGroup) -> str:
    """The pod with the SELinux type that may read the folders of the node: kubelet does not label them anew."""
    pod = static_pod(group)
    context = {**pod["spec"].get("securityContext", {}), "seLinuxOptions": {"type": "spc_t"}}
    return yaml_of({**pod, "spec": {**pod["spec"], "securityContext": context}})
