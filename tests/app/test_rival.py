"""kavip beside a running keepalived-operator on a real API server: it writes nothing until the operator is gone."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from hack.testbed.audit import Event
from tests.app.conftest import Installation, a_group, a_pool, a_service, object_of, wait_for

pytestmark = pytest.mark.apiserver

LEASE = "03846a46.redhat.io"


def renew(installation: Installation, *, seconds: int) -> None:
    """The periodic write of the operator's leader election."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "old-pod_1", "leaseDurationSeconds": seconds, "renewTime": now}
    lease = object_of("Lease", LEASE, namespace="other", version="coordination.k8s.io/v1", spec=spec)
    done = installation.plane.kubectl("apply", "--server-side", "--filename=-", input=json.dumps(lease), check=False)
    assert done.returncode == 0, done.stderr


def deployment(replicas: int) -> dict[str, Any]:
    """The operator's Deployment, with the name that its chart uses."""
    labels = {"operator": "keepalived-operator"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "old"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return object_of("Deployment", "keepalived-operator", namespace="other", version="apps/v1", spec=spec)


def accepted(installation: Installation, group: str = "edge") -> dict[str, str]:
    """The group's Accepted; empty if it has none."""
    found = installation.get("keepalivedgroup", group, "-n", "lb") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == "Accepted"), {})


def write_events(installation: Installation) -> list[Event]:
    """The successful writes of kavip's controller since the mark."""
    verbs = ("create", "patch", "update", "delete")
    return [
        event
        for event in installation.plane.audit
        if event.verb in verbs and "kavip" in event.agent and event.code < 400
    ]


def writes(installation: Installation) -> set[tuple[str, str]]:
    """What kavip's controller has written since the mark, except for its Lease and for the status of groups."""
    found = {(event.resource, event.subresource) for event in write_events(installation)}
    return found - {("leases", ""), ("events", ""), ("keepalivedgroups", "status")}


def test_kavip_waits_until_the_lease_expires(installation: Installation) -> None:
    """While it is renewed, groups report it and Services get nothing; when it expires, kavip starts by itself."""
    installation.apply(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True), a_service("web"))
    renew(installation, seconds=3600)
    installation.plane.audit.mark()
    try:
        installation.start(webhook=False)

        def is_reported() -> bool:  # kavip may have seen the Lease first between two renewals
            renew(installation, seconds=3600)
            return accepted(installation).get("reason") == "OldOperatorRunning"

        wait_for("the group reports it", is_reported)
        assert f"Lease other/{LEASE}, which old-pod_1 renews" in accepted(installation)["message"]
        time.sleep(2)
        assert writes(installation) == set()
        assert (installation.addresses("web"), installation.condition("web")) == ([], {})
        renew(installation, seconds=1)
        wait_for("kavip begins by itself", lambda: installation.addresses("web") == ["192.0.2.128"])
        wait_for("the group is accepted", lambda: accepted(installation).get("reason") == "Accepted")
        assert ("services", "status") in writes(installation)
    finally:
        installation.plane.kubectl("delete", "lease", LEASE, "-n", "other", "--ignore-not-found")


def test_kavip_waits_for_the_deployment_to_go(installation: Installation) -> None:
    """kavip also stops when the operator returns, and continues when it is scaled to zero."""
    installation.start(webhook=False)
    installation.apply(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True), a_service("first"))
    wait_for("kavip serves", lambda: installation.addresses("first"))
    installation.wait_for_conditions("first")
    wait_for("the pool counts it", lambda: installation.get("vippool", "edge")["status"]["ipv4"]["assigned"] == 1)
    wait_for("the group has its pods", lambda: installation.get("daemonset", "edge", "-n", "lb"))
    try:
        installation.apply(deployment(1))
        wait_for("the group reports it", lambda: accepted(installation).get("reason") == "OldOperatorRunning")
        assert "Deployment other/keepalived-operator" in accepted(installation)["message"]
        installation.plane.audit.mark()
        installation.apply(a_service("second"))
        time.sleep(2)
        assert writes(installation) == set()
        assert installation.addresses("first") == ["192.0.2.128"]
        installation.apply(deployment(0))
        wait_for("kavip continues", lambda: installation.addresses("second") == ["192.0.2.129"])
        wait_for("the group is accepted", lambda: accepted(installation).get("reason") == "Accepted")
    finally:
        installation.plane.kubectl("delete", "deployment", "keepalived-operator", "-n", "other", "--ignore-not-found")
