"""kavip controller with ``group_namespaces``, as an account whose rights on what groups own are Roles there."""

import json
from functools import partial
from typing import Any

import pytest

from kavip.kube.resources import ALL, Component, Scope
from tests.app.conftest import Installation, a_group, a_service, object_of, wait_for
from tests.app.test_explain import is_allowed
from tests.support import accounts
from tests.support.rbac import wait_bound

pytestmark = pytest.mark.apiserver

SERVED = ("lb", "other")
GROUPS = "system:serviceaccounts", "system:serviceaccounts:kavip", "system:authenticated"
NODE = object_of(
    "Node",
    "n1",
    labels={"kubernetes.io/os": "linux"},
    status={"addresses": [{"type": "InternalIP", "address": "192.0.2.11"}]},
)


def test_roles_in_the_namespaces_of_groups_are_enough(installation: Installation) -> None:
    """
    Groups in two namespaces are served, one in a third is not, and a namespace that does not exist stops nothing.

    No request is refused, except those for the missing namespace; no list or watch of what groups own is cluster-wide.
    """
    account = accounts.account(Component.CONTROLLER)
    made = list(accounts.objects(Component.CONTROLLER, SERVED))
    installation.apply(*made, NODE)
    wait_bound(installation.plane, account)
    for namespace in SERVED:  # the API server reads each kind of RBAC object by a watch
        may = partial(is_allowed, installation, account, "apps", "daemonsets", namespace=namespace)
        wait_for(f"{account} may list DaemonSets in {namespace}", may)
    installation.plane.audit.mark()
    user = installation.plane.user(account, *GROUPS)
    namespaces = ",".join((*SERVED, "absent"))
    installation.start(f"--kubeconfig={user}", f"--group-namespaces={namespaces}", webhook=False)
    try:
        installation.apply(
            *(a_group_in(namespace) for namespace in (*SERVED, "shop")),
            *(served_by(namespace) for namespace in SERVED),
        )
        for namespace in SERVED:
            for kind in ("daemonset", "configmap"):
                find(installation, kind, namespace)
        ignored = find(installation, "keepalivedgroup", "shop", has='"Accepted"')
        (accepted,) = [each for each in ignored["status"]["conditions"] if each["type"] == "Accepted"]
        assert (accepted["status"], accepted["reason"]) == ("False", "Invalid")
        assert installation.get("daemonset", "edge", "-n", "shop") is None
        assert_is_confined(installation, account)
    finally:
        installation.plane.kubectl("delete", "--filename=-", input="\n---\n".join(map(json.dumps, made)))


def assert_is_confined(installation: Installation, account: str) -> None:
    """Assert that only the missing namespace was refused, and that what groups own was read in namespaces."""
    asked = [event for event in installation.plane.audit if event.user == account]
    refused = [event for event in asked if event.code in (401, 403) and event.namespace != "absent"]
    assert [f"{event.verb} {event.uri}" for event in refused] == []
    owned = {resource.plural for resource in ALL for use in resource.uses if use.scope is Scope.GROUPS}
    owned -= {resource.plural for resource in ALL for use in resource.uses if use.scope is Scope.CLUSTER}
    assert {"daemonsets", "configmaps", "pods", "roles", "rolebindings"} <= owned
    assert {event.namespace for event in asked if event.resource in owned} == {*SERVED, "absent", "kavip"}
    assert {event.resource for event in asked if event.namespace == "kavip"} <= {"leases", "configmaps", "events"}


def a_group_in(namespace: str) -> dict[str, Any]:
    """A group called edge in *namespace*."""
    made = a_group("edge", segment=namespace)
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


def served_by(namespace: str) -> dict[str, Any]:
    """A Service of the group in *namespace*."""
    return a_service(
        f"by-{namespace}", annotations={"keepalived-operator.redhat-cop.io/keepalivedgroup": f"{namespace}/edge"}
    )


def find(installation: Installation, kind: str, namespace: str, *, has: str = "edge") -> Any:
    """The object called edge in *namespace*, as soon as its JSON contains *has*."""

    def read() -> Any:
        found = installation.get(kind, "edge", "-n", namespace)
        return found if has in json.dumps(found) else None

    return wait_for(f"{kind} {namespace}/edge has {has}", read)
