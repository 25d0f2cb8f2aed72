"""The step that takes over a live keepalived-operator: one annotation, and its VIP is never away."""

import json
from typing import Any

import yaml

from hack.demo.session import MANIFESTS, Session
from hack.testbed.node import Node

GROUP, VIP = "lb/legacy", "192.0.2.150"
ROUTER_ID = 77
ADVERTISEMENT = 1.0
"""Seconds between two of the old daemons' advertisements: a VIP whose holder just dies is away for three of them."""


def take_over(session: Session) -> None:
    """Install keepalived-operator, with pods that hold a VIP; kavip takes it over node by node."""
    session.title("Migration from keepalived-operator: its pods are replaced, and the VIP stays available")
    _install(session)
    session.wait("kavip waits while the old operator runs", lambda: "Deployment" in _accepted(session))
    operator = ("keepalived-operator-controller-manager", "-n", "keepalived-operator")
    session.kubectl("scale", "deployment", *operator, "--replicas=0")
    session.wait(
        "then the condition has the command for the next step", lambda: "kavip.io/take-over=true" in _accepted(session)
    )
    print(f"   {_accepted(session)}", flush=True)
    old = _conf(session)
    pods = _pods(session)
    holder = session.holder(VIP)
    kept = True
    with session.measure_outage(VIP) as outage:
        session.kubectl("annotate", "keepalivedgroup", "legacy", "-n", "lb", "kavip.io/take-over=true")

        def is_over() -> bool:
            nonlocal kept
            text = _conf(
                session
            )  # read before the pods, so that a pod in the list existed during any change of the text
            left = set(_pods(session)) & set(pods)
            kept = kept and (not left or text == old)
            return not left and "kavip.conf" not in _data(session) and _programmed(session) == ("True", "Programmed")

        session.wait("every node runs kavip's pod", is_over, patience=400)
    session.kubectl("get", "pods", "-n", "lb", "-l", "keepalivedGroup=legacy", "-o", "wide")
    session.claim("the old text did not change while an old pod ran", kept)
    session.wait("the VIP has moved away from its old holder", lambda: _is_elsewhere(session, holder))
    session.wait("the VIP answers there", lambda: session.answers(VIP))
    session.claim(
        "the VIP was never away, not for one advertisement",
        outage.silence < ADVERTISEMENT,
        f"{outage.failed} of {outage.requests} requests lost",
        timed=True,
    )
    session.figure("VIP silent while keepalived-operator is taken over", f"{outage.silence:.2f} s")


def _install(session: Session) -> None:
    """Create the objects of an existing installation of keepalived-operator."""
    session.kubectl("apply", "-f", str(MANIFESTS / "legacy.yaml"))
    session.wait("the operator runs", lambda: _accepted(session))
    group = session.get("keepalivedgroup", "legacy", "-n", "lb")
    owner = {key: group[key] for key in ("apiVersion", "kind")} | {"name": "legacy", "uid": group["metadata"]["uid"]}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    print(
        "   the demo creates its ConfigMap and its DaemonSet, as the last release of the operator writes them",
        flush=True,
    )
    for manifest in yaml.safe_load_all((MANIFESTS / "predecessor.yaml").read_text()):
        manifest["metadata"]["ownerReferences"] = [owner]
        session.cluster.kubectl("create", "--filename=-", input=json.dumps(manifest))
    ids = json.dumps({"status": {"routerIDs": {"shop/legacy": ROUTER_ID}}})
    session.cluster.kubectl(
        "patch", "keepalivedgroup", "legacy", "-n", "lb", "--subresource=status", "--type=merge", f"--patch={ids}"
    )
    session.wait(
        "its pods hold the VIP, which answers", lambda: len(session.holders(VIP)) == 1 and session.answers(VIP)
    )


def _is_elsewhere(session: Session, holder: Node) -> bool:
    found = session.holders(VIP)
    return len(found) == 1 and found[0] is not holder


def _accepted(session: Session) -> str:
    return session.condition("keepalivedgroup", GROUP, "Accepted")[2]


def _programmed(session: Session) -> tuple[str, str]:
    return session.condition("keepalivedgroup", GROUP, "Programmed")[:2]


def _pods(session: Session) -> list[str]:
    found = session.get("pods", "-n", "lb", "-l", "keepalivedGroup=legacy") or {"items": []}
    return [each["metadata"]["uid"] for each in found["items"]]


def _data(session: Session) -> dict[str, Any]:
    found = session.get("configmap", "legacy", "-n", "lb") or {}
    return dict(found.get("data", {}))


def _conf(session: Session) -> str:
    return str(_data(session).get("keepalived.conf", ""))
