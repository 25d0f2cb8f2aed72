"""
The objects of one group as data, for server-side apply: ConfigMap, DaemonSet, and the objects for Prometheus.

Every value from a user stays a string if Kubernetes requires one; no value is ever inserted into text. A field that is
absent from the group is absent here too, so that server-side apply removes it.
"""

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.agentconfig import DetectionConfig, LocalTrack, encode_config
from kavip.api.group import CaFrom, GroupSpec, KeepalivedGroup
from kavip.reconcile.rollout.configmap import PublishedRevisions, agent_config, secret_folder
from kavip.vrrp import targets, tracking

CONFIG_DIR: Final = "/etc/kavip/config"
PASSWORD_DIR: Final = "/etc/kavip/password"  # noqa: S105 - a folder
RUN_DIR: Final = "/run/kavip"
CA_DIR: Final = "/etc/kavip/ca"

# Names of `--config-id` and of paths are fixed; $(NODE_NAME) is replaced by kubelet. `exec` form: no shell.
KEEPALIVED_COMMAND: Final = (
    "/usr/sbin/keepalived",
    "--dont-fork",
    "--log-console",
    "--no-syslog",  # without /dev/log libc writes to the console, and blocks
    "--vrrp",
    "--no_bfd",
    f"--use-file={RUN_DIR}/keepalived.conf",
    f"--pid={RUN_DIR}/keepalived.pid",
    f"--vrrp_pid={RUN_DIR}/vrrp.pid",
    "--config-id=$(NODE_NAME)",
)
_CLUSTER_CA: Final = CaFrom(name="kube-root-ca.crt")
"""The ConfigMap with the CA of the API server, which every namespace has."""
_READABLE: Final = 0o444  # keepalived refuses a configuration file with an x bit
_OWNER_ONLY: Final = 0o400
_DEFAULT_RESOURCES: Final = {"requests": {"cpu": "10m", "memory": "32Mi"}}
_TOLERATE_ALL: Final = [{"operator": "Exists"}]

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})

MONITORING: Final = (names.POD_MONITOR, names.ROLE, names.ROLE_BINDING)
"""The kinds of the objects for Prometheus."""
PROMETHEUS_ACCESS: Final = frozenset({names.ROLE, names.ROLE_BINDING})
"""Those of them whose name has a suffix after the group's name."""

_RBAC: Final = "rbac.authorization.k8s.io"

Manifest = dict[str, Any]


def config_map(
    group: KeepalivedGroup,
    published: PublishedRevisions,
    *,
    key: str = names.CONFIG_KEY,
    leaders: Collection[str] = (),
    tracks: Sequence[LocalTrack] = (),
    detection: DetectionConfig | None = None,
    interfaces: Sequence[str] = (),
) -> Manifest:
    """
    The ConfigMap: keepalived's text under *key*, the next text, and ``agent.json`` for the agents.

    *leaders*: see :mod:`~kavip.reconcile.takeover.progress`. *tracks*: the ``locals`` of ``agent.json``. *detection*:
    see :mod:`~kavip.reconcile.group.detection`. *interfaces*: those that agents look for although no instance names
    them.
    """
    current, following = published.current, published.next
    config = msgspec.structs.replace(
        agent_config(published),
        group=group.key,
        leads=tuple(sorted(leaders)),
        checks=tuple(tracking.checks_of(group.spec)),
        locals=tuple(tracks),
        conflict_detection=detection,
        interfaces=tuple(interfaces),
    )
    data = {names.AGENT_KEY: encode_config(config), key: current.written}
    metadata = metadata_of(group)
    if config.switch_at:
        metadata["annotations"] = {names.SWITCH_AT_ANNOTATION: config.switch_at}
    body: Manifest = {"apiVersion": "v1", "kind": names.CONFIG_MAP, "metadata": metadata, "data": data}
    if following is not None and following.content != current.content:
        body["binaryData"] = {names.NEXT_KEY: base64.b64encode(following.compressed).decode()}
    return body


def daemon_set(
    group: KeepalivedGroup,
    *,
    image: str,
    port: int,
    allowed_cidrs: str = "",
    metrics: str = names.Exporter.GEN2BRAIN.value,
    strategy: Mapping[str, Any] | None = None,
    secrets: Collection[str] = (),
    pull_policy: str = names.PULL_POLICY,
    pull_secrets: Sequence[str] = (),
) -> Manifest:
    """
    The DaemonSet: keepalived and its agent on every node of the group.

    *image*: kavip's own. *allowed_cidrs*: the clients that the agents answer, comma-separated. *metrics*: the exporter
    whose metric names the agents use. *strategy*: an update strategy that overrides the group's own. *secrets*: the
    Secrets with the passwords that nodes run, or switch to. *pull_policy*: that of kavip's own image. *pull_secrets*:
    the administrator's pull secrets, after the group's own.
    """
    settings = {"KAVIP_AGENT_PORT": str(port)}
    if allowed_cidrs:
        settings["KAVIP_AGENT_ALLOWED_CIDRS"] = allowed_cidrs
    if metrics != names.Exporter.GEN2BRAIN:  # the default is left out: adding it would restart all agents
        settings["KAVIP_AGENT_METRICS"] = metrics
    if secrets:
        settings["KAVIP_AGENT_PASSWORD_DIR"] = PASSWORD_DIR
    spec, labels = group.spec, {names.GROUP_LABEL: group.metadata.name}
    pod = _pod(group, image=image, port=port, settings=settings, secrets=sorted(secrets))
    for container in (*pod["initContainers"], *pod["containers"]):
        if container["image"] == image:  # the policy is not about other images that the group names
            container["imagePullPolicy"] = pull_policy
    if wanted := _pull_secrets(spec, pull_secrets):
        pod["imagePullSecrets"] = wanted
    template: Manifest = {"metadata": {"labels": labels}, "spec": pod}
    if spec.daemonset_pod_annotations:
        template["metadata"]["annotations"] = dict(sorted(spec.daemonset_pod_annotations.items()))
    body: Manifest = {"selector": {"matchLabels": labels}, "template": template}
    if strategy or spec.update_strategy:
        body["updateStrategy"] = strategy or spec.update_strategy
    return {"apiVersion": "apps/v1", "kind": names.DAEMON_SET, "metadata": metadata_of(group), "spec": body}


def monitoring(group: KeepalivedGroup, *, account: str) -> tuple[Manifest, ...]:
    """
    PodMonitor, Role and RoleBinding for the Prometheus that runs as *account* (``ns/name``).

    They are as keepalived-operator made them. The Role lets Prometheus discover pods in the group's namespace.
    """
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


def digest(value: object) -> str:
    """A short hash of JSON-like *value*: the same for the same content."""
    return hashlib.sha256(_json(value).encode()).hexdigest()[:16]


def _json(value: object) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


def metadata_of(group: KeepalivedGroup, *, name: str = "", labels: Mapping[str, str] = NO_LABELS) -> Manifest:
    """Metadata of an object that *group* owns; its name is *name*, else the group's."""
    owner = {
        "apiVersion": f"{names.REDHATCOP_GROUP}/{names.VERSION}",
        "kind": names.KEEPALIVED_GROUP,
        "name": group.metadata.name,
        "uid": group.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,  # on OpenShift this needs `update` on the group's finalizers: config/rbac
    }
    return {
        "name": name or group.metadata.name,
        "namespace": group.metadata.namespace,
        "labels": {names.GROUP_LABEL: group.metadata.name, **labels},
        "ownerReferences": [owner],
    }


def _pod(
    group: KeepalivedGroup, *, image: str, port: int, settings: Mapping[str, str], secrets: Sequence[str]
) -> Manifest:
    spec = group.spec
    agent = partial(
        _container,
        spec=spec,
        image=spec.agent_image or image,
        env=_agent_env(settings),
        mounts=_agent_mounts(spec, secrets),
    )
    daemon_image = image if spec.image == names.DEFAULT_IMAGE else spec.image
    optional = {
        "priorityClassName": spec.daemonset_pod_priority_class_name,
        "nodeSelector": dict(sorted((spec.node_selector or {}).items())),
        "serviceAccountName": spec.service_account_name,
        "affinity": spec.affinity,
    }
    return {
        "hostNetwork": True,
        "dnsPolicy": "Default",  # the node's resolver: nothing here may depend on the cluster's DNS
        "shareProcessNamespace": True,  # the agent signals keepalived
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": _TOLERATE_ALL if spec.tolerations is None else spec.tolerations,
        "initContainers": [agent(names.SETUP_CONTAINER, command=["kavip", "agent", "--once"])],
        "containers": [
            _keepalived_container(spec, daemon_image, port),
            {**agent(names.AGENT_CONTAINER, command=["kavip", "agent"]), **_agent_service(port)},
        ],
        "volumes": _volumes(group, secrets),
        **{name: value for name, value in optional.items() if value},
    }


def _pull_secrets(spec: GroupSpec, further: Sequence[str]) -> list[Any]:
    """The pull secrets of the group, and those of the administrator that it does not name."""
    own: list[Any] = spec.image_pull_secrets or []
    return [*own, *({"name": name} for name in further if {"name": name} not in own)]


def _keepalived_container(spec: GroupSpec, image: str, port: int) -> Manifest:
    container = _container(
        names.KEEPALIVED_CONTAINER, spec=spec, image=image, command=list(KEEPALIVED_COMMAND), env=_keepalived_env()
    )
    # The agent asks keepalived for a new dump. A minute of patience: a restart moves VIPs.
    container["livenessProbe"] = _probe(names.LIVE_PATH, port, period=10, failures=6)
    if not spec.agent_image:  # another agent may not know the page, and a new hook would replace all pods
        container["lifecycle"] = {"preStop": {"httpGet": _handover(port)}}
    return container


def _handover(port: int) -> Manifest:
    """The agent answers when other nodes have the VIPs; kubelet asks on the network of the node."""
    return {"path": names.HANDOVER_PATH, "port": port, "host": names.HANDOVER_HOST, "scheme": "HTTP"}


def _agent_service(port: int) -> Manifest:
    """The port and the probes of the agent that runs beside keepalived."""
    return {
        "ports": [{"name": names.METRICS_PORT_NAME, "containerPort": port, "hostPort": port, "protocol": "TCP"}],
        "livenessProbe": _probe(names.STATE_PATH, port, period=10, failures=6),  # any answer
        "readinessProbe": _probe(names.READY_PATH, port, period=2, failures=3),
    }


def _container(
    name: str,
    *,
    spec: GroupSpec,
    image: str,
    command: list[str],
    env: list[Manifest],
    mounts: Sequence[Manifest] = (),
) -> Manifest:
    # An agent of another version gets no right that it may not use; and a new one would replace all pods.
    is_raw = name == names.KEEPALIVED_CONTAINER or not spec.agent_image
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": names.PULL_POLICY,
        "command": command,
        "env": env,
        "resources": _DEFAULT_RESOURCES if spec.resources is None else spec.resources,
        # One uid for agent and daemon: signals and dump files (0600) need no further capability. It is root, because
        # Kubernetes gives no ambient capabilities to other users. The agent deletes the VIPs of a killed daemon.
        "securityContext": {
            "runAsUser": 0,
            "runAsGroup": 0,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW"] if is_raw else ["NET_ADMIN"]},
        },
        "volumeMounts": [{"name": "run", "mountPath": RUN_DIR}, *mounts],
    }


def _field_env(name: str, path: str) -> Manifest:
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def _keepalived_env() -> list[Manifest]:
    return [_field_env("NODE_NAME", "spec.nodeName"), {"name": "TMPDIR", "value": RUN_DIR}]


def _agent_env(settings: Mapping[str, str]) -> list[Manifest]:
    plain: Mapping[str, str] = {"KAVIP_AGENT_CONFIG_DIR": CONFIG_DIR, "KAVIP_AGENT_RUN_DIR": RUN_DIR, **settings}
    return [
        _field_env("KAVIP_AGENT_NODE_NAME", "spec.nodeName"),
        _field_env("KAVIP_AGENT_NODE_IP", "status.hostIP"),
        *({"name": name, "value": value} for name, value in sorted(plain.items())),
    ]


def _probe(path: str, port: int, *, period: int, failures: int) -> Manifest:
    return {
        "httpGet": {"path": path, "port": port, "scheme": "HTTP"},  # host: the pod's IP, which is the node's
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _agent_mounts(spec: GroupSpec, secrets: Sequence[str]) -> list[Manifest]:
    mounts: list[Manifest] = [{"name": "config", "mountPath": CONFIG_DIR, "readOnly": True}]
    mounts += [_password_mount(secret) for secret in secrets]
    if _ca_sources(spec):
        mounts.append({"name": "ca", "mountPath": CA_DIR, "readOnly": True})
    return mounts


def _password_mount(secret: str) -> Manifest:
    return {"name": _password_volume(secret), "mountPath": f"{PASSWORD_DIR}/{secret_folder(secret)}", "readOnly": True}


def _password_volume(secret: str) -> str:
    return f"password-{secret_folder(secret)}"


def _volumes(group: KeepalivedGroup, secrets: Sequence[str]) -> list[Manifest]:
    config = {"name": group.metadata.name, "defaultMode": _READABLE}
    volumes: list[Manifest] = [
        {"name": "config", "configMap": config},
        {"name": "run", "emptyDir": {"medium": "Memory"}},
    ]
    for name in secrets:
        # Optional: a pod without its password starts, and its agent reports what is missing.
        secret = {"secretName": name, "optional": True, "defaultMode": _OWNER_ONLY}
        volumes.append({"name": _password_volume(name), "secret": secret})
    if sources := _ca_sources(group.spec):
        volumes.append({"name": "ca", "projected": {"sources": sources, "defaultMode": _READABLE}})
    return volumes


def _ca_sources(spec: GroupSpec) -> list[Manifest]:
    """The CAs of the checks, as CHECK.crt. They are optional: a pod without one starts, and its agent reports it."""
    found: list[Manifest] = []
    for check in tracking.checks_of(spec):
        origin = _CLUSTER_CA if check.url == targets.KUBE_APISERVER else check.ca_from
        if origin is not None:
            source = "secret" if origin.kind == names.SECRET else "configMap"
            item = {"key": origin.key, "path": f"{check.name}.crt"}
            found.append({source: {"name": origin.name, "items": [item], "optional": True}})
    return found
