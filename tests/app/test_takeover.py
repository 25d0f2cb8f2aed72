"""Taking over the objects of keepalived-operator on a real API server, field by field."""

import json
import time
from functools import partial
from typing import Any

import pytest
import yaml

from hack.demo.session import MANIFESTS
from kavip import names
from tests.app.conftest import Installation, a_group, a_service, object_of, wait_for
from tests.app.test_rival import accepted, write_events, writes

pytestmark = pytest.mark.apiserver

GROUP = ("keepalivedgroup", "legacy", "-n", "lb")
NODES = ("n1", "n2")
CONSENT = f"{names.TAKE_OVER_ANNOTATION}=true"
_LOG_TAIL = 4_000  # characters


def predecessors(installation: Installation) -> None:
    """A group with the ConfigMap, DaemonSet and pods that keepalived-operator has created for it."""
    vips = ["192.0.2.150", "192.0.2.151"]
    notes = {names.GROUP_ANNOTATION: "lb/legacy"}
    installation.apply(a_group("legacy"), a_service("legacy", annotations=notes, externalIPs=vips))
    for number, name in enumerate(NODES, start=2):
        # no server listens there: a silent exporter
        status = {"addresses": [{"type": "InternalIP", "address": f"127.0.0.{number}"}]}
        create(installation, object_of("Node", name, status=status))
    group = installation.get(*GROUP)
    owner = {key: group[key] for key in ("apiVersion", "kind")} | {"name": "legacy", "uid": group["metadata"]["uid"]}
    for manifest in yaml.safe_load_all((MANIFESTS / "predecessor.yaml").read_text()):
        manifest["metadata"]["ownerReferences"] = [{**owner, "controller": True, "blockOwnerDeletion": True}]
        create(installation, manifest)
    daemonset = installation.get("daemonset", "legacy", "-n", "lb")
    template = daemonset["spec"]["template"]
    for name in NODES:
        controller = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "legacy", "controller": True}
        metadata = {"labels": template["metadata"]["labels"]}
        metadata["ownerReferences"] = [{**controller, "uid": daemonset["metadata"]["uid"]}]
        pod = object_of("Pod", f"legacy-{name}", namespace="lb", spec={**template["spec"], "nodeName": name})
        create(installation, {**pod, "metadata": {**pod["metadata"], **metadata}})


def create(installation: Installation, manifest: dict[str, Any]) -> None:
    """Create an object with another field manager."""
    command = ("create", "--filename=-", "--field-manager=manager", "--validate=false")
    done = installation.plane.kubectl(*command, input=json.dumps(manifest), check=False)
    assert done.returncode == 0, done.stderr


def programmed(installation: Installation) -> str:
    """The message of the group's Programmed."""
    found = installation.get(*GROUP).get("status", {}).get("conditions", [])
    return next((str(entry["message"]) for entry in found if entry["type"] == "Programmed"), "")


def test_objects_of_the_old_operator_become_kavips(installation: Installation) -> None:
    """Without consent nothing changes; with it the DaemonSet belongs to kavip alone, and one pod is deleted."""
    predecessors(installation)
    kubectl, details = installation.plane.kubectl, partial(evidence, installation)
    old = installation.get("configmap", "legacy", "-n", "lb")["data"][names.CONFIG_KEY]
    installation.plane.audit.mark()
    installation.start(webhook=False)
    try:
        wait_for(
            "the group reports it",
            lambda: CONSENT in accepted(installation, "legacy").get("message", ""),
            details=details,
        )
        time.sleep(1)
        assert writes(installation) <= {("services", "status")}, details()
        kubectl("annotate", *GROUP, CONSENT)
        ending = wait_for("a pod is ending", lambda: ending_nodes(installation), details=details)
        assert ending == ["n1"], f"the higher address is taken to hold the VIPs\n{details()}"
        data = installation.get("configmap", "legacy", "-n", "lb")["data"]
        assert set(data) == {names.AGENT_KEY, names.CONFIG_KEY, names.TAKE_OVER_KEY}, details()
        assert data[names.CONFIG_KEY] == old, details()
        spec = installation.get("daemonset", "legacy", "-n", "lb")["spec"]
        pod = spec["template"]["spec"]
        assert [each["name"] for each in pod["containers"]] == ["keepalived", "agent"], f"{spec}\n{details()}"
        assert not any("privileged" in each["securityContext"] for each in pod["containers"]), f"{spec}\n{details()}"
        volumes = {each["name"] for each in pod["volumes"]}
        assert volumes.isdisjoint({"config-dst", "pid", "stats", "lib-modules"}), f"{volumes}\n{details()}"
        assert spec["updateStrategy"]["type"] == "OnDelete", f"{spec}\n{details()}"
        wait_for(
            "it waits for the new pod",
            lambda: "waiting for a new pod on n1" in programmed(installation),
            details=details,
        )
        assert "n2" not in ending_nodes(installation), details()
        kubectl("annotate", *GROUP, f"{names.TAKE_OVER_ANNOTATION}-")
        wait_for("it is paused", lambda: "paused: annotate the group" in programmed(installation), details=details)
        assert "n2" not in ending_nodes(installation), details()
    finally:
        for kind in ("nodes", "pods -n lb", "daemonset legacy -n lb", "configmap legacy -n lb"):
            every = ("--all",) if "legacy" not in kind else ()
            kubectl("delete", *kind.split(), *every, "--force", "--grace-period=0", check=False)


def pod_states(installation: Installation) -> dict[str, str]:
    """The state of each pod in namespace lb, by name; a failed request raises."""
    listed = json.loads(installation.plane.kubectl("get", "pods", "-n", "lb", "-o", "json").stdout)["items"]
    metadata = [each["metadata"] for each in listed]
    return {each["name"]: "in deletion" if "deletionTimestamp" in each else "exists" for each in metadata}


def ending_nodes(installation: Installation) -> list[str]:
    """The nodes whose old pod is absent or in deletion."""
    states = pod_states(installation)
    return [name for name in NODES if states.get(f"legacy-{name}") != "exists"]


def evidence(installation: Installation) -> str:
    """The writes of kavip since the mark, the group's conditions, the pods, and the end of kavip's log."""
    events = [
        f"{each.received} {each.verb} {each.resource}/{each.subresource} {each.namespace}/{each.name} {each.code}"
        for each in write_events(installation)
    ]
    group = installation.get(*GROUP) or {}
    conditions = [f"{each['type']}: {each['message']}" for each in group.get("status", {}).get("conditions", [])]
    states = [f"pod {name}: {state}" for name, state in sorted(pod_states(installation).items())]
    logs = [replica.log.read_text()[-_LOG_TAIL:] for replica in installation.replicas]
    return "\n".join([*events, *conditions, *states, *logs])
