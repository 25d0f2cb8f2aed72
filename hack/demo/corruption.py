"""The act with a configuration that would crash keepalived: it reaches the nodes without kavip, and no node runs it."""

import hashlib
import json
import time
from typing import Any

from hack.demo.story import Story, state_url
from hack.testbed.node import Node
from kavip import names

GROUP, NAMESPACE = "edge", "lb"


def dismiss(story: Story) -> None:
    """Begin to stop kavip, which would mend what comes next; that takes ten seconds, for its webhook says farewell."""
    story.title("kavip is stopped: what runs does not need it")
    _scale(story, 0)


def deliver(story: Story, *, service: str) -> None:
    """Stop kavip and write a broken text into the ConfigMap: the agents refuse it, and the VIP answers."""
    story.title("A bad configuration reaches the nodes, past kavip")
    story.wait("no replica of kavip is left", lambda: not _replicas(story))
    address = story.address(service)
    data = story.get("configmap", GROUP, "-n", NAMESPACE)["data"]
    text = data[names.CONFIG_KEY].replace("\n}\n", "\n", 1)
    meta = {**json.loads(data[names.AGENT_KEY]), "configHash": hashlib.sha256(text.encode()).hexdigest()[:16]}
    broken = {names.CONFIG_KEY: text, names.AGENT_KEY: json.dumps(meta)}
    with story.asking(address) as outage:
        print("   a user edits the ConfigMap of the group, and deletes the brace after global_defs", flush=True)
        patch = ("patch", "configmap", GROUP, "-n", NAMESPACE, "--type=merge", "-p", json.dumps({"data": broken}))
        story.cluster.kubectl(*patch)
        note = f"{names.CONFIG_HASH_ANNOTATION}={meta['configHash']}"
        story.cluster.kubectl(
            "annotate", "pods", "-n", NAMESPACE, "-l", f"keepalivedGroup={GROUP}", note, "--overwrite"
        )
        nodes = [node for node in story.cluster.nodes if node.running]
        story.wait("every agent refuses it", lambda: all(_refused(story, node) for node in nodes))
        print(f"$ curl {state_url(nodes[0])}   # .refused", flush=True)
        print(f"  {_refused(story, nodes[0])}", flush=True)
        time.sleep(1)
    runs_on = "the last good one runs on: no request to the VIP failed"
    story.claim(runs_on, outage.failed == 0, str(outage), timed=outage.moved)
    _scale(story, 2)
    story.cluster.kubectl("rollout", "status", "deployment", "kavip", "-n", "kavip", "--timeout=240s")
    story.wait("kavip is back, and the nodes run its configuration", lambda: _is_current(story))


def _scale(story: Story, replicas: int) -> None:
    story.kubectl("scale", "deployment", "kavip", "-n", "kavip", f"--replicas={replicas}")


def _replicas(story: Story) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = story.get("pods", "-n", "kavip", "-l", "app.kubernetes.io/name=kavip")["items"]
    return found


def _refused(story: Story, node: Node) -> str:
    return str(story.state(node).get("refused", ""))


def _is_current(story: Story) -> bool:
    return story.condition("keepalivedgroup", f"{NAMESPACE}/{GROUP}", "Programmed")[0] == "True" and not any(
        _refused(story, node) for node in story.cluster.nodes if node.running
    )
