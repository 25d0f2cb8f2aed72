"""
A node: a host of the segment that runs containerd, kubelet and kube-proxy.

Files below its home (images, volumes) stay; /run and /var are lost when it is switched off. The flags are those of an
ordinary node; a comment explains each exception.
"""

import json
from pathlib import Path

from hack.testbed import images, process
from hack.testbed.dns import DOMAIN
from hack.testbed.programs import Programs
from hack.testbed.segment import Address, Host

PODS = ("198.18.0.0/16", "2001:db8:18::/48")
REGISTRIES = "certs.d"
"""The directory, in the home of a node, where containerd looks for registries when it pulls; there need be none."""
_SOCKET = "/run/containerd/containerd.sock"
_PLUGINS = "/usr/lib/cni"


class Node(Host):
    """A node of a cluster. After `start`, call `start_runtime` and `join`."""

    def __init__(self, name: str, home: Path, number: int, programs: Programs) -> None:
        super().__init__(name, home, number)
        self.dns: tuple[str, ...] = ()  # the cluster's name servers, for pods
        self.kubelet: dict[str, object] = {}  # fields of its configuration that differ from those of other nodes
        self.proxy_mode = "nftables"  # kernels without IPVS and xt_statistic have this one
        self._programs = programs

    def start_runtime(self) -> None:
        """Start containerd."""
        config = self.home / "containerd.toml"
        config.write_text(_containerd(self.home))
        (self.home / "cni").mkdir(exist_ok=True)
        (self.home / "cni" / "10-pods.conflist").write_text(json.dumps(_network(self)))
        self.spawn("containerd", f"--config={config}", log=self.home / "containerd.log")
        inside = Path(f"/proc/{self.init}/root{_SOCKET}")
        process.wait_for(f"containerd on {self.name}", inside.is_socket, timeout=150)

    def load(self, *archives: Path) -> None:
        """Import images into containerd, as a pull would."""
        for archive in archives:
            self.exec("ctr", "--namespace=k8s.io", "images", "import", str(archive), timeout=300)

    def join(self, state: Path) -> None:
        """Start kubelet and kube-proxy with the kubeconfigs in the cluster's state directory."""
        config = self.home / "kubelet.json"
        (self.home / "manifests").mkdir(exist_ok=True)
        config.write_text(json.dumps({**_kubelet(self.home, state / "ca.crt", self.dns), **self.kubelet}))
        self.spawn(
            self._programs["kubelet"],
            f"--config={config}",
            f"--kubeconfig={state / f'system-node-{self.name}.kubeconfig'}",
            f"--root-dir={self.home / 'kubelet'}",
            f"--cert-dir={self.home / 'pki'}",
            f"--hostname-override={self.name}",
            f"--node-ip={','.join(self.spoken(self.ipv4, self.ipv6))}",
            log=self.home / "kubelet.log",
        )
        self.spawn(
            self._programs["kube-proxy"],
            f"--kubeconfig={state / 'system-kube-proxy.kubeconfig'}",
            f"--hostname-override={self.name}",
            f"--proxy-mode={self.proxy_mode}",
            f"--cluster-cidr={','.join(self.spoken(*PODS))}",
            "--conntrack-max-per-core=0",  # 0: do not set sysctls of the real machine
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
            log=self.home / "kube-proxy.log",
        )


def pod_routes(to: Address) -> tuple[str, str]:
    """The routes to the pods of another node."""
    return f"198.18.{to.number}.0/24 via {to.ipv4}", f"2001:db8:18:{to.number}::/64 via {to.ipv6}"


def _network(node: Node) -> dict[str, object]:
    """
    The CNI configuration: a veth pair from each pod to its node, and routes. Without a bridge every packet passes the
    node's nftables.
    """
    subnets = node.spoken(f"198.18.{node.number}.0/24", f"2001:db8:18:{node.number}::/64")
    routes = [{"dst": dst} for dst in node.spoken("0.0.0.0/0", "::/0")]
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}] for subnet in subnets], "routes": routes}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": ipam}]}


def _containerd(home: Path) -> str:
    return f"""version = 2
root = "{home}/containerd"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{images.PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = true  # root of a container or sandbox may lack CAP_SYS_RESOURCE
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "{home / REGISTRIES}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{_PLUGINS}"
  conf_dir = "{home}/cni"
"""


def _kubelet(home: Path, ca: Path, dns: tuple[str, ...]) -> dict[str, object]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(ca)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{_SOCKET}",
        "volumePluginDir": str(home / "plugins"),
        "staticPodPath": str(home / "manifests"),
        "resolvConf": "",
        **({"clusterDNS": list(dns), "clusterDomain": DOMAIN} if dns else {}),
        # works with cgroup v1 and v2: containers have cgroups, nodes and QoS classes do not
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": False,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "syncFrequency": "10m0s",  # so that a test detects waits for kubelet's period
        # the disk is the real machine's, not the node's: a full disk must not evict pods
        "localStorageCapacityIsolation": False,
        "evictionHard": dict.fromkeys(("memory.available", "nodefs.available", "imagefs.available"), "0%"),
        "imageGCHighThresholdPercent": 100,
    }
