"""YAML and code agree: CRDs and Structs, rules and routes, rights and calls, settings and variables."""

import dataclasses
import json
import re
import typing
from typing import Any

import msgspec
import pytest

from hack import refusals
from kavip import names
from kavip.admission import registration
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.kube import resources
from kavip.settings import Settings
from tests.support import manifests, openapi, rights

SCHEMAS = {
    crd["spec"]["names"]["kind"]: crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for crd in manifests.objects(*manifests.CRDS)
}
STRUCTS: dict[str, type[KeepalivedGroup | VIPPool]] = {names.KEEPALIVED_GROUP: KeepalivedGroup, names.VIP_POOL: VIPPool}


TEXTS: manifests.Object = {
    "type": "object",
    "x-kubernetes-map-type": "granular",
    "additionalProperties": {"type": "string"},
}
OLD_FIELDS: manifests.Object = {
    "nodeSelector": TEXTS,
    "image": {"type": "string", "default": names.DEFAULT_IMAGE},
    "interface": {"type": "string"},
    "interfaceFromIP": {"type": "string"},  # keepalived-operator accepted IPv4 only
    "passwordAuth": {
        "type": "object",
        "required": ["secretRef"],
        "properties": {
            "secretRef": {"type": "object", "properties": {"name": {"type": "string"}}},
            "secretKey": {"type": "string", "default": names.DEFAULT_SECRET_KEY},
        },
    },
    "verbatimConfig": TEXTS,
    "blacklistRouterIDs": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
    "unicastEnabled": {"type": "boolean"},
    "daemonsetPodPriorityClassName": {"type": "string"},
    "daemonsetPodAnnotations": TEXTS,
}
"""The spec of keepalived-operator's KeepalivedGroup, v1.5.4."""


class TestCustomResources:
    """The CRDs, field by field."""

    @pytest.mark.parametrize("kind", STRUCTS)
    def test_each_field_has_its_counterpart(self, kind: str) -> None:
        """Schema and Struct have the same fields with the same types at every depth, in both directions."""
        differences = [
            line
            for part in ("spec", "status")
            for line in openapi.compare(
                SCHEMAS[kind]["properties"][part], openapi.annotation(STRUCTS[kind], part), part
            )
        ]
        assert not differences

    @pytest.mark.parametrize(
        ("crd", "group", "kind", "plural"),
        [
            ("keepalivedgroups", names.REDHATCOP_GROUP, names.KEEPALIVED_GROUP, "keepalivedgroups"),
            ("vippools", names.KAVIP_GROUP, names.VIP_POOL, "vippools"),
        ],
    )
    def test_names_are_those_of_the_code(self, crd: str, group: str, kind: str, plural: str) -> None:
        """Group, kind, plural and version are those that the client uses."""
        found = manifests.only(manifests.objects(*manifests.CRDS), "CustomResourceDefinition", f"{plural}.{group}")
        spec = found["spec"]
        assert (spec["group"], spec["names"]["kind"], spec["names"]["plural"]) == (group, kind, crd)
        assert [version["name"] for version in spec["versions"]] == [names.VERSION]
        assert spec["versions"][0]["subresources"] == {"status": {}}
        columns = {each["name"]: each["jsonPath"] for each in spec["versions"][0]["additionalPrinterColumns"]}
        assert columns["Accepted"] == f'.status.conditions[?(@.type=="{names.ConditionType.ACCEPTED}")].reason'
        assert columns["Ready"] == f'.status.conditions[?(@.type=="{names.ConditionType.READY}")].status'

    def test_old_fields_accept_what_they_accepted(self) -> None:
        """The fields of keepalived-operator have its types and defaults; only new or changed objects have limits."""
        schema = SCHEMAS[names.KEEPALIVED_GROUP]
        spec = openapi.bare(schema["properties"]["spec"], "x-kubernetes-validations", "maxLength", "maxItems")
        assert {name: spec["properties"][name] for name in OLD_FIELDS} == OLD_FIELDS
        assert spec["required"] == [
            "interface"
        ]  # keepalived-operator required image although it has a default, so kubectl requires it in a List
        assert "required" not in schema

    def test_rules_leave_old_objects_alone(self) -> None:
        """Each rule for the whole spec starts with a field that keepalived-operator does not have."""
        for rule in SCHEMAS[names.KEEPALIVED_GROUP]["properties"]["spec"]["x-kubernetes-validations"]:
            absent = re.match(r"!has\(self\.(\w+)\) \|\|", rule["rule"])
            assert absent
            assert absent[1] not in OLD_FIELDS

    def test_new_fields_are_bounded(self) -> None:
        """Every list and string of kavip has a limit, because CEL has a budget and etcd a maximum size."""
        for schema in SCHEMAS.values():
            spec = {**schema["properties"]["spec"]}
            spec["properties"] = {name: each for name, each in spec["properties"].items() if name not in OLD_FIELDS}
            assert list(openapi.unbounded(spec, "spec")) == []

    def test_every_rule_has_a_message(self) -> None:
        """Most messages have the value, which old API servers do not add."""
        rules = [rule for schema in SCHEMAS.values() for rule in openapi.validations(schema)]
        assert rules
        messages = [rule.get("message") or rule["messageExpression"] for rule in rules]
        assert [each for each in messages if "want " not in each] == [
            "In and NotIn need values; Exists and DoesNotExist take none"
        ] * 3

    def test_every_rule_is_in_the_table_of_refusals(self) -> None:
        """The reference shows the message of each CEL rule with an object that it refuses."""
        for kind, schema in SCHEMAS.items():
            cases = (case for case in refusals.cases() if (case.kind, case.by) == (kind, "crd"))
            named_ = "\n".join(message for case in cases for _, message in case.causes)
            missing = [words for rule in openapi.validations(schema) for words in _words(rule) if words not in named_]
            # the mutating webhook adds a missing spec, so it is seen only while kavip is down
            assert missing == (["is missing; want at least interface"] if kind == names.KEEPALIVED_GROUP else [])

    def test_rules_compile_on_the_oldest_kubernetes(self) -> None:
        """
        Rules use only what Kubernetes 1.30 supports and can afford.

        The functions ip and cidr exist since 1.30, and rules may use them one version later. Optional selection
        (``.?``) costs more there than a rule may.
        """
        rules = [rule for schema in SCHEMAS.values() for rule in openapi.validations(schema)]
        text = " ".join(rule["rule"] + " " + rule.get("messageExpression", "") for rule in rules)
        outside_literals = re.sub(r"'[^']*'", "", text)
        tests = {"has", "matches", "size", "all", "exists_one", "hasValue", "value"}
        assert set(re.findall(r"(\w+)\(", outside_literals)) == tests | {"int", "split", "replace", "format", "quote"}
        assert ".?" not in outside_literals

    def test_the_chart_has_the_same_crds(self) -> None:
        """The chart's copies are identical to config/crd."""
        copies = {path.name: path.read_text() for path in (manifests.CHART / "files" / "crds").iterdir()}
        assert copies == {path.name: path.read_text() for path in manifests.CRDS}


def _words(rule: dict[str, Any]) -> list[str]:
    """The constant text in the message of a CEL rule."""
    if "message" in rule:
        return [rule["message"]]
    return [words for text in re.findall(r"'([^']*)'", rule["messageExpression"]) for words in re.split("%[ds]", text)]


class TestWebhook:
    """config/webhook: the requests that the API server sends."""

    FOUND = manifests.objects(
        manifests.CONFIG / "webhook" / "manifests.yaml", manifests.CONFIG / "webhook" / "service.yaml"
    )

    def test_configurations_are_those_of_the_code(self) -> None:
        """Rules, conditions, selectors, policies and timeouts are those that kavip would register itself."""
        client = registration.ServiceClientConfig(manifests.NAMESPACE, "kavip-webhook")
        for expected in registration.configurations("kavip", client, namespace=manifests.NAMESPACE):
            found = manifests.only(self.FOUND, expected["kind"])
            assert found["metadata"]["name"] == expected["metadata"]["name"]
            assert normal(found["webhooks"]) == normal(expected["webhooks"])

    def test_the_service_leads_to_the_pods(self) -> None:
        """The Service has the port of the configurations and the selector of the pods."""
        service = manifests.only(self.FOUND, "Service", "kavip-webhook")
        found = manifests.objects(manifests.CONFIG / "manager" / "manager.yaml")
        deployment = manifests.only(found, "Deployment", "kavip-webhook")
        (port,) = service["spec"]["ports"]
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        assert port["port"] == registration.ServiceClientConfig("", "").port
        assert {"name": port["targetPort"], "containerPort": names.WEBHOOK_PORT} in container["ports"]
        assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()


class TestRights:
    """The table of rights, the code, and config/rbac."""

    FOUND = manifests.objects(manifests.CONFIG / "rbac" / "role.yaml")

    def test_the_table_is_well_formed(self) -> None:
        """Each rule has known accounts and a known scope, and no rule has a wildcard."""
        for rule in rights.rules():
            assert rule.accounts in (rights.ACCOUNTS, *((each,) for each in rights.ACCOUNTS)), rule
            assert rule.scope in rights.SCOPES, rule
            assert rule.when.keys() <= rights.DEFAULTS.keys(), rule
            assert not any("*" in part for right in rule.rights for part in right), rule

    @pytest.mark.parametrize("scope", resources.Scope)
    @pytest.mark.parametrize("component", resources.Component)
    def test_the_table_has_the_verbs_that_are_used(
        self, component: resources.Component, scope: resources.Scope
    ) -> None:
        """Each account holds in each scope exactly what its component uses, and what it grants to others."""
        kinds, grant = resources.GRANTED
        granted = {("", kind, verb) for kind in kinds for verb in grant.verbs}
        expected = used(component, scope) | (granted if (grant.component, grant.scope) == (component, scope) else set())
        assert rights.held(component, scope) == expected
        for mode in ("provided", "cert-manager", "service-ca"):
            assert rights.held(component, scope, values={"certs.mode": mode}) <= expected

    def test_the_webhook_writes_next_to_nothing(self) -> None:
        """The account of the process that listens to clients writes its CA and its Events, and asks for reviews."""
        writes = {right for right in rights.held("webhook") if right[2] not in ("get", "list", "watch")}
        assert writes == {
            *(("", kind, verb) for kind in ("secrets", "configmaps") for verb in ("create", "patch")),
            ("authorization.k8s.io", "subjectaccessreviews", "create"),
            ("events.k8s.io", "events", "create"),
            ("events.k8s.io", "events", "patch"),
        }
        assert not rights.held("webhook", "groups")

    def test_the_controller_reads_no_secret(self) -> None:
        """No mode of certificates gives the account of the controller a right to Secrets."""
        assert not [rule for rule in rights.rules() if "controller" in rule.accounts and _concerns(rule, "secrets")]

    @pytest.mark.parametrize("account", rights.ACCOUNTS)
    def test_secure_metrics_need_two_reviews(self, account: str) -> None:
        """Each account may create both kinds, and gets no other right."""
        asked = (resources.TOKEN_REVIEWS, resources.SUBJECT_ACCESS_REVIEWS)
        needed = {(each.group, each.plural, "create") for each in asked}
        usual = rights.held(account)
        secure = rights.held(account, "cluster", values={"metrics.secure": "true"})
        assert needed <= secure
        assert secure - usual <= needed

    def test_config_is_the_table(self) -> None:
        """The roles of config/rbac have the rights of the table with the chart's default values."""
        by_kind = {kind: [role for role in self.FOUND if role["kind"] == kind] for kind in ("ClusterRole", "Role")}
        for kind, scopes in (("ClusterRole", ("cluster", "groups")), ("Role", ("release",))):
            expected = set().union(*(rights.held(account, *scopes) for account in rights.ACCOUNTS))
            assert rights.of_roles(by_kind[kind]) == expected

    def test_rights_are_restricted_to_names_if_possible(self) -> None:
        """Rights to Secrets, Leases, Deployments and webhook configurations have names, except for create."""
        bound: dict[tuple[str, str], set[str]] = {}
        for rule in rights.rules():
            for _, resource, _ in rule.rights if rule.names else ():
                bound.setdefault((rule.scope, resource), set()).update(rule.names)
        assert bound == {
            ("release", "secrets"): {names.CA_SECRET_NAME, "$certs.secretName"},
            ("release", "configmaps"): {names.CA_CONFIGMAP_NAME, names.VALUES_CONFIGMAP_NAME},
            ("release", "leases"): {names.LEASE_NAME},
            ("cluster", "leases"): {*resources.OPERATOR_LEASES.names},
            ("cluster", "deployments"): {*resources.OPERATOR_DEPLOYMENTS.names},
            ("cluster", "mutatingwebhookconfigurations"): {"kavip"},
            ("cluster", "validatingwebhookconfigurations"): {"kavip"},
            ("cluster", "vippools"): {"$pools"},
            ("cluster", "keepalivedgroups"): {"$groups"},
        }
        for rule in rights.rules():
            if not rule.names and rule.scope == "release" and not _concerns(rule, "events"):
                assert {verb for _, _, verb in rule.rights} == {"create"}


def _concerns(rule: rights.Rule, kind: str) -> bool:
    return any(resource == kind for _, resource, _ in rule.rights)


class TestDeployment:
    """config/manager and the chart's values: how kavip runs."""

    PODS: typing.ClassVar = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in manifests.objects(manifests.CONFIG / "manager" / "manager.yaml")
        if each["kind"] == "Deployment"
    }
    CONTAINERS: typing.ClassVar = {name: pod["containers"][0] for name, pod in PODS.items()}
    ENVIRONMENT: typing.ClassVar = {
        each["name"]: each.get("value") for container in CONTAINERS.values() for each in container["env"]
    }
    OUTSIDE = frozenset({"kubeconfig", "webhook_url", "olm_owner", "template_file"})
    """Settings of a kavip that runs outside a cluster, that OLM runs, or that has a template for all pods."""

    def test_each_setting_is_a_variable(self) -> None:
        """Exactly the settings that matter in a cluster are set, each for a program that reads it."""
        expected = {f"{names.ENV_PREFIX}_{each.name.upper()}" for each in dataclasses.fields(Settings)}
        expected -= {f"{names.ENV_PREFIX}_{name.upper()}" for name in self.OUTSIDE}
        assert set(self.ENVIRONMENT) == expected

    def test_values_have_the_defaults_of_the_program(self) -> None:
        """The variables have the defaults of the settings, except for names that depend on the cluster."""
        given = {"namespace", "identity", "image", *self.OUTSIDE}
        for each in dataclasses.fields(Settings):
            if each.name not in given:
                default = str(each.default).lower() if isinstance(each.default, bool) else str(each.default)
                assert self.ENVIRONMENT[f"{names.ENV_PREFIX}_{each.name.upper()}"] == default, each.name

    def test_agents_run_the_same_image(self) -> None:
        """KAVIP_IMAGE, for groups without an image, is the image of the Deployments."""
        assert {each["image"] for each in self.CONTAINERS.values()} == {self.ENVIRONMENT["KAVIP_IMAGE"]}

    def test_ports_and_paths_are_those_of_the_code(self) -> None:
        """Container ports and probes are those that the programs serve; only the webhook serves reviews."""
        served = {"metrics": names.METRICS_PORT, "probes": names.PROBE_PORT}
        for name, container in self.CONTAINERS.items():
            ports = {each["name"]: each["containerPort"] for each in container["ports"]}
            assert ports == (served | {"webhook": names.WEBHOOK_PORT} if name == "kavip-webhook" else served)
            paths = {probe: container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
            assert paths == {"livenessProbe": names.LIVE_PATH, "readinessProbe": names.READY_PATH}

    def test_pods_have_no_privileges(self) -> None:
        """No pod is root, has a capability, or can write to its root file system."""
        for name, pod in self.PODS.items():
            assert pod["securityContext"]["runAsNonRoot"] is True
            assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert self.CONTAINERS[name]["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert "volumes" not in pod

    def test_pods_have_time_to_end(self) -> None:
        """The grace period covers the sleep before SIGTERM, the drain after it, and the release of the lease."""
        drain = next(each.default for each in dataclasses.fields(Settings) if each.name == "drain_seconds")
        for name, pod in self.PODS.items():
            sleep = self.CONTAINERS[name].get("lifecycle", {"preStop": {"sleep": {"seconds": 0}}})["preStop"]["sleep"]
            assert pod["terminationGracePeriodSeconds"] >= sleep["seconds"] + drain + 10


@pytest.mark.parametrize("sample", manifests.objects(*manifests.SAMPLES), ids=lambda each: each["metadata"]["name"])
def test_samples_can_be_read(sample: manifests.Object) -> None:
    """kavip decodes each sample without losing a field."""
    types: dict[str, Any] = {**STRUCTS, names.SERVICE: Service}
    read = msgspec.convert(sample, types[sample["kind"]])
    assert read.metadata.name == sample["metadata"]["name"]
    if sample["kind"] in STRUCTS:
        assert msgspec.to_builtins(read.spec) == sample["spec"]


def normal(webhooks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """*webhooks* with folded whitespace in their expressions, because YAML breaks long lines."""
    folded: list[dict[str, Any]] = json.loads(json.dumps(webhooks))
    for webhook in folded:
        for condition in webhook["matchConditions"]:
            condition["expression"] = " ".join(condition["expression"].split())
    return folded


def used(component: resources.Component, scope: resources.Scope) -> rights.Rights:
    """The rights that a component needs in a scope."""
    return {
        (resource.group, "/".join(filter(None, (resource.plural, use.subresource))), verb)
        for resource in resources.ALL
        for use in resource.uses
        if (use.component, use.scope) == (component, scope)
        for verb in use.verbs
    }
