"""The step with a configuration that would crash keepalived: it reaches the nodes, and no node runs it."""

import hashlib
import json
import time
from typing import Any

from hack.demo.session import Session, state_url
from hack.testbed.node import Node
from kavip import names

GROUP, NAMESPACE = "edge", "lb"
CONTROLLER = "kavip-controller"


def stop_kavip(session: Session) -> None:
    """Begin to stop the controller, which would revert the next edit."""
    session.title("The controller is stopped: the data plane does not need it")
    _scale(session, 0)


def break_config(session: Session, *, service: str) -> None:
    """Wait until the controller is stopped, break the ConfigMap: the agents refuse it, and the VIP answers."""
    session.title("A bad configuration reaches the nodes without kavip")
    session.wait("no replica of the controller is left", lambda: not _replicas(session))
    address = session.address(service)
    data = session.get("configmap", GROUP, "-n", NAMESPACE)["data"]
    text = data[names.CONFIG_KEY].replace("\n}\n", "\n", 1)
    meta = {**json.loads(data[names.AGENT_KEY]), "configHash": hashlib.sha256(text.encode()).hexdigest()[:16]}
    broken = {names.CONFIG_KEY: text, names.AGENT_KEY: json.dumps(meta)}
    with session.measure_outage(address) as outage:
        print("   a user edits the ConfigMap of the group, and deletes the brace after global_defs", flush=True)
        patch = ("patch", "configmap", GROUP, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"data": broken}))
        session.cluster.kubectl(*patch)
        note = f"{names.CONFIG_HASH_ANNOTATION}={meta['configHash']}"
        session.cluster.kubectl(
            "annotate", "pods", "-n", NAMESPACE, "-l", f"keepalivedGroup={GROUP}", note, "--overwrite"
        )
        nodes = [node for node in session.cluster.nodes if node.running]
        session.wait("every agent refuses it", lambda: all(_refused(session, node) for node in nodes))
        print(f"$ curl {state_url(nodes[0])}   # .refused", flush=True)
        print(f"  {_refused(session, nodes[0])}", flush=True)
        time.sleep(1)
    claim = "the nodes keep the last good configuration: no request to the VIP failed"
    session.claim(claim, outage.failed == 0, str(outage), timed=outage.moved)
    _scale(session, 2)
    session.cluster.kubectl("rollout", "status", "deployment", CONTROLLER, "-n", "kavip", "--timeout=240s")
    session.wait("the controller is back, and the nodes run its configuration", lambda: _is_current(session))


def _scale(session: Session, replicas: int) -> None:
    session.kubectl("scale", "deployment", CONTROLLER, "-n", "kavip", f"--replicas={replicas}")


def _replicas(session: Session) -> list[dict[str, Any]]:
    selected = ("-l", f"app.kubernetes.io/name={CONTROLLER}")
    found: list[dict[str, Any]] = session.get("pods", "-n", "kavip", *selected)["items"]
    return found


def _refused(session: Session, node: Node) -> str:
    return str(session.state(node).get("refused", ""))


def _is_current(session: Session) -> bool:
    return session.condition("keepalivedgroup", f"{NAMESPACE}/{GROUP}", "Programmed")[0] == "True" and not any(
        _refused(session, node) for node in session.cluster.nodes if node.running
    )
