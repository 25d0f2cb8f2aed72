"""
The shape of the pod template that kavip makes, for a check of a patch before there is a DaemonSet.

It has every name that a patch could meet: containers, their entries of ``env`` and mounts, volumes. The controller
checks each patch again, on the template that it makes.
"""

from typing import Any, Final

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.podtemplate.guard import apply_patch

_ALWAYS: Final[dict[str, Any]] = {
    "hostNetwork": True,
    "dnsPolicy": "Default",
    "shareProcessNamespace": True,
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
}
"""Fields with the same value in every pod."""
_AGENT_MOUNTS: Final = ("/etc/kavip/ca", "/etc/kavip/config", "/etc/kavip/password", "/run/kavip")
_AGENT_SERVICE: Final[dict[str, Any]] = {"ports": [], "livenessProbe": {}, "readinessProbe": {}}
_DAEMON_ENV: Final = ("NODE_NAME", "TMPDIR")
_DAEMON_MOUNTS: Final = ("/run/kavip",)


def check_pod_template(group: KeepalivedGroup, *, privileges: frozenset[str]) -> tuple[Refusal, ...]:
    """What is wrong with ``spec.podTemplate`` of *group*; *privileges*: what the administrator permits."""
    patch = group.spec.pod_template
    return apply_patch(skeleton(group), patch, privileges=privileges).refusals if patch is not None else ()


def skeleton(group: KeepalivedGroup) -> dict[str, Any]:
    """The pod template of *group*, as far as it is known without the settings of kavip."""
    spec = group.spec
    given = {
        "affinity": spec.affinity,
        "nodeSelector": spec.node_selector,
        "serviceAccountName": spec.service_account_name,
    }
    setup, agent = (_container(name, (), _AGENT_MOUNTS) for name in (names.SETUP_CONTAINER, names.AGENT_CONTAINER))
    daemon = {**_container(names.KEEPALIVED_CONTAINER, _DAEMON_ENV, _DAEMON_MOUNTS), "livenessProbe": {}}
    if not spec.agent_image:
        daemon["lifecycle"] = {"preStop": {}}
    return {
        "metadata": {
            "labels": {names.GROUP_LABEL: group.metadata.name},
            "annotations": spec.daemonset_pod_annotations or {},
        },
        "spec": {
            **_ALWAYS,
            **{name: value for name, value in given.items() if value},
            "tolerations": [{"operator": "Exists"}] if spec.tolerations is None else spec.tolerations,
            "initContainers": [setup],
            "containers": [daemon, {**agent, **_AGENT_SERVICE}],
            "volumes": [{"name": name, "emptyDir": {}} for name in ("config", "run")],
        },
    }


def _container(name: str, env: tuple[str, ...], mounts: tuple[str, ...]) -> dict[str, Any]:
    return {
        "name": name,
        "image": "kavip's own",
        "command": ["kavip's own"],
        "env": [{"name": each} for each in env],
        "volumeMounts": [{"name": "kavip's own", "mountPath": each} for each in mounts],
        "securityContext": {},
    }
