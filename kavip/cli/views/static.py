"""
A group without an API server, as static pods or systemd units: ``kavip render --static``.

This serves the VIP through which the API server itself is reached. It is made from the same ConfigMap and DaemonSet
that the controller would write, so a static pod or a unit runs what a pod of the group would. Everything that needs the
API server is left out, or becomes a folder of the node: ``/etc/kavip/NAMESPACE.NAME`` with ``password`` and
``ca/CHECK.crt``. :func:`required_files` lists the files that must be there.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

import yaml

from kavip import names
from kavip.api.cluster import Node
from kavip.api.group import KeepalivedGroup
from kavip.cli.views.staticnodes import INTERNAL_IP
from kavip.errors import BadFile, BadInput
from kavip.podtemplate.containers import LISTS, OWN_NAMES
from kavip.podtemplate.guard import RESERVED_VOLUMES
from kavip.reconcile.group.manifests import CA_DIR, CONFIG_DIR, PASSWORD_DIR, RUN_DIR
from kavip.snapshot import Object

Manifest = Mapping[str, Any]

CONFIG_ROOT: Final = "/etc/kavip"
UNITS: Final = "etc/systemd/system"
PRIORITY_CLASS: Final = "system-node-critical"
LARGEST: Final = 200 << 10
"""Most bytes of configuration: a static pod has it in annotations, which hold 256 KiB in all."""

ACCESS_DIR: Final = "/etc/kavip/access"
KUBECONFIG: Final = "kubeconfig"
STATE_DIR: Final = "/var/lib/kavip"
"""Where the last nodes are kept: on the node and in the pod."""

_ACCESS: Final = "access"
_STATE: Final = "state"
_PREFIX: Final = "kavip.io/"
_NODE_NAME: Final = "KAVIP_AGENT_NODE_NAME"
_OBJECTS: Final = frozenset(
    {"configMap", "configMapKeyRef", "configMapRef", "secret", "secretKeyRef", "secretRef", "serviceAccountToken"}
)
"""Fields of volumes and variables whose values come from the API."""
_REFERRING: Final = ("serviceAccountName", "imagePullSecrets", "nodeSelector", "affinity")


@dataclass(frozen=True, slots=True)
class StaticGroup:
    """The objects that the controller would make for one group."""

    config_map: Manifest
    daemon_set: Manifest

    @property
    def key(self) -> str:
        """``ns/name``."""
        return f"{self.config_map['metadata']['namespace']}/{self.config_map['metadata']['name']}"

    @property
    def folder(self) -> str:
        """Its folder on a node."""
        return f"{CONFIG_ROOT}/{self.file_name}"

    @property
    def file_name(self) -> str:
        """Its key as one name; a namespace has no dot in its name, so no two groups have the same one."""
        return self.key.replace("/", ".")

    @property
    def pod(self) -> Manifest:
        """The spec of its pods."""
        spec: Manifest = self.daemon_set["spec"]["template"]["spec"]
        return spec


def key_of(body: Manifest) -> str:
    """``ns/name`` of the object *body*."""
    return f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class Following:
    """How agents keep the nodes current; *bootstrap*: the node that ranks first until its agent stops."""

    bootstrap: str = ""


def groups_of(objects: Sequence[Manifest], *, following: Following | None = None) -> tuple[StaticGroup, ...]:
    """The groups with a ConfigMap and a DaemonSet in *objects*. Raises :class:`BadInput`."""
    found: dict[str, dict[str, Manifest]] = {}
    for body in objects:
        found.setdefault(key_of(body), {})[body["kind"]] = body
    pairs = ((each.get(names.CONFIG_MAP), each.get(names.DAEMON_SET)) for _, each in sorted(found.items()))
    groups = [StaticGroup(_without_controller(config), pods) for config, pods in pairs if config and pods]
    for each in groups:
        for field, kind in _references(each.pod):
            raise BadInput(f"{each.key}: spec.podTemplate.{field}", kind, "without the API server there is none")
    return tuple(_following(each, following) if following else each for each in groups)


def _references(pod: Manifest) -> Iterator[tuple[str, str]]:
    """The parts of *pod* that a template has added and that refer to objects of the API, each with the kind."""
    for volume in pod["volumes"]:
        name, own = volume["name"], RESERVED_VOLUMES.fullmatch(volume["name"])
        kinds = {kind for each in (volume, *volume.get("projected", {}).get("sources", ())) for kind in each}
        yield from ((f"spec.volumes[{name}]", kind) for kind in sorted(kinds & _OBJECTS) if not own)
    for field in LISTS:
        for each in pod.get(field, ()):
            where = f"spec.{field}[{each['name']}]"
            kinds = {kind for one in each.get("envFrom", ()) for kind in one}
            kinds |= {kind for one in each.get("env", ()) for kind in one.get("valueFrom", ())}
            yield from ((where, kind) for kind in sorted(kinds & _OBJECTS))


def _without_controller(config_map: Manifest, **more: object) -> Manifest:
    """*config_map*, marked as static: without a controller, nodes cannot switch at one instant."""
    meta = {**json.loads(config_map["data"][names.AGENT_KEY]), "static": True, **more}
    meta.pop("conflictDetection", None)  # the controller compares what agents hear
    return {**config_map, "data": {**config_map["data"], names.AGENT_KEY: json.dumps(meta, separators=(",", ":"))}}


def _following(group: StaticGroup, following: Following) -> StaticGroup:
    """*group* with agents that keep its nodes current: the Nodes that the nodeSelector of its pods picks."""
    text, first = group.config_map["data"][names.CONFIG_KEY], following.bootstrap
    if not all("\n    unicast_peer {\n" in block for block in text.split("\nvrrp_instance ")[1:]):
        remedy = "only unicast has peers: set unicastEnabled to true, and give --node an address of each family"
        raise BadInput(group.key, "--follow-nodes", remedy)
    if first and not re.search(rf"^    @{re.escape(first)} priority ", text, re.MULTILINE):
        raise BadInput("--bootstrap", first, f"want a node of group {group.key}: name it with --node too")
    for taken in {_ACCESS, _STATE} & {each["name"] for each in group.pod["volumes"]}:
        raise BadInput(
            f"{group.key}: spec.podTemplate.spec.volumes", taken, "--follow-nodes has this name; want another"
        )
    selector = ",".join(f"{key}={value}" for key, value in sorted((group.pod.get("nodeSelector") or {}).items()))
    follow = {key: value for key, value in (("selector", selector), ("first", first)) if value}
    return StaticGroup(_without_controller(group.config_map, follow=follow), _with_access(group))


def _with_access(group: StaticGroup) -> Manifest:
    """The DaemonSet of *group*, whose agents have the kubeconfig and a folder for the last nodes."""
    mounts = [
        {"name": _ACCESS, "mountPath": ACCESS_DIR, "readOnly": True},
        {"name": _STATE, "mountPath": STATE_DIR},
    ]
    env = [
        {"name": "KAVIP_AGENT_KUBECONFIG", "value": f"{ACCESS_DIR}/{KUBECONFIG}"},
        {"name": "KAVIP_AGENT_STATE_DIR", "value": STATE_DIR},
    ]
    agents = {names.AGENT_CONTAINER, names.SETUP_CONTAINER}

    def with_access(container: Manifest) -> Manifest:
        if container["name"] not in agents:
            return container
        return {**container, "env": [*container["env"], *env], "volumeMounts": [*container["volumeMounts"], *mounts]}

    folders = ((_ACCESS, f"{group.folder}/{_ACCESS}"), (_STATE, f"{STATE_DIR}/{group.file_name}"))
    volumes = [{"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, path in folders]
    pod = {
        **group.pod,
        "initContainers": [with_access(each) for each in group.pod["initContainers"]],
        "containers": [with_access(each) for each in group.pod["containers"]],
        "volumes": [*group.pod["volumes"], *volumes],
    }
    spec = group.daemon_set["spec"]
    return {**group.daemon_set, "spec": {**spec, "template": {**spec["template"], "spec": pod}}}


def check_group(key: str, objects: Iterable[Object]) -> None:
    """
    Raise :class:`BadInput` if *key* is none of the groups among *objects*, with the one that is probably meant.

    "" is any of them; raise :class:`BadFile` if there is none.
    """
    keys = sorted(each.metadata.key for each in objects if isinstance(each, KeepalivedGroup))
    if not keys:
        raise BadFile("--filename", "no KeepalivedGroup in these files; name the file of the group too")
    if key and key not in keys:
        meant = next(iter(get_close_matches(key, keys, 1)), "")
        raise BadInput("--group", key, "no such group in the files" + (f"; did you mean {meant}?" if meant else ""))


def yaml_of(manifest: Manifest) -> str:
    """*manifest* as a YAML document."""
    return "---\n" + yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=1000)


class _Dumper(yaml.SafeDumper):
    """YAML for people: multi-line texts as blocks, no aliases."""

    def ignore_aliases(self, _data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def static_pod(group: StaticGroup) -> Manifest:
    """
    The pod for the kubelet's folder of static pods, the same for every node.

    It may not refer to objects of the API, so its configuration is in its annotations. Raises :class:`BadInput` where
    that is too large.
    """
    data: Mapping[str, str] = group.config_map["data"]
    if (size := sum(map(len, data.values()))) > LARGEST:
        remedy = f"a static pod carries at most {LARGEST:,}; leave Services to the cluster, or use --static unit"
        raise BadInput(group.key, f"{size:,} bytes of configuration", remedy)
    namespace, _, name = group.key.partition("/")
    kept = {key: value for key, value in group.pod.items() if key not in _REFERRING}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"kavip-{name}",
            "namespace": namespace,
            "labels": {"app.kubernetes.io/name": "kavip", "kavip.io/static": name},
            "annotations": {f"{_PREFIX}{key}": value for key, value in sorted(data.items())},
        },
        "spec": {
            **kept,
            "priorityClassName": group.pod.get("priorityClassName", PRIORITY_CLASS),
            "volumes": [_volume(group, each) for each in group.pod["volumes"]],
        },
    }


def systemd_files(group: StaticGroup, nodes: Sequence[Node]) -> Mapping[str, str]:
    """The files of each node for systemd, by path: ``NODE/etc/...``. Raises :class:`BadInput` for other programs."""
    for field in LISTS:
        for added in sorted({each["name"] for each in group.pod.get(field, ())} - OWN_NAMES):
            where = f"{group.key}: spec.podTemplate.spec.{field}"
            raise BadInput(where, added, "units run kavip's own programs only; remove it, or use --static pod")
    unit = f"kavip-{group.key.replace('/', '.')}"
    found: dict[str, str] = {}
    for node in nodes:
        root, name = f"{node.metadata.name}{group.folder}", node.metadata.name
        address = next(iter(node.addresses(INTERNAL_IP)), "")
        for key, value in group.config_map["data"].items():
            found[f"{root}/{key}"] = value
        found[f"{root}/node.env"] = f"{_NODE_NAME}={name}\nKAVIP_AGENT_NODE_IP={address}\n"
        found[f"{name}/{UNITS}/{unit}.service"] = _keepalived_unit(group, unit)
        found[f"{name}/{UNITS}/{unit}-agent.service"] = _agent_unit(group, unit)
    return dict(sorted(found.items()))


def required_files(group: StaticGroup) -> tuple[str, ...]:
    """The files that must be on each node besides, one line each: without the API they cannot be fetched."""
    lines: list[str] = []
    for volume in group.pod["volumes"]:
        name = volume["name"]
        folder = f"{group.folder}/{name.replace('-', '/')}"
        if name == _ACCESS:
            lines.append(f"needs {folder}/{KUBECONFIG}: a kubeconfig that may list nodes, for root alone")
        if secret := volume.get("secret"):
            meta = json.loads(group.config_map["data"][names.AGENT_KEY])
            key = meta["password"].rpartition("/")[2]
            lines.append(f"needs {folder}/{key}: key {key} of Secret {secret['secretName']}, for root alone")
        for source in volume.get("projected", {}).get("sources", ()) if RESERVED_VOLUMES.fullmatch(name) else ():
            ((kind, origin),) = source.items()
            (item,) = origin["items"]
            named = f"{kind[:1].upper()}{kind[1:]} {origin['name']}"
            lines.append(f"needs {folder}/{item['path']}: key {item['key']} of {named}")
    return tuple(lines)


def _volume(group: StaticGroup, volume: Manifest) -> Manifest:
    """The volume of a static pod in place of *volume*."""
    match volume["name"]:
        case "config":
            items = [
                {"path": key, "fieldRef": {"fieldPath": f"metadata.annotations['{_PREFIX}{key}']"}}
                for key in sorted(group.config_map["data"])
            ]
            mode = volume["configMap"]["defaultMode"]
            return {"name": "config", "downwardAPI": {"items": items, "defaultMode": mode}}
        case str() as name if RESERVED_VOLUMES.fullmatch(name) and {"secret", "projected"} & volume.keys():
            path = f"{group.folder}/{name.replace('-', '/')}"
            return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
    return volume


def _container(group: StaticGroup, name: str) -> Manifest:
    return next(each for each in (*group.pod["initContainers"], *group.pod["containers"]) if each["name"] == name)


def _on_node(group: StaticGroup, unit: str, text: str) -> str:
    """*text* with the group's folders on a node in place of those of a pod."""
    places = ((CONFIG_DIR, group.folder), (PASSWORD_DIR, f"{group.folder}/password"), (CA_DIR, f"{group.folder}/ca"))
    folders = ((ACCESS_DIR, f"{group.folder}/{_ACCESS}"), (STATE_DIR, f"/var/lib/{unit}"), (RUN_DIR, f"/run/{unit}"))
    for in_pod, on_node in (*places, *folders):
        text = text.replace(in_pod, on_node)
    return text.replace("$(NODE_NAME)", f"${{{_NODE_NAME}}}")


def _environment(group: StaticGroup, unit: str) -> list[str]:
    """The agent's environment; the node's own part is in a file."""
    plain = [each for each in _container(group, names.AGENT_CONTAINER)["env"] if "value" in each]
    lines = [f"Environment={each['name']}={_on_node(group, unit, each['value'])}" for each in plain]
    folders = [f"Environment=KAVIP_AGENT_CA_DIR={group.folder}/ca", f"Environment=TMPDIR=/run/{unit}"]
    # Both units use the folder and neither removes it: the agent cleans up what a killed keepalived left.
    shared = [f"RuntimeDirectory={unit}", "RuntimeDirectoryPreserve=yes"]
    if any(each["name"] == _STATE for each in group.pod["volumes"]):
        shared.append(f"StateDirectory={unit}")
    return [f"EnvironmentFile={group.folder}/node.env", *lines, *folders, *shared]


def _keepalived_unit(group: StaticGroup, unit: str) -> str:
    setup = " ".join(_container(group, names.SETUP_CONTAINER)["command"])
    command = " ".join(_container(group, names.KEEPALIVED_CONTAINER)["command"])
    return _lines(
        "[Unit]",
        f"Description=keepalived of KeepalivedGroup {group.key}",
        "Wants=network-online.target",
        "After=network-online.target",
        "",
        "[Service]",
        *_environment(group, unit),
        f"ExecStartPre=/usr/bin/env {setup}",
        f"ExecStart={_on_node(group, unit, command)}",
        "Restart=always",
        "RestartSec=1",
        *_confined("CAP_NET_ADMIN CAP_NET_RAW"),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    )


def _agent_unit(group: StaticGroup, unit: str) -> str:
    command = " ".join(_container(group, names.AGENT_CONTAINER)["command"])
    return _lines(
        "[Unit]",
        f"Description=kavip agent of KeepalivedGroup {group.key}",
        f"After={unit}.service",
        "",
        "[Service]",
        *_environment(group, unit),
        f"ExecStart=/usr/bin/env {command}",
        # It stops before keepalived, and hands the VIPs over first; a restart leaves them.
        "KillSignal=SIGQUIT",
        "RestartKillSignal=SIGTERM",
        "Restart=always",
        "RestartSec=1",
        *_confined("CAP_NET_ADMIN"),
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    )


def _confined(capabilities: str) -> tuple[str, ...]:
    return (
        f"CapabilityBoundingSet={capabilities}",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "ProtectHome=yes",
    )


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"
