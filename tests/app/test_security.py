"""A namespace whose Pod Security level refuses a group's pods, with the real DaemonSet controller."""

import json
from collections.abc import Iterator

import pytest

from hack.testbed import runs
from hack.testbed.controlplane import CONTROLLERS, ControlPlane
from hack.testbed.programs import Programs
from tests.app.conftest import Installation, a_group, object_of, prepare, wait_for

pytestmark = pytest.mark.apiserver

LABEL = "pod-security.kubernetes.io/enforce"


@pytest.fixture
def staffed(programs: Programs) -> Iterator[Installation]:
    """A control plane with the controllers that create pods, and one node."""
    with runs.temporary() as state, ControlPlane(programs, state, components=(CONTROLLERS,)) as plane:
        prepare(plane)
        made = Installation(plane)
        try:
            made.apply(object_of("Node", "n1"))
            yield made
        finally:
            made.close()


def ready(installation: Installation) -> str:
    """The message of the group's Ready."""
    found = installation.get("keepalivedgroup", "edge", "-n", "lb") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(entry["message"]) for entry in conditions if entry["type"] == "Ready"), "")


def test_the_group_says_which_label_to_set(staffed: Installation) -> None:
    """Ready has the DaemonSet's error; once the namespace has the label, there is no error."""
    staffed.plane.kubectl("label", "namespace", "lb", f"{LABEL}=baseline")
    staffed.start(webhook=False)
    staffed.apply(a_group("edge"))
    wait_for("the group says why it has no pods", lambda: "violates PodSecurity" in ready(staffed))
    assert 'pods are forbidden: violates PodSecurity "baseline:latest": ' in ready(staffed)
    assert f"; label namespace lb with {LABEL}=privileged; " in ready(staffed)
    staffed.plane.kubectl("label", "--overwrite", "namespace", "lb", f"{LABEL}=privileged")
    again = {"spec": {"template": {"metadata": {"annotations": {"again": "1"}}}}}  # the DaemonSet controller backs off
    staffed.plane.kubectl("patch", "daemonset", "edge", "-n", "lb", "--type=merge", "-p", json.dumps(again))
    wait_for("the pods exist", lambda: staffed.get("pods", "-n", "lb")["items"])

    def is_over() -> bool:
        schedule(staffed)
        return "PodSecurity" not in ready(staffed)

    wait_for("the complaint is over", is_over)


def schedule(installation: Installation) -> None:
    """Bind the existing pods to the node, as a scheduler would; an old pod may be deleted meanwhile."""
    for pod in installation.get("pods", "-n", "lb")["items"]:
        name = pod["metadata"]["name"]
        body = object_of("Binding", name, namespace="lb", target={"kind": "Node", "name": "n1"})
        where = ("create", "--raw", f"/api/v1/namespaces/lb/pods/{name}/binding", "--filename=-")
        installation.plane.kubectl(*where, input=json.dumps(body), check=False)
