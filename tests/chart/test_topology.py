"""The output of `helm template` for both topologies: Deployments, selectors, ports and rights."""

import json
import re
import shlex
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from tests.chart.release import RELEASE, Helm, environment, get, pods, rendered
from tests.support import manifests, rights

pytestmark = pytest.mark.chart

SPLIT, COMBINED = 'topology="split"', 'topology="combined"'
TOPOLOGIES = pytest.mark.parametrize("topology", [SPLIT, COMBINED], ids=["split", "combined"])
COMPONENTS = {SPLIT: {"kavip-webhook": ["webhook"], "kavip-controller": ["controller"]}, COMBINED: {"kavip": ["run"]}}
OF_0_1_0 = {"app.kubernetes.io/name": "kavip", "app.kubernetes.io/instance": "kavip"}
"""The labels of the pods of release 0.1.0, and the selector of its Service."""
CERTS = ("self", "provided", "cert-manager", "service-ca")


@TOPOLOGIES
def test_each_deployment_runs_its_command_under_its_account(helm: Helm, topology: str) -> None:
    """Deployments, commands and accounts are those of the topology; each has two replicas and a budget."""
    objects = rendered(helm, topology)
    deployments = {each["metadata"]["name"]: each["spec"] for each in objects if each["kind"] == "Deployment"}
    commands = {name: spec["template"]["spec"]["containers"][0]["args"] for name, spec in deployments.items()}
    assert commands == COMPONENTS[topology]
    for name, spec in deployments.items():
        assert spec["replicas"] == 2
        assert spec["template"]["spec"]["serviceAccountName"] == name
        assert manifests.only(objects, "ServiceAccount", name)
        budget = manifests.only(objects, "PodDisruptionBudget", name)["spec"]
        assert budget["selector"] == spec["selector"]


@pytest.mark.apiserver
def test_the_documented_change_of_topology_keeps_values(helm: Helm, server: ControlPlane) -> None:
    """The `helm upgrade` of docs/howto/install.md changes the topology and nothing that the administrator has set."""
    page = (manifests.ROOT / "docs" / "howto" / "install.md").read_text()
    section = page.split("### From one topology to the other\n")[1].split("\n### ")[0]
    (command,) = re.findall(r"^helm upgrade kavip charts/kavip -n kavip (.*)$", section, re.MULTILINE)
    flags = [each for each in shlex.split(command, comments=True) if each != "--wait"]  # no kubelet runs pods here
    own = ("--set=topology=combined", "--set=agent.port=9700", "--set=image.repository=registry.example/kavip")
    helm("install", *RELEASE, *own, kubeconfig=server.kubeconfig)
    helm("upgrade", *RELEASE, *flags, kubeconfig=server.kubeconfig)
    found = environment([get(server, "deployment", "kavip-controller")])
    assert (found["KAVIP_AGENT_PORT"], found["KAVIP_IMAGE"].partition(":")[0]) == ("9700", "registry.example/kavip")


@TOPOLOGIES
def test_selectors_match_only_their_own_pods(helm: Helm, topology: str) -> None:
    """Each Deployment selects its own pods, and both monitors select all of them."""
    monitors = ("podMonitor.enabled=true", "serviceMonitor.enabled=true", "networkPolicy.enabled=true")
    objects = rendered(helm, topology, *monitors)
    labels = [pod["metadata"]["labels"] for pod in pods(objects)]
    for kind in ("Deployment", "PodDisruptionBudget", "NetworkPolicy"):
        for name in COMPONENTS[topology]:
            spec = manifests.only(objects, kind, name)["spec"]
            chosen = spec.get("selector") or spec["podSelector"]
            assert sum(matches(chosen["matchLabels"], each) for each in labels) == 1, (kind, name)
    monitor = manifests.only(objects, "PodMonitor")["spec"]["selector"]["matchLabels"]
    service = manifests.only(objects, "Service", "kavip-metrics")["spec"]["selector"]
    assert all(matches(selector, each) for selector in (monitor, service) for each in labels)


@TOPOLOGIES
def test_the_service_finds_the_webhook_of_every_release(helm: Helm, topology: str) -> None:
    """
    The selector of the Service is that of 0.1.0 and matches the pods that answer reviews, and no others.

    So old and new pods answer during an upgrade, a rollback and a change of topology. The pod of `helm test` and the
    pods of groups are not matched.
    """
    objects = rendered(helm, topology)
    selector = manifests.only(objects, "Service", "kavip-webhook")["spec"]["selector"]
    assert selector == OF_0_1_0
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        answers = "webhook" in {port["name"] for port in container["ports"]}
        assert matches(selector, pod["metadata"]["labels"]) is answers
    assert not matches(selector, manifests.only(objects, "Pod", "kavip-test")["metadata"]["labels"])


@TOPOLOGIES
def test_pods_that_answer_reviews_end_late(helm: Helm, topology: str) -> None:
    """A change of topology deletes the old Deployment at once: its pods serve until new ones are ready."""
    for pod in pods(rendered(helm, topology, "webhook.drainSeconds=60")):
        (container,) = pod["spec"]["containers"]
        answers = "webhook" in {port["name"] for port in container["ports"]}
        sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"] if answers else 0
        assert (sleep >= 20) is answers
        drain = 60 if answers else 0
        assert pod["spec"]["terminationGracePeriodSeconds"] >= sleep + drain + 10


def test_settings_reach_only_the_program_that_reads_them(helm: Helm) -> None:
    """The split environments together are the combined one; what only one of them reads is not in the other."""
    split, combined = (rendered(helm, topology) for topology in (SPLIT, COMBINED))
    assert environment(split) == environment(combined)
    webhook, controller = (
        environment([manifests.only(split, "Deployment", name)]) for name in ("kavip-webhook", "kavip-controller")
    )
    assert {
        "KAVIP_WEBHOOK_CLIENT_CA",
        "KAVIP_CERTS_SECRET",
        "KAVIP_DRAIN_SECONDS",
    } <= webhook.keys() - controller.keys()
    assert {"KAVIP_IMAGE", "KAVIP_LEASE_SECONDS", "KAVIP_AGENT_PORT"} <= controller.keys() - webhook.keys()


def test_only_the_webhook_is_in_the_host_network(helm: Helm) -> None:
    """There a pod must stop before its successor starts, because both have the same ports."""
    objects = rendered(helm, SPLIT, "webhook.hostNetwork=true", "openshift.enabled=true")
    webhook, controller = (
        manifests.only(objects, "Deployment", name)["spec"] for name in ("kavip-webhook", "kavip-controller")
    )
    assert webhook["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    assert controller["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert webhook["template"]["spec"]["hostNetwork"] is True
    assert "hostNetwork" not in controller["template"]["spec"]
    (bound,) = manifests.only(objects, "RoleBinding", "kavip-hostnetwork")["subjects"]
    assert bound["name"] == "kavip-webhook"


def test_resources_may_differ(helm: Helm) -> None:
    """webhook.resources and controller.resources replace resources, each for its Deployment."""
    own = {"requests": {"memory": "1Gi"}}
    objects = rendered(helm, SPLIT, f"controller.resources={json.dumps(own)}")
    usual = rendered(helm, SPLIT)
    assert resources_of(objects, "kavip-controller") == own
    assert resources_of(objects, "kavip-webhook") == resources_of(usual, "kavip-webhook") != own


def resources_of(objects: list[manifests.Object], name: str) -> Any:
    """The resources of the container of a Deployment."""
    return manifests.only(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]["resources"]


@TOPOLOGIES
def test_one_replica_can_be_drained(helm: Helm, topology: str) -> None:
    """A single replica has no PodDisruptionBudget that would block the drain of its node."""
    assert not [each for each in rendered(helm, topology, "replicaCount=1") if each["kind"] == "PodDisruptionBudget"]


class TestRights:
    """ServiceAccounts and what they may do."""

    @pytest.mark.parametrize("mode", CERTS)
    @pytest.mark.parametrize("groups", [[], ["edge", "lb"]], ids=["all", "listed"])
    @TOPOLOGIES
    def test_roles_are_those_of_the_table(self, helm: Helm, topology: str, groups: list[str], mode: str) -> None:
        """
        Each account holds exactly its rules, in their scopes.

        With groupNamespaces the rules of scope `groups` are Roles in these namespaces, and no ClusterRole has them.
        """
        certs = f'certs={{"mode":"{mode}","secretName":"tls"}}'
        objects = rendered(helm, topology, f"groupNamespaces={json.dumps(groups)}", certs)
        for account in COMPONENTS[topology]:
            found = bound_roles(objects, account)
            halves = [account.removeprefix("kavip-")] if account != "kavip" else list(rights.ACCOUNTS)

            def held(*scopes: str, halves: list[str] = halves) -> rights.Rights:
                return set().union(*(rights.held(half, *scopes, values={"certs.mode": mode}) for half in halves))

            assert rights.of_roles(found[""]) == held("cluster", *([] if groups else ["groups"]))
            assert rights.of_roles(found["kavip"]) == held("release")
            in_groups = held("groups") if groups else set()
            assert found.keys() == {"", "kavip", *(groups if in_groups else [])}
            for namespace in groups if in_groups else []:
                assert rights.of_roles(found[namespace]) == in_groups

    @pytest.mark.parametrize(("mode", "secret"), [("self", "kavip-webhook-ca"), *((mode, "tls") for mode in CERTS[1:])])
    def test_one_secret_is_read(self, helm: Helm, mode: str, secret: str) -> None:
        """The Secret is that of the mode."""
        objects = rendered(helm, SPLIT, f'certs={{"mode":"{mode}","secretName":"tls"}}')
        rules = [
            rule for roles in bound_roles(objects, "kavip-webhook").values() for each in roles for rule in each["rules"]
        ]
        named = [rule["resourceNames"] for rule in rules if "secrets" in rule["resources"] and "resourceNames" in rule]
        assert named == [[secret]]

    def test_a_group_namespace_may_be_that_of_the_release(self, helm: Helm) -> None:
        """The two Roles there have different names."""
        objects = rendered(helm, SPLIT, 'groupNamespaces=["kavip"]')
        found = bound_roles(objects, "kavip-controller")["kavip"]
        assert sorted(each["metadata"]["name"] for each in found) == ["kavip-controller", "kavip-controller-groups"]


def bound_roles(objects: list[manifests.Object], account: str) -> dict[str, list[manifests.Object]]:
    """The roles that are bound to *account*, by their namespace; "" for ClusterRoles."""
    found: dict[str, list[manifests.Object]] = {}
    for binding in objects:
        subjects = [(each["name"], each["namespace"]) for each in binding.get("subjects", ())]
        if (account, manifests.NAMESPACE) in subjects:
            where = binding["metadata"].get("namespace", "")
            roles = [each for each in objects if each["metadata"].get("namespace", "") == where]
            ref = binding["roleRef"]
            found.setdefault(where, []).append(manifests.only(roles, ref["kind"], ref["name"]))
    return found


def matches(selector: dict[str, str], labels: dict[str, str]) -> bool:
    """Whether a selector matches."""
    return selector.items() <= labels.items()
