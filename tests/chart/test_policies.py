"""The admission policies of the chart on a real API server, with the real tokens of kavip's accounts."""

import json
from collections.abc import Iterator

import pytest

import kavip
from hack.escalations.account import apply
from hack.escalations.attempt import DAEMONSETS, OWNED
from hack.escalations.attemptrun import run_attempts
from hack.escalations.stage import (
    LISTED,
    NAMESPACE,
    POLICIES,
    TOPOLOGIES,
    VALUES,
    Stage,
    install,
    owned,
    serve_foreign_kinds,
    stage,
)
from hack.testbed import runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from tests.app.conftest import Installation, prepare
from tests.app.test_takeover import CONSENT, GROUP, ending_nodes, predecessors
from tests.chart.release import Helm, rendered
from tests.support import manifests
from tests.support.rbac import wait_bound

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]

POLICY = "ValidatingAdmissionPolicy"
ACCOUNT = f"system:serviceaccount:{manifests.NAMESPACE}:kavip-controller"


@pytest.fixture(scope="module", params=TOPOLOGIES)
def staged(programs: Programs, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A cluster with the chart, a group, and objects of other programs."""
    with runs.temporary() as state, stage(programs, state, request.param) as made:
        yield made


def test_every_attempt_to_escalate_is_refused(staged: Stage) -> None:
    """
    RBAC or a policy refuses each attempt, and nothing that kavip does; without its policy an attempt succeeds.
    """
    verdict = run_attempts(staged)
    print(verdict.table())  # noqa: T201 - for the report of a failure
    assert verdict.findings() == []
    assert len(verdict.refused) > 60
    assert {each.attempt.refused_by for each in verdict.without} == policies(staged.plane)


def test_other_users_are_not_bound(staged: Stage) -> None:
    """An administrator may do what a policy refuses to kavip, also where no group is."""
    daemonset = owned(staged.group)[1]
    pod = daemonset["spec"]["template"]["spec"]
    pod["hostPID"], pod["shareProcessNamespace"] = True, False
    for namespace in ("lb", "shop", "kube-system"):
        metadata = {"name": "free", "namespace": namespace}
        body = json.dumps({**daemonset, "metadata": metadata})
        staged.plane.kubectl("create", "--dry-run=server", "--filename=-", input=body)


def test_expressions_have_the_types_of_their_kinds(staged: Stage) -> None:
    """Kubernetes' own type check finds no fault in an expression."""

    def checked() -> list[manifests.Object]:
        found = json.loads(staged.plane.kubectl("get", POLICY, "-o", "json").stdout)["items"]
        done = [each.get("status", {}) for each in found if each["metadata"]["name"].startswith("kavip-")]
        return done if all("typeChecking" in each for each in done) else []

    wait_for("policies are checked", lambda: bool(checked()), timeout=150, interval=0.5)
    assert [each["typeChecking"].get("expressionWarnings") for each in checked()] == [None] * len(checked())


def test_messages_name_field_and_remedy(staged: Stage) -> None:
    """The refusal of an image names the field and the chart value."""
    daemonset = owned(staged.group)[1]
    daemonset["spec"]["template"]["spec"]["containers"][0]["image"] = "evil"
    answer = staged.controller.send(apply("/apis/apps/v1/namespaces/lb/daemonsets", daemonset))
    assert (
        "spec.template.spec.containers[].image: evil: want an image of the chart value policies.images"
        in answer.message
    )


def test_a_refused_field_or_annotation_is_named(staged: Stage) -> None:
    """The refusal of a field that kavip never sets, and of an annotation, names them."""
    daemonset = owned(staged.group)[1]
    template = daemonset["spec"]["template"]
    template["metadata"]["annotations"] = {"cdi.k8s.io/gpu": "vendor.example.com/gpu=all"}
    template["spec"]["runtimeClassName"] = "nvidia"
    request = apply("/apis/apps/v1/namespaces/lb/daemonsets", daemonset)
    assert "spec.template.metadata.annotations: cdi.k8s.io/gpu: want no" in staged.controller.send(request).message
    del template["metadata"]["annotations"]
    assert "spec.template.spec: runtimeClassName: kavip does not" in staged.controller.send(request).message


def test_group_namespaces_limit_the_namespaces(staged: Stage, programs: Programs) -> None:
    """With groupNamespaces, a ConfigMap of a group in another namespace is refused."""
    (configmap, *_) = owned(staged.group)
    request = apply("/api/v1/namespaces/lb/configmaps", configmap)
    topology = "split" if len(staged.accounts) > 1 else "combined"
    values = (f"policies={POLICIES}", f'topology="{topology}"')
    granted = ("create", "rolebinding", "more", "-nlb", "--clusterrole=admin")
    users = (f"--serviceaccount={NAMESPACE}:{each.name}" for each in staged.accounts)
    staged.plane.kubectl(*granted, *users)  # the Role of the chart is in the other namespace
    try:
        install(programs, staged.plane, staged.plane.state, *values, 'groupNamespaces=["shop"]')
        wait_for("the policy is read", lambda: staged.controller.send(request).refused_by == OWNED, timeout=60)
        message = staged.controller.send(request).message
        assert "metadata.namespace: lb: kavip writes here only if the chart value groupNamespaces" in message
    finally:
        install(programs, staged.plane, staged.plane.state, *values, *VALUES)
        staged.plane.kubectl("delete", "rolebinding", "more", "-nlb")
        wait_for("it is as before", lambda: staged.controller.send(request).is_accepted, timeout=60)


def test_a_takeover_is_not_refused(programs: Programs) -> None:
    """With policies, kavip takes the objects of keepalived-operator over, and no request of its account is refused."""
    with runs.temporary() as state, ControlPlane(programs, state) as plane:
        prepare(plane)
        serve_foreign_kinds(plane)
        install(programs, plane, state, "crds.install=false", 'topology="split"')
        wait_bound(plane, ACCOUNT)
        installation = Installation(plane)
        predecessors(installation)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
        plane.kubectl("annotate", *GROUP, CONSENT)
        try:
            installation.start(f"--kubeconfig={plane.user(ACCOUNT, *groups)}", webhook=False)
            wait_for("an old pod is deleted", lambda: bool(ending_nodes(installation)), timeout=90)
            assert "legacy" in plane.kubectl("get", "podmonitor,role,rolebinding", "-nlb", "-o", "name").stdout
            pod = installation.get("daemonset", "legacy", "-nlb")["spec"]["template"]["spec"]
            assert [each["name"] for each in pod["containers"]] == ["keepalived", "agent"]
        finally:
            installation.close()
        assert refusals(plane) == []


def refusals(plane: ControlPlane) -> list[str]:
    """The requests of kavip's account that were refused."""
    refused = (event for event in plane.audit if event.user == ACCOUNT and event.code in (401, 403, 422))
    return [f"{event.verb} {event.uri}" for event in refused]


def policies(plane: ControlPlane) -> set[str]:
    """The names of kavip's policies."""
    found = plane.kubectl("get", POLICY, "-o", "name").stdout.split()
    return {name for each in found if (name := each.partition("/")[2]).startswith("kavip-")}


def test_they_can_be_left_out(helm: Helm) -> None:
    """`false` renders none, and each one has its binding."""
    assert not [each for each in rendered(helm, "policies.enabled=false") if POLICY in each["kind"]]
    names_of = {
        kind: [each["metadata"]["name"] for each in rendered(helm) if each["kind"] == kind]
        for kind in (POLICY, f"{POLICY}Binding")
    }
    assert sorted(names_of[POLICY]) == sorted(names_of[f"{POLICY}Binding"]) != []


def test_lists_permit_kavips_own_image(helm: Helm) -> None:
    """With a list of images, kavip's own is permitted too."""
    objects = rendered(helm, f'policies.images=["{LISTED}"]', 'image.repository="registry.example.com/kavip"')
    policy = manifests.only(objects, POLICY, DAEMONSETS)
    (permitted,) = [each["expression"] for each in policy["spec"]["variables"] if each["name"] == "unlistedImages"]
    assert f'["registry.example.com/kavip:{kavip.__version__}","{LISTED}"]' in permitted
