"""Templates of pods with kavip and a real API server: what comes out, who may set them, and the file for all groups."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kavip import names
from tests.app.conftest import Installation, a_group, wait_for
from tests.support import templateexamples

pytestmark = pytest.mark.apiserver

PERMITTED = ("--template-namespaces=lb", "--template-privileges=hostPath")
CONTAINERS = {
    "priority": [],
    "sidecar": ["announcer"],
    "exporter": ["blackbox"],
    "logs": ["shipper"],
    "globals": [],
}
GROUPS = ("keepalivedgroups.redhatcop.redhat.io",)
RIGHTS = {"ann": GROUPS, "olga": (*GROUPS, "daemonsets.apps")}
TEMPLATE = {"spec": {"priorityClassName": "system-node-critical"}}


def accepted(installation: Installation, name: str) -> dict[str, str]:
    """The condition ``Accepted`` of a group; empty if it has none."""
    found = installation.get("keepalivedgroup", name, "-n", "lb") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "Accepted"), {})


def pod_of(installation: Installation, name: str) -> Any:
    """The pod of a group's DaemonSet; None if there is none."""
    found = installation.get("daemonset", name, "-n", "lb")
    return found and found["spec"]["template"]["spec"]


def wait_accepted(installation: Installation, name: str, status: str, text: str) -> None:
    """Wait until ``Accepted`` of a group has this *status*, and *text* in its message."""

    def is_so() -> bool:
        found = accepted(installation, name)
        return found.get("status") == status and text in found.get("message", "")

    wait_for(f"{name} is accepted: {status}", is_so, details=partial(accepted, installation, name))


def test_each_example_is_served(installation: Installation) -> None:
    """The API server takes each example, kavip's own parts are as without it, and without it all of it goes."""
    installation.start(*PERMITTED)
    installation.apply(*templateexamples.groups().values(), a_group("plain"))
    own = wait_for("the DaemonSet of a plain group", lambda: pod_of(installation, "plain"))
    assert {name: [*CONTAINERS[name]] for name in templateexamples.groups()} == CONTAINERS
    for name, added in CONTAINERS.items():
        wait_accepted(installation, name, "True", "the group is served")
        pod = wait_for(f"the DaemonSet of {name}", partial(pod_of, installation, name))
        assert [each["name"] for each in pod["containers"] if each["name"] in added] == added
        kept = {each["name"]: parts(each) for each in pod["containers"] if each["name"] not in added}
        assert kept == {each["name"]: parts(each) for each in own["containers"]}
    assert pod_of(installation, "priority")["priorityClassName"] == "system-node-critical"
    text = installation.get("configmap", "globals", "-n", "lb")["data"][names.CONFIG_KEY]
    assert "vrrp_garp_master_refresh 60" in text
    installation.apply(a_group("sidecar"))
    wait_for("the sidecar is gone", lambda: names_in(pod_of(installation, "sidecar")) == names_in(own))
    assert pod_of(installation, "sidecar")["volumes"] == [
        {**each, "configMap": {**each["configMap"], "name": "sidecar"}} if "configMap" in each else each
        for each in own["volumes"]
    ]


def names_in(pod: dict[str, Any]) -> list[str]:
    """The names of the containers of a pod."""
    return [each["name"] for each in pod["containers"]]


def parts(container: dict[str, Any]) -> dict[str, Any]:
    """What of a container does not depend on the port of its group."""
    kept = ("command", "image", "securityContext", "volumeMounts")
    return {"lifecycle": [*container.get("lifecycle", {})], **{name: container[name] for name in kept}}


def test_the_author_needs_the_right_to_create_daemonsets(installation: Installation) -> None:
    """To set or change a template, or what runs beside it; other fields, and its removal, need nothing."""
    installation.start(*PERMITTED)
    plane = installation.plane
    for user, resources in RIGHTS.items():
        flags = ("--verb=get,create,update,patch", *(f"--resource={each}" for each in resources))
        plane.kubectl("create", "role", user, "-nlb", *flags)
        plane.kubectl("create", "rolebinding", user, "-nlb", f"--role={user}", f"--user={user}")
        for each in resources:
            wait_for(f"{user} may create {each}", partial(may_create, installation, user, each))

    def apply(user: str, **spec: Any) -> str:
        """What kubectl says when *user* writes the group with *spec*; "" if it is accepted."""
        done = installation.try_apply(a_group("edge", **spec), flags=(f"--as={user}",))
        return done.stderr if done.returncode else ""

    denied = "this change needs the right to create daemonsets.apps in namespace 'lb'"
    try:
        assert denied in apply("ann", podTemplate=TEMPLATE)
        assert apply("ann") == ""
        assert denied in apply("ann", podTemplate=TEMPLATE)
        assert apply("olga", podTemplate=TEMPLATE) == ""
        assert apply("ann", podTemplate=TEMPLATE, preemptDelaySeconds=5) == ""
        assert denied in apply("ann", podTemplate=TEMPLATE, image="evil")
        assert denied in apply("ann", podTemplate={"spec": {}})
        assert apply("ann") == ""
        assert denied in apply("ann", configTemplateRef={"name": "lines"})
        assert apply("olga", configTemplateRef={"name": "lines"}) == ""
        assert apply("ann", configTemplateRef={"name": "lines"}, image="mine") == ""
        assert denied in apply("ann", configTemplateRef={"name": "others"})
        assert apply("ann") == ""
        in_shop = {**a_group("edge", podTemplate=TEMPLATE), "metadata": {"name": "edge", "namespace": "shop"}}
        done = installation.try_apply(in_shop)
        assert "the chart value templates.namespaces does not name 'shop'" in done.stderr
    finally:
        for user in RIGHTS:
            plane.kubectl("delete", "role,rolebinding", user, "-nlb")


def may_create(installation: Installation, user: str, resource: str) -> bool:
    """Whether RBAC permits it: the API server reads roles by watches."""
    command = ("auth", "can-i", "create", resource, "-nlb", f"--as={user}")
    return installation.plane.kubectl(*command, check=False).returncode == 0


def test_what_only_the_api_server_knows_is_a_condition(installation: Installation) -> None:
    """It refuses the DaemonSet, the condition quotes it, and the DaemonSet that exists stays."""
    installation.start(*PERMITTED)
    installation.apply(a_group("edge"))
    before = wait_for("the DaemonSet", lambda: pod_of(installation, "edge"))
    added = templateexamples.groups()["sidecar"]["spec"]["podTemplate"]["spec"]["containers"][0]
    for fields in (
        {"terminationMessagePolicy": "Never"},
        {"imagePullPolicy": "Sometimes"},
        {"args": "text"},
        {"resources": {"limits": [1]}},
    ):
        bad = {"spec": {"containers": [{**added, "volumeMounts": [], **fields}]}}
        installation.apply(a_group("edge", podTemplate=bad))
        wait_accepted(installation, "edge", "False", "the API server refuses DaemonSet lb/edge")
        assert pod_of(installation, "edge") == before
        installation.apply(a_group("edge"))
        wait_accepted(installation, "edge", "True", "the group is served")


def test_the_file_for_all_groups(installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its faults are conditions with line and column, a change reaches all groups, and a new fault changes no pod."""
    path = tmp_path / "keepalived-template.yaml"
    path.write_text("- apiVersion: v1\n  kind: {{ .Kind }}\n")
    monkeypatch.setenv(names.TEMPLATE_FILE_VARIABLE, str(path))
    replica = installation.start("--lease-seconds=6")
    installation.apply(a_group("edge"))
    wait_accepted(installation, "edge", "False", f"{path}: line 2, column 9: a Go template")
    assert pod_of(installation, "edge") is None
    path.write_text(templateexamples.file())
    wait_accepted(installation, "edge", "True", "the group is served")
    pod = wait_for("the DaemonSet", lambda: pod_of(installation, "edge"))
    assert [each["name"] for each in pod["containers"]] == ["announcer", "keepalived", "agent"]
    path.write_text("spec:\n  containers:\n    - name: agent\n      image: evil\n")
    wait_accepted(installation, "edge", "False", f"{path}: line 4, column 7: spec.containers[agent].image: 'evil': ")
    assert pod_of(installation, "edge") == pod
    replica.kill()
    installation.start()
    wait_accepted(installation, "edge", "False", "line 4, column 7")
    assert json.dumps(pod_of(installation, "edge")) == json.dumps(pod)
