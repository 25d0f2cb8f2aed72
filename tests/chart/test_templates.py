"""The values for templates of pods: what they permit kavip's account on a real API server, and what not."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from hack.escalations.account import Account, apply
from hack.escalations.attempt import DAEMONSETS, changed
from hack.escalations.stage import Manifest, Stage, install, stage
from hack.testbed import runs
from hack.testbed.process import wait_for
from hack.testbed.programs import Programs
from kavip.api.group import KeepalivedGroup
from kavip.podtemplate.defaulttemplate import NO_TEMPLATE
from kavip.podtemplate.permissions import ALL_PERMITTED
from kavip.reconcile.group.manifests import daemon_set
from kavip.reconcile.group.podtemplate import patched_daemon_set
from kavip.reconcile.plan import ReconcileOptions
from tests.chart.release import Helm, environment, pods, rendered
from tests.support import manifests, templateexamples

pytestmark = [pytest.mark.chart, pytest.mark.apiserver]
Change = Callable[[dict[str, Any]], Any]

IMAGES = json.dumps(
    {
        "images": [
            f"registry.example.com/{name}" for name in ("announcer:1.4", "blackbox-exporter:0.25", "shipper:3", "x:1")
        ]
    }
)
PRIVILEGES = ("hostPath", "privileged", "serviceAccountToken")


def pod_with(group: KeepalivedGroup, change: Change) -> Manifest:
    """The DaemonSet of the group with a container that a template may add, after *change* of the pod."""
    body = daemon_set(group, image="localhost/kavip:0.2.0", port=9650)
    context = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    added = {"name": "x", "image": "registry.example.com/x:1", "securityContext": context}
    body["spec"]["template"]["spec"]["containers"].append(added)
    return changed(body, lambda made: change(made["spec"]["template"]))


def of_added(**fields: Any) -> Change:
    """A change of the added container."""
    return lambda template: template["spec"]["containers"][-1].update(fields)


def of_own(**fields: Any) -> Change:
    """A change of the ``securityContext`` of keepalived."""
    return lambda template: template["spec"]["containers"][0]["securityContext"].update(fields)


def of_pod(**fields: Any) -> Change:
    """A change of the pod."""
    return lambda template: template["spec"].update(fields)


def with_volume(**source: Any) -> Change:
    """Another volume."""
    return lambda template: template["spec"]["volumes"].append({"name": "x", **source})


TEMPLATED: dict[str, Change] = {
    "a label": lambda template: template["metadata"]["labels"].update(team="net"),
    "args": of_added(args=["x"], workingDir="/", startupProbe={"exec": {"command": ["x"]}}),
    "a Secret": of_added(envFrom=[{"secretRef": {"name": "x"}}]),
    "a key of a Secret": of_added(env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]),
    "a hook": of_added(lifecycle={"preStop": {"exec": {"command": ["x"]}}}),
    "the pod": of_pod(terminationGracePeriodSeconds=60, hostAliases=[{"ip": "192.0.2.1", "hostnames": ["x"]}]),
    "metadata of the pod": with_volume(downwardAPI={"items": []}),
}
"""What is refused without the values, and permitted where they name the namespace."""
PRIVILEGED: dict[str, Change] = {
    "hostPath": with_volume(hostPath={"path": "/"}),
    "privileged": of_added(securityContext={"privileged": True}),
    "serviceAccountToken": with_volume(projected={"sources": [{"serviceAccountToken": {"path": "x"}}]}),
}
NEVER: dict[str, Change] = {
    "processes of the host": of_pod(hostPID=True, shareProcessNamespace=False),
    "a token": of_pod(automountServiceAccountToken=True),
    "a runtime": of_pod(runtimeClassName="x"),
    "a driver": with_volume(csi={"driver": "x"}),
    "a privileged keepalived": of_own(privileged=True, allowPrivilegeEscalation=True),
    "a request by kubelet": of_added(lifecycle={"preStop": {"httpGet": {"port": 80}}}),
    "a device": lambda template: template["metadata"].update(annotations={"cdi.k8s.io/x": "x"}),
}


def refused_by(account: Account, group: KeepalivedGroup, change: Change) -> str:
    """What refuses the DaemonSet in a dry run; "" if it is accepted."""
    body = pod_with(group, change)
    answer = account.send(apply(f"/apis/apps/v1/namespaces/{group.metadata.namespace}/daemonsets", body))
    return "" if answer.is_accepted else answer.refused_by


def answers(staged: Stage, cases: dict[str, Change]) -> dict[str, str]:
    """What refuses each of *cases*."""
    return {name: refused_by(staged.controller, staged.group, change) for name, change in cases.items()}


def test_the_values_widen_the_policy_by_what_they_say(programs: Programs) -> None:
    """
    Each attempt is refused until the values name the namespace, or the privilege; what kavip guards always is.
    """
    everything = {**TEMPLATED, **PRIVILEGED, **NEVER}
    with runs.temporary() as state, stage(programs, state, "split") as staged:

        def reinstall(**templates: Any) -> None:
            values = (f"policies={IMAGES}", 'topology="split"', f"templates={json.dumps(templates)}")
            install(programs, staged.plane, state, *values)

        reinstall(namespaces=["shop"])
        plain = of_pod(priorityClassName="x")
        wait_for("the values are read", lambda: not refused_by(staged.controller, staged.group, plain), timeout=60)
        assert set(answers(staged, everything).values()) == {DAEMONSETS}

        reinstall(namespaces=["shop", "lb"])
        wait_for("templates are permitted", lambda: not any(answers(staged, TEMPLATED).values()), timeout=60)
        assert set(answers(staged, {**PRIVILEGED, **NEVER}).values()) == {DAEMONSETS}

        reinstall(namespaces=["*"], privileges=PRIVILEGES)
        wait_for("privileges are permitted", lambda: not any(answers(staged, PRIVILEGED).values()), timeout=60)
        assert not any(answers(staged, TEMPLATED).values())
        assert set(answers(staged, NEVER).values()) == {DAEMONSETS}
        for name, group in templateexamples.groups().items():
            request = apply(
                "/apis/apps/v1/namespaces/lb/daemonsets", patched(staged, group["spec"].get("podTemplate", {}))
            )
            assert staged.controller.send(request).message == "", name


def patched(staged: Stage, patch: dict[str, Any]) -> Manifest:
    """The DaemonSet of the group after *patch*, as kavip makes it."""
    group = msgspec.structs.replace(staged.group, spec=msgspec.structs.replace(staged.group.spec, pod_template=patch))
    body = daemon_set(group, image="localhost/kavip:0.2.0", port=9650)
    found = patched_daemon_set(group, body, NO_TEMPLATE, ReconcileOptions(templates=ALL_PERMITTED)).body
    assert found is not None
    return found


def test_the_configmap_is_mounted_into_the_controller(helm: Helm) -> None:
    """By the name of keepalived-operator's value and variable; without the value there is neither."""
    objects = rendered(helm, 'keepalivedTemplateFromConfigMap="mine"')
    assert environment(objects)["KEEPALIVEDGROUP_TEMPLATE_FILE_NAME"] == "/templates/keepalived-template.yaml"
    mounted = [pod for pod in pods(objects) if "volumes" in pod["spec"]]
    assert [pod["spec"]["serviceAccountName"] for pod in mounted] == ["kavip-controller"]
    assert mounted[0]["spec"]["volumes"] == [{"name": "templates", "configMap": {"name": "mine", "optional": True}}]
    assert not any("volumes" in pod["spec"] for pod in pods(rendered(helm)))


def test_without_the_values_the_policies_are_as_before(helm: Helm) -> None:
    """No expression knows of templates; the file for all groups widens them in every namespace."""
    plain = manifests.only(rendered(helm), "ValidatingAdmissionPolicy", DAEMONSETS)
    assert "patched" not in json.dumps(plain)
    wide = manifests.only(
        rendered(helm, 'keepalivedTemplateFromConfigMap="x"'), "ValidatingAdmissionPolicy", DAEMONSETS
    )
    assert {"name": "patched", "expression": "true"} in wide["spec"]["variables"]
