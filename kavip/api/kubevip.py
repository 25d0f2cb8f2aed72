"""
What users of kube-vip write: annotations of Services, keys of the ConfigMap ``kubevip``, variables of its pods.

Read in kube-vip after 1.0 (2026-08) and kube-vip-cloud-provider after 0.0.12 (2026-02); their programs were not run.
"""

from typing import Final

from kavip.api.meta import Passthrough, Wire

PREFIX: Final = "kube-vip.io/"
CLASS: Final = "kube-vip.io/kube-vip-class"
CONFIG_MAP: Final = "kubevip"
NAMESPACE: Final = "kube-system"

ADDRESSES: Final = "loadbalancerIPs"
IGNORE: Final = "ignore"
WRITTEN: Final = ("vipHost", "active-endpoint", "active-endpoint-ipv6", "egress-nftables-table")
"""Annotations that kube-vip writes itself."""

GLOBAL: Final = "global"
"""The end of a key that applies to all namespaces without a key of their own."""
DHCP: Final = "0.0.0.0"  # noqa: S104 - nothing binds to it
SEARCH_ORDER: Final = "search-order"
SKIP_ENDS: Final = "skip-end-ips-in-cidr"

MARKERS: Final = ("vip_arp", "vip_interface", "svc_enable", "cp_enable", "bgp_enable")
"""Variables by which a container is recognized as kube-vip."""


class EnvVar(Wire, frozen=True):
    """``env[]`` of a container, without variables from elsewhere."""

    name: str
    value: str = ""


class Container(Wire, frozen=True):
    """A container of kube-vip."""

    name: str = ""
    env: list[EnvVar] | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The variables; empty if the container is not kube-vip's."""
        found = {each.name: each.value for each in self.env or ()}
        return found if any(name in found for name in MARKERS) else {}


class NodeAffinity(Wire, frozen=True):
    """``affinity``; only the part about nodes is kept."""

    node_affinity: Passthrough | None = None


class PodSpec(Wire, frozen=True):
    """``spec`` of a pod, or of a DaemonSet's template."""

    containers: list[Container] = []
    node_selector: dict[str, str] | None = None
    affinity: NodeAffinity | None = None
    tolerations: list[Passthrough] | None = None


class Template(Wire, frozen=True):
    """``template``."""

    spec: PodSpec = PodSpec()


class DaemonSetSpec(Wire, frozen=True):
    """``spec`` of a DaemonSet."""

    template: Template = Template()
