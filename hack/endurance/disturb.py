"""What happens to kavip while Services are written: each returns when it is over and kavip is whole again."""

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hack.testbed.cluster import Cluster
from hack.testbed.process import Process, wait_for
from kavip import names

NAMESPACE: Final = "kavip"
CHART: Final = Path(__file__).parents[2] / "charts" / "kavip"
_OWN: Final = f"--namespace={NAMESPACE}"
_SELECTED: Final = "--selector=app.kubernetes.io/name=kavip"
_PATIENCE: Final = 240.0

Disturbance = Callable[[Cluster], None]


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
    """``kubectl delete pod``, of the replica that leads."""
    victim = _leader(cluster)
    cluster.kubectl("delete", "pod", victim, _OWN, "--wait=false")
    _replaced(cluster, {victim})


def drain(cluster: Cluster) -> None:
    """``kubectl drain`` of a node with a replica on it, and ``kubectl uncordon``."""
    victim, node = sorted(_placed(cluster).items())[0]
    cluster.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")
    cluster.kubectl("uncordon", node)
    _replaced(cluster, {victim})


def rotate(cluster: Cluster) -> None:
    """The CA's Secret is deleted: replicas make a new CA, serve leaves of it, and are trusted all the while."""
    before = _secret(cluster).get("metadata", {}).get("uid", "")
    cluster.kubectl("delete", "secret", names.CA_SECRET_NAME, _OWN)

    def renewed() -> bool:
        secret = _secret(cluster)
        if secret.get("metadata", {}).get("uid", before) == before:
            return False
        return secret["data"]["tls.crt"] in {_first(bundle) for bundle in _bundles(cluster)}

    wait_for("caBundle begins with the new CA", renewed, timeout=_PATIENCE, interval=0.5)


def kill(cluster: Cluster) -> None:
    """``kill -9`` of a replica's process, unseen by Kubernetes."""
    victim, node = sorted(_placed(cluster).items())[0]
    _process(cluster, node).signal(9)
    restarted = lambda: _restarts(cluster, victim) > 0 and _whole(cluster)  # noqa: E731 - a question
    wait_for("the killed replica is back", restarted, timeout=_PATIENCE, interval=0.3)


def _replaced(cluster: Cluster, gone: set[str]) -> None:
    """Wait until none of the pods *gone* is left, and the Deployment is whole."""
    over = lambda: not gone & _pods(cluster) and _whole(cluster)  # noqa: E731 - a question
    wait_for("the old pods are gone and the new ones ready", over, timeout=_PATIENCE, interval=0.3)


def _whole(cluster: Cluster) -> bool:
    found = _get(cluster, "deployment", "kavip")
    status, wanted = found.get("status", {}), found["spec"]["replicas"]
    observed = status.get("observedGeneration") == found["metadata"]["generation"]
    return bool(observed and status.get("updatedReplicas") == status.get("readyReplicas") == wanted)


def _pods(cluster: Cluster) -> set[str]:
    return set(_placed(cluster))


def _placed(cluster: Cluster) -> dict[str, str]:
    """The node of each replica, those that are ending included."""
    items = _get(cluster, "pods", _SELECTED)["items"]
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in items}


def _leader(cluster: Cluster) -> str:
    holder = str(_get(cluster, "lease", names.LEASE_NAME)["spec"]["holderIdentity"])
    return next(name for name in sorted(_pods(cluster)) if holder.startswith(name))


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


def _secret(cluster: Cluster) -> dict[str, Any]:
    said = cluster.kubectl("get", "secret", names.CA_SECRET_NAME, _OWN, "--output=json", check=False).stdout
    return dict(json.loads(said)) if said else {}


def _bundles(cluster: Cluster) -> set[str]:
    path = "--output=jsonpath={.items[*].webhooks[*].clientConfig.caBundle}"
    kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations"
    return set(cluster.kubectl("get", kinds, path).stdout.split())


def _first(bundle: str) -> str:
    """The first certificate of a *bundle*, both in base64."""
    end = b"-----END CERTIFICATE-----\n"
    return base64.b64encode(base64.b64decode(bundle).partition(end)[0] + end).decode()


def _get(cluster: Cluster, *args: str) -> Any:
    return json.loads(cluster.kubectl("get", *args, _OWN, "--output=json").stdout)
