"""Disturbances of kavip while Services are written: each returns when all replicas are ready again."""

import base64
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from hack.testbed.cluster import Cluster
from hack.testbed.process import Process, wait_for
from kavip import names
from kavip.pki.trustbundle import parse_bundle
from kavip.pki.verification import has_signed

NAMESPACE: Final = "kavip"
CHART: Final = Path(__file__).parents[2] / "charts" / "kavip"
_OWN: Final = f"--namespace={NAMESPACE}"
_RELEASE: Final = "--selector=app.kubernetes.io/instance=kavip"
_PODS: Final = "--selector=app.kubernetes.io/part-of=kavip"
_WEBHOOK: Final = "--selector=app.kubernetes.io/name=kavip"
_SERVING: Final = (["webhook"], ["run"])  # the commands, one for each topology
_PATIENCE: Final = 240.0
_SHOW: Final = (
    "import ssl, sys; [print(ssl.get_server_certificate((host, sys.argv[1]), timeout=2)) for host in sys.argv[2:]]"
)

Disturbance = Callable[[Cluster], float | None]
"""The time of the disturbance (CLOCK_MONOTONIC); None if it has a duration."""


def roll(cluster: Cluster) -> None:
    """``kubectl rollout restart`` of all Deployments of kavip."""
    before = _pods(cluster)
    cluster.kubectl("rollout", "restart", "deployment", _RELEASE, _OWN)
    _replaced(cluster, before)


def upgrade(cluster: Cluster) -> None:
    """``helm upgrade`` that changes the pods' template."""
    _upgrade(cluster, f"--set-string=podAnnotations.endurance={time.monotonic_ns()}")


def _upgrade(cluster: Cluster, change: str) -> None:
    before = _pods(cluster)
    cluster.helm("upgrade", "kavip", str(CHART), _OWN, "--reuse-values", change)
    _replaced(cluster, before)


def delete(cluster: Cluster) -> None:
    """``kubectl delete pod``, of the replica with most connections of the API server."""
    victim, _ = _busiest(cluster)
    cluster.kubectl("delete", "pod", victim, _OWN, "--wait=false")
    _replaced(cluster, {victim})


def drain(cluster: Cluster) -> None:
    """``kubectl drain`` of the node of the replica with most connections, and ``kubectl uncordon``."""
    victim, node = _busiest(cluster)
    cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=110s")
    cluster.kubectl("uncordon", node)
    _replaced(cluster, {victim})


def rotate(cluster: Cluster, *, meanwhile: Disturbance = lambda _: None) -> None:
    """Delete the Secret of the CA: replicas create a new CA, serve leaves of it once trusted, and drop the old one."""
    before = _authority(cluster)
    cluster.kubectl("delete", "secret", names.CA_SECRET_NAME, _OWN)
    meanwhile(cluster)

    def renewed() -> bool:
        authority = _authority(cluster)
        if authority is None or authority == before:
            return False
        leaves = _leaves(cluster)
        served = bool(leaves) and all(has_signed(authority, leaf) for leaf in leaves)
        return served and _trusted(cluster) == [authority]

    wait_for("every replica serves a leaf of the new CA, now alone", renewed, timeout=_PATIENCE, interval=0.5)


def rotate_and_roll(cluster: Cluster) -> None:
    """Delete the Secret and restart all replicas at the same time."""
    rotate(cluster, meanwhile=roll)


def kill(cluster: Cluster) -> float:
    """``kill -9`` of the process of the replica with most connections of the API server."""
    victim, node = _busiest(cluster)
    before = _restarts(cluster, victim)
    running = _process(cluster, node)
    struck = time.monotonic()
    running.signal(9)

    def restarted() -> bool:
        return _restarts(cluster, victim) > before and is_rolled_out(cluster)

    wait_for("the killed replica is back", restarted, timeout=_PATIENCE, interval=0.3)
    return struck


def _replaced(cluster: Cluster, old: set[str]) -> None:
    """Wait until the pods *old* have ended and all replicas are ready."""

    def over() -> bool:
        return not old & _pods(cluster) and is_rolled_out(cluster)

    wait_for("the old pods have ended and the new ones are ready", over, timeout=_PATIENCE, interval=0.3)


def is_rolled_out(cluster: Cluster) -> bool:
    """Whether all replicas have the newest template and are ready, and no other pod is left."""
    found = _get(cluster, "deployments", _RELEASE)["items"]
    wanted = sum(each["spec"]["replicas"] for each in found)
    return bool(found) and all(map(_is_complete, found)) and len(_pods(cluster)) == wanted


def _is_complete(deployment: Any) -> bool:
    status, wanted = deployment.get("status", {}), deployment["spec"]["replicas"]
    observed = status.get("observedGeneration") == deployment["metadata"]["generation"]
    return bool(observed and status.get("updatedReplicas") == status.get("readyReplicas") == wanted)


def _pods(cluster: Cluster) -> set[str]:
    return set(_nodes(cluster))


def _nodes(cluster: Cluster) -> dict[str, str]:
    """The node of each pod of kavip, including pods that are terminating."""
    items = _get(cluster, "pods", _PODS)["items"]
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in items}


def _busiest(cluster: Cluster) -> tuple[str, str]:
    """The webhook's replica to which the API server has most connections, and its node: most calls go to this one."""
    command = ("ss", "--no-header", "--tcp", "--numeric", "state", "established", f"( dport = :{names.WEBHOOK_PORT} )")
    output = subprocess.run(cluster.control.command(*command), capture_output=True, text=True, check=True).stdout
    connections = Counter(line.split()[3].rpartition(":")[0].strip("[]") for line in output.splitlines())
    pods = _get(cluster, "pods", _WEBHOOK)["items"]
    found = max(pods, key=lambda pod: connections[pod["status"].get("podIP", "")])
    return found["metadata"]["name"], found["spec"]["nodeName"]


def _restarts(cluster: Cluster, pod: str) -> int:
    statuses = _get(cluster, "pod", pod)["status"].get("containerStatuses", [])
    return sum(int(each["restartCount"]) for each in statuses)


def _process(cluster: Cluster, node: str) -> Process:
    """The process on *node* that answers reviews."""
    running = [one for one in cluster.node(node).processes() if _command(one)[-1:] in _SERVING and _is_kavip(one)]
    assert len(running) == 1, [_command(one) for one in running]
    return running[0]


def _is_kavip(process: Process) -> bool:
    return any(word.rpartition("/")[2] == "kavip" for word in _command(process))


def _command(process: Process) -> list[str]:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0").split("\0")
    except OSError:
        return []


def _authority(cluster: Cluster) -> x509.Certificate | None:
    """The CA in the Secret; None where there is no Secret."""
    path = "--output=jsonpath={.data.tls\\.crt}"
    found = cluster.kubectl("get", "secret", names.CA_SECRET_NAME, _OWN, path, check=False).stdout
    return x509.load_pem_x509_certificate(base64.b64decode(found)) if found else None


def _trusted(cluster: Cluster) -> list[x509.Certificate]:
    """The CAs that the API server trusts."""
    path = "--output=jsonpath={.webhooks[0].clientConfig.caBundle}"
    found = cluster.kubectl("get", "validatingwebhookconfiguration", "kavip", path).stdout
    return parse_bundle(base64.b64decode(found))


def _leaves(cluster: Cluster) -> list[x509.Certificate]:
    """The certificate that each replica presents to a new connection; empty if any replica does not answer."""
    items = _get(cluster, "pods", _WEBHOOK)["items"]
    hosts = [address for each in items if (address := each["status"].get("podIP"))]
    command = cluster.control.command(sys.executable, "-c", _SHOW, str(names.WEBHOOK_PORT), *hosts)
    done = subprocess.run(command, capture_output=True, check=False)
    return x509.load_pem_x509_certificates(done.stdout) if done.returncode == 0 else []


def _get(cluster: Cluster, *args: str) -> Any:
    return json.loads(cluster.kubectl("get", *args, _OWN, "--output=json").stdout)
