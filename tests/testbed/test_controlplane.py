"""A real etcd and a real kube-apiserver."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.testbed import flags, ports, process, runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs

pytestmark = pytest.mark.apiserver


def test_it_runs_beside_another_one(control_plane: ControlPlane, programs: Programs) -> None:
    """Two at once do not see each other."""
    with runs.temporary() as state, ControlPlane(programs, state) as second:
        second.kubectl("create", "namespace", "only-here")
        assert control_plane.kubectl("get", "namespace", "only-here", check=False).returncode == 1
    assert not state.exists()


def test_a_port_that_was_taken_meanwhile_is_given_up(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts on others."""
    with _listener() as taken, runs.temporary() as state:
        offers = iter([[taken, *ports.free_ports(2)], ports.free_ports(3)])
        monkeypatch.setattr(flags, "free_ports", lambda count: next(offers))
        with ControlPlane(programs, state) as started:
            assert started.address.port != taken
            assert started.kubectl("get", "--raw=/readyz").stdout == "ok"


def test_requests_are_in_the_audit_log_when_they_are_answered(control_plane: ControlPlane) -> None:
    """The audit log has the user and the body of each write."""
    control_plane.audit.mark()
    control_plane.kubectl("create", "namespace", "audited")
    control_plane.kubectl("delete", "namespace", "audited", "--wait=false")
    created, deleted = control_plane.audit.events(user="admin", resource="namespaces", name="audited")[:2]
    assert (created.verb, created.code) == ("create", 201)
    assert created.body["metadata"]["name"] == "audited"
    assert deleted.verb == "delete"


def test_users_may_do_what_rbac_says(control_plane: ControlPlane) -> None:
    """A user is refused, and allowed after a binding, without a restart."""
    config = control_plane.user("testbed:bob")
    refused = control_plane.kubectl("get", "services", kubeconfig=config, check=False)
    assert 'User "testbed:bob" cannot list resource "services"' in refused.stderr
    control_plane.kubectl("create", "role", "bob", "--verb=list", "--resource=services")
    control_plane.kubectl("create", "rolebinding", "bob", "--role=bob", "--user=testbed:bob")

    def allowed() -> bool:
        return control_plane.kubectl("get", "services", kubeconfig=config, check=False).returncode == 0

    process.wait_for("bob may list services", allowed, timeout=60)


def test_it_can_fall_silent_and_be_restarted(programs: Programs) -> None:
    """Data and address survive; kubectl sees a silent server as a timeout."""
    with runs.temporary() as state, ControlPlane(programs, state) as plane:
        plane.kubectl("create", "namespace", "kept")
        plane.pause()
        silent = plane.kubectl("get", "namespace", "kept", "--request-timeout=500ms", check=False)
        plane.resume()
        assert silent.returncode == 1
        plane.restart()
        assert plane.kubectl("get", "namespace", "kept").returncode == 0


@contextmanager
def _listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_without_root_it_needs_nothing_but_a_directory(control_plane: ControlPlane) -> None:
    """Everything it wrote is in its state directory."""
    names = {path.name for path in Path(control_plane.state).iterdir()}
    assert {"etcd", "etcd.log", "kube-apiserver.log", "admin.kubeconfig", "audit.log"} <= names
