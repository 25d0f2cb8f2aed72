"""Disturbances of kavip while Services are written: each returns when it is over and all replicas are ready again."""

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
_SELECTED: Final = "--selector=app.kubernetes.io/name=kavip"
_PATIENCE: Final = 240.0
_SHOW: Final = (
    "import ssl, sys; [print(ssl.get_server_certificate((host, sys.argv[1]), timeout=2)) for host in sys.argv[2:]]"
)

Disturbance = Callable[[Cluster], float | None]
"""The time of the disturbance (CLOCK_MONOTONIC); None if it has a duration."""


def roll(cluster: Cluster) -> None:
    """``kubectl rollout restart``."""
    before = _pods(cluster)
    cluster.kubectl("rollout", "restart", "deployment", "kavip", _OWN)
    _replaced(cluster, before)


def upgrade(cluster: Cluster) -> None:
    """``helm upgrade`` that changes the pods' template."""
    before = _pods(cluster)
    mark = f"--set-string=podAnnotations.endurance={time.monotonic_ns()}"
    cluster.helm("upgrade", "kavip", str(CHART), _OWN, "--reuse-values", mark)
    _replaced(cluster, before)


def delete(cluster: Cluster) -> None:
    """``kubectl delete pod``, of the replica that the API server asks most."""
    victim, _ = _busiest(cluster)
    cluster.kubectl("delete", "pod", victim, _OWN, "--wait=false")
    _replaced(cluster, {victim})


def drain(cluster: Cluster) -> None:
    """``kubectl drain`` of the node of the replica that the API server asks most, and ``kubectl uncordon``."""
    victim, node = _busiest(cluster)
    cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=110s")
    cluster.kubectl("uncordon", node)
    _replaced(cluster, {victim})


def rotate(cluster: Cluster, *, meanwhile: Disturbance = lambda _: None) -> None:
    """The CA's Secret is deleted: replicas make a new CA, serve leaves of it once trusted, and drop the old."""
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
    """The Secret is deleted, and all replicas are restarted at the same time."""
    rotate(cluster, meanwhile=roll)


def kill(cluster: Cluster) -> float:
    """``kill -9`` of the process of the replica that the API server asks most."""
    victim, node = _busiest(cluster)
    before = _restarts(cluster, victim)
    running = _process(cluster, node)
    struck = time.monotonic()
    running.signal(9)

    def restarted() -> bool:
        return _restarts(cluster, victim) > before and whole(cluster)

    wait_for("the killed replica is back", restarted, timeout=_PATIENCE, interval=0.3)
    return struck


def _replaced(cluster: Cluster, gone: set[str]) -> None:
    """Wait until the pods *gone* have ended and all replicas are ready."""

    def over() -> bool:
        return not gone & _pods(cluster) and whole(cluster)

    wait_for("the old pods are gone and the new ones ready", over, timeout=_PATIENCE, interval=0.3)


def whole(cluster: Cluster) -> bool:
    """Whether all replicas have the newest template and are ready, and no other pod is left."""
    found = _get(cluster, "deployment", "kavip")
    status, wanted = found.get("status", {}), found["spec"]["replicas"]
    observed = status.get("observedGeneration") == found["metadata"]["generation"]
    ready = observed and status.get("updatedReplicas") == status.get("readyReplicas") == wanted
    return bool(ready and len(_pods(cluster)) == wanted)


def _pods(cluster: Cluster) -> set[str]:
    return set(_placed(cluster))


def _placed(cluster: Cluster) -> dict[str, str]:
    """The node of each replica, those that are ending included."""
    items = _get(cluster, "pods", _SELECTED)["items"]
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in items}


def _busiest(cluster: Cluster) -> tuple[str, str]:
    """The replica to which the API server has most connections, and its node; ending another one proves little."""
    command = ("ss", "--no-header", "--tcp", "--numeric", "state", "established", f"( dport = :{names.WEBHOOK_PORT} )")
    said = subprocess.run(cluster.control.command(*command), capture_output=True, text=True, check=True).stdout
    asked = Counter(line.split()[3].rpartition(":")[0].strip("[]") for line in said.splitlines())
    pods = _get(cluster, "pods", _SELECTED)["items"]
    found = max(pods, key=lambda pod: asked[pod["status"].get("podIP", "")])
    return found["metadata"]["name"], found["spec"]["nodeName"]


def _restarts(cluster: Cluster, pod: str) -> int:
    statuses = _get(cluster, "pod", pod)["status"].get("containerStatuses", [])
    return sum(int(each["restartCount"]) for each in statuses)


def _process(cluster: Cluster, node: str) -> Process:
    """``kavip run`` on *node*."""
    running = [one for one in cluster.node(node).processes() if _command(one)[-1:] == ["run"] and _is_kavip(one)]
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
    """The certificate that each replica shows to a new connection; nothing for a replica that does not answer."""
    items = _get(cluster, "pods", _SELECTED)["items"]
    hosts = [address for each in items if (address := each["status"].get("podIP"))]
    command = cluster.control.command(sys.executable, "-c", _SHOW, str(names.WEBHOOK_PORT), *hosts)
    done = subprocess.run(command, capture_output=True, check=False)
    return x509.load_pem_x509_certificates(done.stdout) if done.returncode == 0 else []


def _get(cluster: Cluster, *args: str) -> Any:
    return json.loads(cluster.kubectl("get", *args, _OWN, "--output=json").stdout)
