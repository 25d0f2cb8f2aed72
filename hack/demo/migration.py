"""The act in which a live keepalived-operator is taken over: one annotation, and its VIP never goes away."""

import json
from typing import Any

import yaml

from hack.demo.story import MANIFESTS, Story
from hack.testbed.node import Node

GROUP, VIP = "lb/legacy", "192.0.2.150"
ROUTER_ID = 77
ADVERTISEMENT = 1.0
"""Seconds between two of the old daemons' advertisements: a VIP whose holder just dies is away for three of them."""


def take_over(story: Story) -> None:
    """An installation of keepalived-operator, with pods that hold a VIP; kavip takes it over node by node."""
    story.title("Coming from keepalived-operator: its pods are replaced, and the VIP stays")
    _install(story)
    story.wait("kavip waits while the old operator runs", lambda: "Deployment" in _accepted(story))
    operator = ("keepalived-operator-controller-manager", "-n", "keepalived-operator")
    story.kubectl("scale", "deployment", *operator, "--replicas=0")
    story.wait("then it says how to go on", lambda: "kavip.io/take-over=true" in _accepted(story))
    print(f"   {_accepted(story)}", flush=True)
    old = _conf(story)
    pods = _pods(story)
    holder = story.holder(VIP)
    kept = True
    with story.asking(VIP) as outage:
        story.kubectl("annotate", "keepalivedgroup", "legacy", "-n", "lb", "kavip.io/take-over=true")

        def is_over() -> bool:
            nonlocal kept
            text = _conf(story)  # read before the pods, so that a pod in the list existed during any change of the text
            left = set(_pods(story)) & set(pods)
            kept = kept and (not left or text == old)
            return not left and "kavip.conf" not in _data(story) and _programmed(story) == ("True", "Programmed")

        story.wait("every node runs kavip's pod", is_over, patience=400)
    story.kubectl("get", "pods", "-n", "lb", "-l", "keepalivedGroup=legacy", "-o", "wide")
    story.claim("the old text did not change while an old pod ran", kept)
    story.wait("the VIP has moved away from its old holder", lambda: _is_elsewhere(story, holder))
    story.wait("the VIP answers there", lambda: story.answers(VIP))
    story.claim(
        "the VIP was never away, not for one advertisement",
        outage.silence < ADVERTISEMENT,
        f"{outage.failed} of {outage.asked} requests lost",
        timed=True,
    )
    story.figure("VIP silent while keepalived-operator is taken over", f"{outage.silence:.2f} s")


def _install(story: Story) -> None:
    """What is there on the day of the migration."""
    story.kubectl("apply", "-f", str(MANIFESTS / "legacy.yaml"))
    story.wait("the operator runs", lambda: _accepted(story))
    group = story.get("keepalivedgroup", "legacy", "-n", "lb")
    owner = {key: group[key] for key in ("apiVersion", "kind")} | {"name": "legacy", "uid": group["metadata"]["uid"]}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    print("   its ConfigMap and its DaemonSet are made, in the shape of its last release", flush=True)
    for manifest in yaml.safe_load_all((MANIFESTS / "predecessor.yaml").read_text()):
        manifest["metadata"]["ownerReferences"] = [owner]
        story.cluster.kubectl("create", "--filename=-", input=json.dumps(manifest))
    ids = json.dumps({"status": {"routerIDs": {"shop/legacy": ROUTER_ID}}})
    story.cluster.kubectl(
        "patch", "keepalivedgroup", "legacy", "-n", "lb", "--subresource=status", "--type=merge", f"--patch={ids}"
    )
    story.wait("its pods hold the VIP, which answers", lambda: len(story.holders(VIP)) == 1 and story.answers(VIP))


def _is_elsewhere(story: Story, holder: Node) -> bool:
    found = story.holders(VIP)
    return len(found) == 1 and found[0] is not holder


def _accepted(story: Story) -> str:
    return story.condition("keepalivedgroup", GROUP, "Accepted")[2]


def _programmed(story: Story) -> tuple[str, str]:
    return story.condition("keepalivedgroup", GROUP, "Programmed")[:2]


def _pods(story: Story) -> list[str]:
    found = story.get("pods", "-n", "lb", "-l", "keepalivedGroup=legacy") or {"items": []}
    return [each["metadata"]["uid"] for each in found["items"]]


def _data(story: Story) -> dict[str, Any]:
    found = story.get("configmap", "legacy", "-n", "lb") or {}
    return dict(found.get("data", {}))


def _conf(story: Story) -> str:
    return str(_data(story).get("keepalived.conf", ""))
