"""``kubectl kavip explain`` on a real API server: the decision of the controller, and its cause."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kavip.api import conditions
from kavip.api.service import Service
from kavip.cli.sources import cluster, files
from kavip.cli.views import explain, simulate
from kavip.cli.views.listing import Listing
from tests.app.conftest import ROOT, Installation, a_group, a_pool, a_service, object_of, wait_for

pytestmark = pytest.mark.apiserver

POOL, WANTS, KEY = "kavip.io/pool", "kavip.io/addresses", "kavip.io/sharing-key"
EXPLAINER = "explainer"  # other modules give users of this control plane more rights
GROUP = {"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"}
OFFICE = {"matchLabels": {"tier": "office"}}
POOLS = (
    a_pool("edge", "192.0.2.128/31"),
    a_pool("office", "198.51.100.0/28", priority=200, namespaceSelector=OFFICE),
    a_pool("lab", "203.0.113.0/28", autoAssign=False, exclude=["203.0.113.0"]),
    a_pool("tight", "198.18.7.0/28", autoAssign=False, maxPerNamespace=1),
)
FIRST = {
    "one": a_service("one"),
    "two": a_service("two"),
    "mine": a_service("mine", annotations={WANTS: "203.0.113.1", KEY: "web"}),
    "stranded": a_service("stranded", annotations={WANTS: "203.0.113.9"}),
    "quota": a_service("quota", annotations={POOL: "tight"}),
}
LATER = {
    "PoolExhausted": a_service("late"),
    "PoolNotFound": a_service("typo", annotations={POOL: "egde"}),
    "PoolSelectorMismatch": a_service("closed", annotations={POOL: "office"}),
    "AddressNotInPool": a_service("nowhere", annotations={WANTS: "10.9.9.9"}),
    "AddressInUse": a_service("taken", annotations={WANTS: "203.0.113.1"}),
    "SharingRefused": a_service("clash", annotations={WANTS: "203.0.113.1", KEY: "web"}),
    "AddressNotAllowed": a_service("barred", annotations={WANTS: "203.0.113.0"}),
    "FamilyNotAvailable": a_service("six", annotations={WANTS: "2001:db8::1"}),
    "QuotaExceeded": a_service("more", annotations={POOL: "tight"}),
    "InvalidRequest": a_service("bad", annotations={WANTS: "192.0.2.300"}),
    "ForeignStatus": a_service("foreign", annotations=GROUP),
}
OTHERS = (
    a_service("alien", loadBalancerClass="example.com/other"),
    {**a_service("inner"), "spec": {"type": "ClusterIP", "ports": [{"port": 80}]}},
)


def may_list(user: str, group: str, resource: str, *, namespace: str = "") -> list[dict[str, Any]]:
    """The objects that permit *user* to list one kind, in all namespaces or in one *namespace*."""
    version, name = "rbac.authorization.k8s.io/v1", f"explain-{user}-{resource}"
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": ["get", "list"]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    binding = {"roleRef": role, "subjects": [{"kind": "User", "name": user}]}
    kind = "RoleBinding" if namespace else "ClusterRoleBinding"
    return [
        object_of("ClusterRole", name, version=version, rules=rules),
        object_of(kind, name, namespace=namespace, version=version, **binding),
    ]


def let_list(
    installation: Installation, user: str, group: str, resource: str, *, namespace: str = ""
) -> list[dict[str, Any]]:
    """Permit *user* to list one kind, and wait until the API server permits it; return the objects."""
    rights = may_list(user, group, resource, namespace=namespace)
    installation.apply(*rights)
    wait_for(f"{user} may", lambda: is_allowed(installation, user, group, resource, namespace=namespace))
    return rights


def is_allowed(installation: Installation, user: str, group: str, resource: str, *, namespace: str = "") -> bool:
    """Whether the API server permits *user* to list one kind; the administrator sends the review."""
    where = f"--namespace={namespace}" if namespace else "--all-namespaces"
    command = ("auth", "can-i", "list", f"{resource}.{group}".rstrip("."), where, f"--as={user}")
    return installation.plane.kubectl(*command, check=False).returncode == 0


def reason(installation: Installation, name: str) -> str:
    """The reason that the controller wrote."""
    return installation.condition(name).get("reason", "")


def wait_reason(installation: Installation, name: str, wanted: str) -> None:
    """Wait until the condition of the Service has the reason *wanted*."""
    wait_for(f"{name}: {wanted}", lambda: reason(installation, name) == wanted)


def reason_of(service: Service) -> str:
    """The reason in the condition of *service*."""
    found = conditions.find(service.status.conditions, "kavip.io/AddressAssigned")
    return found.reason if found else ""


def create_services_in_each_state(installation: Installation) -> None:
    """A running controller, and one Service in each possible state."""
    installation.apply(*POOLS, a_group("edge", default=True), LATER["ForeignStatus"])
    foreign = json.dumps({"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example"}]}}})
    patch = ("patch", "service", "foreign", "-n", "shop")
    installation.plane.kubectl(*patch, "--subresource=status", "-p", foreign)
    installation.start(webhook=False)
    installation.apply(*FIRST.values())
    for name in FIRST:
        wait_reason(installation, name, "Assigned")
    exclude = json.dumps({"spec": {"exclude": ["203.0.113.0", "203.0.113.9"]}})
    installation.plane.kubectl("patch", "vippool", "lab", "--type=merge", "-p", exclude)
    installation.apply(*LATER.values(), *OTHERS)
    for wanted, each in {**LATER, "Stranded": FIRST["stranded"]}.items():
        wait_reason(installation, each["metadata"]["name"], wanted)


def kubectl_kavip(
    tmp_path: Path, installation: Installation, *args: str, user: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the plugin as a user does, with kubectl finding it on its PATH."""
    plugin = tmp_path / "kubectl-kavip"
    plugin.write_text(f'#!/bin/sh\nexec {sys.executable} -m kavip "$@"\n')
    plugin.chmod(0o755)
    plane = installation.plane
    program, _ = plane.kubectl_command()
    kubeconfig = plane.user(user) if user else plane.kubeconfig
    return subprocess.run(
        [program, *args],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,  # longer than any that a test gives the command
    )


def test_each_reason_is_explained_as_the_controller_decides_it(installation: Installation, tmp_path: Path) -> None:
    """The decision equals the condition of each Service, and the exit status says whether it is served."""
    create_services_in_each_state(installation)
    admin = str(installation.plane.kubeconfig)

    def wait_until_consistent() -> Listing | None:
        """The cluster, once its conditions match the decisions; None before: messages follow changes a moment later."""
        _, seen = asyncio.run(cluster.list_for_service(admin, context="", service="shop/one", namespace=""))
        services = (f"shop/{each['metadata']['name']}" for each in (*FIRST.values(), *LATER.values()))
        found = [explain.explain_service(seen, each, now=datetime.now(UTC)) for each in services]
        return seen if all(each.condition == each.decided for each in found) else None

    around = wait_for("the conditions match the decisions", wait_until_consistent)
    assert (around.absent, around.notes) == (frozenset({"Node"}) & around.absent, ())
    expected = {**dict.fromkeys(FIRST, "Assigned"), "stranded": "Stranded"}
    expected |= {each["metadata"]["name"]: wanted for wanted, each in LATER.items()}
    for name, wanted in expected.items():
        found = explain.explain_service(around, f"shop/{name}", now=datetime.now(UTC))
        assert found.condition is not None, name
        assert (found.condition.reason, found.condition) == (wanted, found.decided), name
        assert found.status == int(found.condition.status != "True"), name
        assert found.explanation is not None, name
    for name, words in (("alien", "its loadBalancerClass example.com/other"), ("inner", "it is of type ClusterIP")):
        assert explain.explain_service(around, f"shop/{name}", now=datetime.now(UTC)).unmanaged.startswith(words)

    dump = tmp_path / "cluster.yaml"
    kinds = "services,vippools,keepalivedgroups,namespaces,nodes"
    dump.write_text(installation.plane.kubectl("get", kinds, "-A", "-o", "yaml").stdout)
    planned = simulate.plan(files.load([dump])).snapshot.services
    assert {name: reason_of(planned[f"shop/{name}"]) for name in expected} == expected
    assert {name: planned[f"shop/{name}"].ingress_addresses for name in expected} == {
        each.metadata.name: each.ingress_addresses
        for each in around.objects
        if isinstance(each, Service) and each.metadata.name in expected
    }

    typed = ("kavip", "explain")
    late = kubectl_kavip(tmp_path, installation, *typed, "late", "-n", "shop")
    assert (late.returncode, late.stderr) == (1, ""), late.stderr
    assert late.stdout.startswith("Service shop/late has no address: PoolExhausted\n")
    assert "NO  namespaceSelector  cannot serve namespace shop" in late.stdout
    assert "0 of 2 free, 2 assigned" in late.stdout
    one = kubectl_kavip(tmp_path, installation, *typed, "shop/one", "-o", "json")
    assert (one.returncode, json.loads(one.stdout)["addresses"][0]["pool"]) == (0, "edge"), one.stderr
    typo = kubectl_kavip(tmp_path, installation, *typed, "lat", "-n", "shop")
    assert (typo.returncode, typo.stdout) == (2, "")
    assert typo.stderr == "kavip: SERVICE: 'shop/lat': no such Service; did you mean shop/late?\n"


def test_missing_rights_are_explained(installation: Installation, tmp_path: Path) -> None:
    """Pools are evaluated without the unreadable kinds; without pools only the condition is shown."""
    services = let_list(installation, EXPLAINER, "", "services")
    pools = let_list(installation, EXPLAINER, "kavip.io", "vippools")
    installation.apply(POOLS[0], a_service("one", annotations=GROUP))
    installation.plane.audit.mark()
    command = ("kavip", "explain", "shop/one")
    found = kubectl_kavip(tmp_path, installation, *command, user=EXPLAINER)
    assert "Service shop/one would get 192.0.2.128 (Assigned)" in found.stdout, found.stderr
    for kind in ("namespaces", "keepalivedgroups", "nodes"):
        assert f"you may not list {kind} of the whole cluster" in found.stdout
    assert (found.returncode, found.stderr) == (1, "")
    assert {event.verb for event in installation.plane.audit.events(user=EXPLAINER)} == {"list", "get"}, "it only reads"
    installation.plane.kubectl("delete", "-f", "-", input=json.dumps(pools[1]))
    wait_for("pools are hidden", lambda: not is_allowed(installation, EXPLAINER, "kavip.io", "vippools"))
    blind = kubectl_kavip(tmp_path, installation, *command, user=EXPLAINER)
    assert blind.stdout.startswith("Service shop/one: kavip has not written its condition yet\n")
    assert (blind.returncode, blind.stderr) == (2, "")
    denied = kubectl_kavip(tmp_path, installation, *command, user="without-rights")
    assert (denied.returncode, denied.stdout) == (2, "")
    assert denied.stderr.startswith("kavip: 403 Forbidden: services is forbidden")
    listed = {"apiVersion": "v1", "kind": "List", "items": [*services, pools[0]]}
    installation.plane.kubectl("delete", "-f", "-", input=json.dumps(listed))


def test_rights_for_one_namespace_are_explained(installation: Installation) -> None:
    """Its Services and labels are read; a note says that holders in other namespaces are hidden."""
    rights = [
        *let_list(installation, "tenant", "", "services", namespace="shop"),
        *let_list(installation, "tenant", "", "namespaces", namespace="shop"),
        *let_list(installation, "tenant", "kavip.io", "vippools"),
    ]
    elsewhere = a_service("theirs", namespace="other")
    installation.apply(POOLS[1], a_service("one", annotations=GROUP), elsewhere)
    file = str(installation.plane.user("tenant"))
    key, around = asyncio.run(cluster.list_for_service(file, context="", service="one", namespace="shop"))
    found = explain.explain_service(around, key, now=datetime.now(UTC))
    assert [each.metadata.name for each in around.objects if isinstance(each, Service)] == ["one"]
    assert found.decided is not None
    assert found.decided.reason == "PoolSelectorMismatch", "the labels of the namespace are known"
    hidden = "you may not list services of the whole cluster: addresses that other namespaces hold look free here"
    assert hidden in found.notes
    listed = {"apiVersion": "v1", "kind": "List", "items": rights}
    installation.plane.kubectl("delete", "-f", "-", input=json.dumps(listed))
