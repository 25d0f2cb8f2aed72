"""The jq filters of docs/howto/audit.md, as they stand there, on lines and objects of every form."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from hack.testbed.place import run
from kavip import names
from kavip.api.group import Check
from kavip.reconcile.group import manifests
from tests.support import build
from tests.support.manifests import ROOT

pytestmark = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")

PAGE = ROOT / "docs" / "howto" / "audit.md"
LOG = "/var/log/kubernetes/audit.log"
GROUPS = "/apis/redhatcop.redhat.io/v1alpha1/namespaces/lb/keepalivedgroups"
KAVIP = "system:serviceaccount:kavip:kavip-controller"
JSON_PATCH = [{"op": "replace", "path": "/spec/interface", "value": "eth1"}]


def blocks(heading: str) -> list[str]:
    """The commands below *heading* of the page."""
    section = re.split(r"\n##", PAGE.read_text().split(f"### {heading}\n")[1])[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


def event(verb: str, body: Any = None, *, user: str = "alice", uri: str = f"{GROUPS}/edge", **others: Any) -> Any:
    """A line of the audit log: *user* sent *body*, and the API server accepted it."""
    given = {
        "verb": verb,
        "user": {"username": user},
        "requestURI": uri,
        "requestReceivedTimestamp": "2026-11-23T09:00:00.000000Z",
        "responseStatus": {"code": 200},
        "objectRef": {"resource": "keepalivedgroups", "namespace": "lb", "name": "edge"},
        **others,
    }
    return given if body is None else {**given, "requestObject": body}


def answer(heading: str, path: Path, *events: Any) -> list[list[str]]:
    """The columns that the command below *heading* prints for *events*, without the time."""
    path.write_text("".join(f"{json.dumps(each)}\n" for each in events))
    (command,) = blocks(heading)
    assert LOG in command
    done = run(["sh", "-c", command.replace(LOG, str(path))])
    return [line.split("  ")[1:] for line in done.stdout.splitlines()]


def found(heading: str, *items: Any) -> list[str]:
    """What the jq filter below *heading* prints for a list of *items*."""
    (command,) = blocks(heading)
    (text,) = re.findall(r"jq -r '(.*)'", command, re.DOTALL)
    return run(["jq", "-r", text], input=json.dumps({"items": items})).stdout.splitlines()


def test_every_form_of_a_change_is_listed(tmp_path: Path) -> None:
    """Whole objects, merge patches, JSON patches, labels, and deletions without and with options."""
    labels = {"metadata": {"labels": {names.DEFAULT_GROUP_LABEL: "true"}}}
    bodies: list[tuple[str, Any]] = [
        ("create", {"spec": {"interface": "eth0"}}),
        ("update", {"spec": {"interface": "eth2"}}),
        ("patch", {"spec": {"interface": "eth1"}}),
        ("patch", JSON_PATCH),
        ("patch", labels),
        ("delete", {"propagationPolicy": "Background"}),
        ("delete", None),
    ]
    lines = answer("Who changed this group?", tmp_path / "log", *(event(*each) for each in bodies))
    assert [(verb, json.loads(body)) for _, verb, body in lines] == bodies


def test_a_deletion_of_all_groups_is_listed(tmp_path: Path) -> None:
    """It has no name; the namespace controller sends it when the namespace is deleted."""
    everything = event("deletecollection", objectRef={"resource": "keepalivedgroups", "namespace": "lb"})
    assert answer("Who changed this group?", tmp_path / "log", everything) == [["alice", "deletecollection", "null"]]


def test_what_is_no_change_is_not_listed(tmp_path: Path) -> None:
    """Reads, dry runs, refused requests, the status, and other groups."""
    reference = event("patch")["objectRef"]
    others = (
        event("get", user=KAVIP),
        event("list", user=KAVIP),
        event("watch", user=KAVIP),
        event("patch", JSON_PATCH, uri=f"{GROUPS}/edge?dryRun=All"),
        event("patch", JSON_PATCH, responseStatus={"code": 422}),
        event("patch", {"status": {}}, objectRef={**reference, "subresource": "status"}),
        event("patch", JSON_PATCH, objectRef={**reference, "name": "other"}),
        event("patch", JSON_PATCH, objectRef={**reference, "namespace": "other"}),
    )
    assert answer("Who changed this group?", tmp_path / "log", *others) == []


@pytest.mark.parametrize("kind", ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"])
def test_changes_of_webhook_configurations_have_their_webhooks(tmp_path: Path, kind: str) -> None:
    """The body is printed, not a field that the kind does not have; reads of kavip's accounts are not."""
    body = {"webhooks": [{"name": "validate-service.kavip.io", "failurePolicy": "Ignore"}]}
    patch = [{"op": "remove", "path": "/webhooks/0"}]
    reference: dict[str, Any] = {"objectRef": {"resource": kind, "name": "kavip"}}
    uri = f"/apis/admissionregistration.k8s.io/v1/{kind}/kavip"
    events = (
        event("patch", body, uri=uri, **reference),
        event("patch", patch, uri=uri, **reference),
        event("get", uri=uri, user=KAVIP, **reference),
        event("delete", uri=uri, objectRef={"resource": kind, "name": "other"}),
    )
    lines = answer("Who changed kavip's webhook configurations?", tmp_path / "log", *events)
    assert [(verb, resource, json.loads(given)) for _, verb, resource, given in lines] == [
        ("patch", kind, body),
        ("patch", kind, patch),
    ]


def test_what_others_run_in_the_namespace_is_listed(tmp_path: Path) -> None:
    """A ConfigMap that alice changes, a program that she runs in a pod; nothing of kavip."""
    configmap: dict[str, Any] = {"objectRef": {"resource": "configmaps", "namespace": "lb", "name": "edge"}}
    pod: dict[str, Any] = {
        "objectRef": {"resource": "pods", "subresource": "exec", "namespace": "lb", "name": "edge-x"}
    }
    events = (event("patch", **configmap), event("create", **pod), event("patch", user=KAVIP, **configmap))
    lines = answer("Who changed what a group runs?", tmp_path / "log", *events)
    assert [line[:2] for line in lines] == [["alice", "patch"], ["alice", "create"]]


def test_foreign_parts_of_a_daemonset_are_found() -> None:
    """Containers, volumes and privileges; nothing in the DaemonSet that kavip renders."""
    heading = "Containers, volumes and privileges"
    assert found(heading, rendered()) == []
    pod = (foreign := rendered())["spec"]["template"]["spec"]
    pod["containers"][0]["lifecycle"]["postStart"] = {"exec": {"command": ["id"]}}
    pod["containers"].append({"name": "shell", "image": "evil", "securityContext": {"privileged": True}})
    pod["initContainers"].append({"name": "first", "image": "worse"})
    pod["volumes"].append({"name": "root", "hostPath": {"path": "/"}})
    pod["hostPID"] = True
    assert sorted(found(heading, rendered(), foreign)) == [
        "lb/edge  container shell: evil",
        f"lb/edge  containers.{len(pod['containers']) - 1}.securityContext.privileged",
        "lb/edge  hook of keepalived",
        "lb/edge  hostPID",
        "lb/edge  init container first: worse",
        "lb/edge  volume root",
        f"lb/edge  volumes.{len(pod['volumes']) - 1}.hostPath",
    ]


def test_fields_of_other_managers_are_found() -> None:
    """An update under kavip's name too; not what kavip applies, nor the status."""
    managers = [
        {"manager": names.FIELD_MANAGER, "operation": "Apply", "time": "t", "fieldsV1": {}},
        {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {}},
        {"manager": names.FIELD_MANAGER, "operation": "Update", "time": "t", "fieldsV1": {"f:spec": {}}},
        {"manager": "curl", "operation": "Apply", "time": "t", "fieldsV1": {}},
    ]
    subject = rendered()
    subject["metadata"]["managedFields"] = managers
    assert [line.split("  ")[4:6] for line in found("Fields that others own", subject)] == [
        ["kavip", "Update"],
        ["curl", "Apply"],
    ]


def test_bindings_of_kavips_accounts_are_found() -> None:
    """By account, by user and by group; no binding of others, and none without subjects."""

    def binding(name: str, *subjects: Any) -> Any:
        return {"kind": "RoleBinding", "metadata": {"namespace": "a", "name": name}, "roleRef": {"name": "x"}} | (
            {"subjects": list(subjects)} if subjects else {}
        )

    items = (
        binding("account", {"kind": "ServiceAccount", "namespace": "kavip", "name": "kavip-webhook"}),
        binding("user", {"kind": "User", "name": KAVIP}),
        binding("group", {"kind": "Group", "name": "system:serviceaccounts:kavip"}),
        binding("other", {"kind": "Group", "name": "system:serviceaccounts:kavip-old"}),
        binding("empty"),
    )
    assert [line.split("  ")[2] for line in found("Rights", *items)] == ["account", "user", "group"]


def rendered() -> Any:
    """The DaemonSet that kavip renders for a group with a password and a check over TLS."""
    group = build.group(checks=[Check("api", "kube-apiserver")])
    body = manifests.daemon_set(group, image="kavip", port=9650, secrets=["vrrp"])
    assert len(body["spec"]["template"]["spec"]["volumes"]) == 4
    return json.loads(json.dumps(body))
