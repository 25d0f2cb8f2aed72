"""Objects created late, on a real API server: the group after its Service, the kind PodMonitor after the group."""

from functools import partial

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, crd, wait_for

pytestmark = pytest.mark.apiserver

NOTES = {"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"}
PODMONITORS = "podmonitors.monitoring.coreos.com"


def test_pod_monitors_are_made_when_their_kind_comes(installation: Installation) -> None:
    """kavip creates it without a restart, with the Role and RoleBinding for Prometheus; the group owns all three."""
    installation.start(webhook=False)
    installation.apply(a_group("edge"))
    wait_for("the group has its DaemonSet", lambda: installation.get("daemonset", "edge", "-n", "lb"))
    assert installation.get("role", "edge-prometheus-k8s", "-n", "lb") is None
    installation.apply(crd("monitoring.coreos.com", "PodMonitor", "podmonitors", scope="Namespaced"))
    try:
        named = (("podmonitor", "edge"), ("role", "edge-prometheus-k8s"), ("rolebinding", "edge-prometheus-k8s"))
        for kind, name in named:
            wait_for(f"there is a {kind}", partial(installation.get, kind, name, "-n", "lb"))
        uid = installation.get("keepalivedgroup", "edge", "-n", "lb")["metadata"]["uid"]
        for kind, name in named:
            found = installation.get(kind, name, "-n", "lb")
            assert [owner["uid"] for owner in found["metadata"]["ownerReferences"]] == [uid]
        versions = [installation.get(kind, name, "-n", "lb")["metadata"]["resourceVersion"] for kind, name in named]
        installation.plane.audit.mark()
        installation.plane.kubectl("annotate", "keepalivedgroup", "edge", "-n", "lb", "touched=yes")
        installation.plane.kubectl("delete", "role", "edge-prometheus-k8s", "-n", "lb")
        wait_for("the Role is back", lambda: installation.get("role", "edge-prometheus-k8s", "-n", "lb"))
        kept = [installation.get(kind, name, "-n", "lb")["metadata"]["resourceVersion"] for kind, name in named]
        assert (kept[0], kept[2]) == (versions[0], versions[2])
    finally:
        installation.undefine(PODMONITORS)


def test_a_service_may_come_before_its_group(installation: Installation) -> None:
    """
    With webhook.allowMissingGroup=warn it is admitted with a warning, has reason GroupNotFound, and is served later.
    """
    installation.start("--allow-missing-group=warn")
    installation.apply_and_wait(a_pool("edge", "192.0.2.128/27"))
    done = installation.try_apply(a_service("early", annotations=NOTES))
    assert done.returncode == 0, done.stderr
    assert "Warning:" in done.stderr

    def programmed() -> str | None:
        return installation.condition("early", "kavip.io/Programmed").get("reason")

    wait_for("the Service reports GroupNotFound", lambda: programmed() == "GroupNotFound")
    wait_for("it has its address", lambda: installation.addresses("early") == ["192.0.2.128"])
    installation.apply(a_group("edge"))
    wait_for("the group serves the Service", lambda: programmed() == "NoNodes")

    def text() -> str:
        found = installation.get("configmap", "edge", "-n", "lb") or {}
        return str(found.get("data", {}).get("keepalived.conf", ""))

    wait_for("the configuration has its VIP", lambda: "192.0.2.128" in text())


def test_a_deleted_and_recreated_group(installation: Installation) -> None:
    """While a finalizer keeps the group, its Services report the deletion; the new group serves the same addresses."""
    installation.start(webhook=False)
    installation.apply(a_pool("edge", "192.0.2.128/27"), a_group("edge"), a_service("web", annotations=NOTES))
    wait_for("it has its address", lambda: installation.addresses("web") == ["192.0.2.128"])

    def programmed() -> str:
        return installation.condition("web", "kavip.io/Programmed").get("message", "")

    kubectl, group = installation.plane.kubectl, ("keepalivedgroup", "edge", "-n", "lb")
    kubectl("patch", *group, "--type=merge", "-p", '{"metadata":{"finalizers":["example.com/wait"]}}')
    kubectl("delete", *group, "--wait=false")
    wait_for("the Service reports the deletion", lambda: "lb/edge is being deleted" in programmed())
    kubectl("patch", *group, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    wait_for("the Service reports that the group does not exist", lambda: "lb/edge does not exist" in programmed())
    installation.apply(a_group("edge"))
    wait_for("it is served again", lambda: "no node matches" in programmed())
    assert installation.addresses("web") == ["192.0.2.128"]


def test_by_default_the_group_must_exist(installation: Installation) -> None:
    """The Service is refused."""
    installation.start()
    done = installation.try_apply(a_service("early", annotations=NOTES))
    assert done.returncode != 0
    assert "lb/edge" in done.stderr


def test_groups_in_other_namespaces_are_ignored(installation: Installation) -> None:
    """With --group-namespaces a group in another namespace only gets a condition, and its Services report it."""
    installation.start("--group-namespaces=other", webhook=False)
    installation.apply(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True))
    installation.apply(a_service("plain"), a_service("named", annotations=NOTES))

    def accepted() -> dict[str, str]:
        found = installation.get("keepalivedgroup", "edge", "-n", "lb")
        conditions = found.get("status", {}).get("conditions", [])
        return {entry["type"]: entry["message"] for entry in conditions}

    wait_for("the group has a condition", accepted)
    assert list(accepted()) == ["Accepted"]
    assert "kavip serves groups only in namespace other" in accepted()["Accepted"]

    def named() -> str:
        return installation.condition("named", "kavip.io/Programmed").get("message", "")

    # kavip may see the Service before its group
    wait_for("its Service reports it", lambda: "kavip does not serve" in named(), details=named)
    assert installation.condition("plain") == {}
    assert installation.get("daemonset", "edge", "-n", "lb") is None
