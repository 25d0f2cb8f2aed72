"""Text, pods and metrics of keepalived-operator, as its documentation and its users show them."""

from collections.abc import Sequence

import msgspec

from kavip.api.cluster import Pod
from kavip.api.meta import Metadata, OwnerReference
from kavip.api.workload import ConfigMap, Container
from tests.reconcile.simulatedcluster import GROUP, pod


def conf(*instances: str, extra: str = "") -> str:
    """A whole ``keepalived.conf``."""
    return "\n".join(["global_defs {", "    router_id edge", f"    {extra}" if extra else "", "}", "", *instances])


def instance(
    name: str,
    router_id: int,
    *vips: str,
    peers: Sequence[str] = (),
    password: str = "",
    owner: str = "",
    health_port: int = 0,
    lines: Sequence[str] = (),
    interface: str = "eth0",
) -> str:
    """
    One instance. *owner*: the node that ``spreadvips`` prefers. *health_port*: that of a Service with policy ``Local``.
    """
    text = []
    if health_port:
        check = f"/usr/bin/curl --fail --max-time 1 http://127.0.0.1:{health_port}/health"
        text += [f"vrrp_script {name} {{", f'    script "{check}"', "    timeout 10", "    rise 3", "    fall 3", "}"]
    text += [f"vrrp_instance {name} {{", f"    interface {interface}"]
    if owner:
        text += [f"    @{owner} state MASTER", f"    @^{owner} state BACKUP"]
        text += [f"    @{owner} priority 200", f"    @^{owner} priority 100"]
    text += [
        f"    virtual_router_id {router_id} ",
        "    ",
        "    virtual_ipaddress {",
        *(f"      {vip}" for vip in vips),
    ]
    text += ["    }"]
    if peers:
        text += ["    unicast_peer {", *(f"      {peer}" for peer in peers), "    }"]
    if password:
        text += ["    authentication {", "        auth_type PASS", f"        auth_pass {password}", "    }"]
    if health_port:
        text += ["    track_script {", f"        {name}", "    }"]
    return "\n".join([*text, *(f"    {line}" for line in lines), "}"])


def configmap(text: str, group: str = GROUP) -> ConfigMap:
    """The ConfigMap of *group* with *text*."""
    namespace, _, name = group.rpartition("/")
    owner = OwnerReference(
        api_version="redhatcop.redhat.io/v1alpha1",
        kind="KeepalivedGroup",
        name=name,
        uid=f"uid-{group}",
        controller=True,
    )
    metadata = Metadata(name=name, namespace=namespace, labels={"keepalivedGroup": name}, owner_references=[owner])
    return ConfigMap(metadata=metadata, data={"keepalived.conf": text})


def old_pod(node: str) -> Pod:
    """The pod of its DaemonSet on *node*."""
    return _with(pod(f"edge-old-{node}", node), "keepalived", "config-reloader", "prometheus-exporter")


def new_pod(node: str, *, ready: bool = True) -> Pod:
    """kavip's pod on *node*."""
    return _with(pod(f"edge-new-{node}", node, ready=ready), "keepalived", "agent")


def metrics(*states: tuple[str, int, str]) -> str:
    """The exporter's metrics for instances, by name, VRID and state."""
    lines = ["# TYPE keepalived_up gauge", "keepalived_up 1"]
    for name, router_id, state in states:
        labels = f'intf="eth0",name="{name}",state="{state}",vrid="{router_id}"'
        lines += [f"keepalived_vrrp_advert_sent{{{labels}}} 7", f"keepalived_vrrp_become_master{{{labels}}} 1"]
    return "\n".join([*lines, ""])


def _with(found: Pod, *containers: str) -> Pod:
    named = [Container(name=name) for name in containers]
    metadata = msgspec.structs.replace(found.metadata, uid=f"uid-{found.metadata.name}")
    return msgspec.structs.replace(found, metadata=metadata, spec=msgspec.structs.replace(found.spec, containers=named))
