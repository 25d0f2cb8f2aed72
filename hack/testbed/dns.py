"""Cluster DNS: CoreDNS on the machine of the control plane, behind the Service kube-system/kube-dns.

It is no pod, so that it needs no image. The Service has no selector; its EndpointSlices name that machine.
"""

from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

DOMAIN = "cluster.local"
USER = "system:coredns"
_NAME, _NAMESPACE = "kube-dns", "kube-system"
_PORTS = (("dns", "UDP"), ("dns-tcp", "TCP"))
_RULES = [
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces", "endpoints"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
]


def addresses(services: str) -> tuple[str, ...]:
    """The Service's address in each Service network: the tenth, as kubeadm has it."""
    return tuple(str(ip_network(each)[10]) for each in services.split(","))


def corefile(kubeconfig: Path) -> str:
    """CoreDNS' configuration: the cluster's names, and no answer for others."""
    return f""".:53 {{
    errors
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
    cache 5
    loadbalance
}}
"""


def objects(cluster_ips: Sequence[str], endpoints: Sequence[str]) -> list[dict[str, Any]]:
    """The Service, its EndpointSlices, and what CoreDNS may read."""
    families = [_family(each) for each in cluster_ips]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE, "labels": {"k8s-app": _NAME}},
        "spec": {
            "clusterIP": cluster_ips[0],
            "clusterIPs": list(cluster_ips),
            "ipFamilies": families,
            "ipFamilyPolicy": "SingleStack" if len(families) == 1 else "RequireDualStack",
            "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in _PORTS],
        },
    }
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": USER}}
    binding = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}],
    }
    slices = [_slice(address) for address in endpoints]
    return [{**role, "kind": "ClusterRole", "rules": _RULES}, binding, service, *slices]


def _slice(address: str) -> dict[str, Any]:
    family = _family(address)
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{_NAME}-{family.lower()}",
            "namespace": _NAMESPACE,
            "labels": {"kubernetes.io/service-name": _NAME},
        },
        "addressType": family,
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
        "ports": [{"name": name, "port": 53, "protocol": protocol} for name, protocol in _PORTS],
    }


def _family(address: str) -> str:
    return f"IPv{ip_address(address).version}"
