"""Roles on a real API server with its controllers: the aggregated roles of the cluster, and kavip's own."""

from collections.abc import Iterator
from functools import partial

import pytest

from hack.testbed import runs
from hack.testbed.controlplane import CONTROLLERS, ControlPlane
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from tests.chart.release import RELEASE, Helm

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

WRITES = ("create", "update", "patch", "delete", "deletecollection")


@pytest.fixture
def server(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane whose controllers aggregate the roles view, edit and admin."""
    with runs.temporary() as state, ControlPlane(programs, state, components=(CONTROLLERS,)) as started:
        yield started


def test_only_cluster_administrators_may_write_groups_and_pools(helm: Helm, server: ControlPlane) -> None:
    """admin, edit and view of a namespace may read groups."""
    helm("install", *RELEASE, kubeconfig=server.kubeconfig)
    for role in ("admin", "edit", "view"):
        server.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
        server.kubectl("create", "clusterrolebinding", f"all-{role}", f"--clusterrole={role}", f"--user=all-{role}")
    group, pool = "keepalivedgroups.redhatcop.redhat.io", "vippools.kavip.io"
    wait_for("pools may be read", lambda: may(server, "all-admin", "list", pool), timeout=150, interval=0.5)
    for user in ("admin", "edit", "view", "all-admin", "all-edit", "all-view"):  # each role is aggregated separately
        wait_for(f"{user} may", partial(may, server, user, "get", group), timeout=150, interval=0.5)
        assert [verb for verb in WRITES for kind in (group, pool) if may(server, user, verb, kind)] == []


def may(server: ControlPlane, user: str, verb: str, kind: str) -> bool:
    """Whether *user* is permitted, in the namespace default."""
    done = server.kubectl("auth", "can-i", verb, kind, f"--as={user}", "--namespace=default", check=False)
    return done.stdout.strip() == "yes"
