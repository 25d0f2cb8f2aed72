"""kavip over an existing keepalived-operator, on the real API server: it stands aside until the operator is gone."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, object_of, wait_for

pytestmark = pytest.mark.apiserver

LEASE = "03846a46.redhat.io"


def renew(installation: Installation, *, seconds: int) -> None:
    """What the operator's leader election writes every two seconds."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "old-pod_1", "leaseDurationSeconds": seconds, "renewTime": now}
    lease = object_of("Lease", LEASE, namespace="other", version="coordination.k8s.io/v1", spec=spec)
    done = installation.plane.kubectl("apply", "--server-side", "--filename=-", input=json.dumps(lease), check=False)
    assert done.returncode == 0, done.stderr


def deployment(replicas: int) -> dict[str, Any]:
    """The operator's Deployment as its chart names it."""
    labels = {"operator": "keepalived-operator"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "manager", "image": "old"}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return object_of("Deployment", "keepalived-operator", namespace="other", version="apps/v1", spec=spec)


def accepted(installation: Installation, group: str = "edge") -> dict[str, str]:
    """The group's Accepted; empty where it has none."""
    found = installation.get("keepalivedgroup", group, "-n", "lb") or {}
    conditions = found.get("status", {}).get("conditions", [])
    return next((entry for entry in conditions if entry["type"] == "Accepted"), {})


def writes(installation: Installation) -> set[tuple[str, str]]:
    """What kavip's controller has written since the mark, but for its own Lease and what it says about groups."""
    found = {
        (event.resource, event.subresource)
        for event in installation.plane.audit
        if event.verb in ("create", "patch", "update", "delete") and "kavip" in event.agent and event.code < 400
    }
    return found - {("leases", ""), ("events", ""), ("keepalivedgroups", "status")}


def test_kavip_waits_for_the_lease_to_run_out(installation: Installation) -> None:
    """Once it is seen to be renewed groups say so and Services get nothing; when it runs out kavip begins by itself."""
    installation.applied(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True), a_service("web"))
    renew(installation, seconds=3600)
    installation.plane.audit.mark()
    try:
        installation.start(webhook=False)

        def told() -> bool:  # kavip may have looked at the Lease for the first time between two renewals
            renew(installation, seconds=3600)
            return accepted(installation).get("reason") == "OldOperatorRunning"

        wait_for("the group says so", told)
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
    """It also stops when the operator comes back while kavip serves, and goes on when it is scaled to zero."""
    installation.start(webhook=False)
    installation.applied(a_pool("edge", "192.0.2.128/27"), a_group("edge", default=True), a_service("first"))
    wait_for("kavip serves", lambda: installation.addresses("first"))
    installation.wait_told("first")
    wait_for("the pool counts it", lambda: installation.get("vippool", "edge")["status"]["ipv4"]["assigned"] == 1)
    wait_for("the group has its pods", lambda: installation.get("daemonset", "edge", "-n", "lb"))
    try:
        installation.applied(deployment(1))
        wait_for("the group says so", lambda: accepted(installation).get("reason") == "OldOperatorRunning")
        assert "Deployment other/keepalived-operator" in accepted(installation)["message"]
        installation.plane.audit.mark()
        installation.applied(a_service("second"))
        time.sleep(2)
        assert writes(installation) == set()
        assert installation.addresses("first") == ["192.0.2.128"]
        installation.applied(deployment(0))
        wait_for("kavip goes on", lambda: installation.addresses("second") == ["192.0.2.129"])
        wait_for("the group is accepted", lambda: accepted(installation).get("reason") == "Accepted")
    finally:
        installation.plane.kubectl("delete", "deployment", "keepalived-operator", "-n", "other", "--ignore-not-found")
