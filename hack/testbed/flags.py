"""The command lines of the control plane's programs: pure functions from addresses to flags."""

from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path

from hack.testbed.ports import free_ports


@dataclass(frozen=True, slots=True)
class Address:
    """Where a control plane listens. Port 0 means any free port."""

    host: str = "127.0.0.1"
    port: int = 0
    etcd_port: int = 0
    etcd_peer_port: int = 0
    services: str = "10.96.0.0/16,fd00:96::/112"  # Services may have both families

    @property
    def authority(self) -> str:
        """Host and port, as URLs write them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def first(self) -> list[str]:
        """The addresses of the Service `kubernetes`."""
        return [str(ip_network(each)[1]) for each in self.services.split(",")]

    def chosen(self) -> "Address":
        """A copy with a free port in place of each port 0."""
        api, etcd, peer = free_ports(3)
        return replace(
            self,
            port=self.port or api,
            etcd_port=self.etcd_port or etcd,
            etcd_peer_port=self.etcd_peer_port or peer,
        )


def etcd(state: Path, address: Address) -> list[str]:
    """One member, always on loopback."""
    client = f"http://127.0.0.1:{address.etcd_port}"
    peer = f"http://127.0.0.1:{address.etcd_peer_port}"
    return [
        f"--data-dir={state / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # no data need to survive a power cut
        "--log-level=warn",
    ]


def apiserver(state: Path, address: Address, *, controllers: bool) -> list[str]:
    """`controllers`: whether kube-controller-manager runs; it makes the service accounts that pods need."""
    local = address.host.startswith("127.")
    return [
        f"--etcd-servers=http://127.0.0.1:{address.etcd_port}",
        f"--bind-address={address.host if local else '::'}",
        f"--advertise-address={address.host}",
        f"--secure-port={address.port}",
        # a loopback address may not stand in the `kubernetes` Endpoints
        f"--endpoint-reconciler-type={'none' if local else 'lease'}",
        f"--cert-dir={state}",
        f"--tls-cert-file={state / 'apiserver.crt'}",
        f"--tls-private-key-file={state / 'apiserver.key'}",
        f"--client-ca-file={state / 'ca.crt'}",
        f"--kubelet-client-certificate={state / 'to-kubelet.crt'}",
        f"--kubelet-client-key={state / 'to-kubelet.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={state / 'sa.key'}",
        f"--service-account-signing-key-file={state / 'sa.key'}",
        f"--service-cluster-ip-range={address.services}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--enable-aggregator-routing=true",  # webhooks by endpoint: no kube-proxy needed on the way
        f"--audit-policy-file={state / 'audit-policy.json'}",
        f"--audit-log-path={state / 'audit.log'}",
        "--audit-log-maxsize=4096",  # MiB, so that it is never rotated while a test reads it
        *([] if controllers else ["--disable-admission-plugins=ServiceAccount"]),
    ]


def component(state: Path, name: str, kubeconfig: Path) -> list[str]:
    """kube-controller-manager or kube-scheduler, the only one of its kind."""
    common = [f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
    controllers = [
        f"--service-account-private-key-file={state / 'sa.key'}",
        f"--root-ca-file={state / 'ca.crt'}",
        "--use-service-account-credentials=true",
        f"--flex-volume-plugin-dir={state / 'plugins'}",  # it makes that directory, by default below /usr
    ]
    return common + (controllers if name == "kube-controller-manager" else [])
