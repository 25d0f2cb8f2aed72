"""The output of `helm template`."""

import json

import pytest
import yaml

from hack.dashboards import grafana
from hack.testbed.place import run
from hack.testbed.programs import Programs
from kavip import names
from kavip.admission import registration
from kavip.reconcile import chartvalues
from tests.chart.release import Helm, environment, pods, rendered
from tests.support import manifests
from tests.test_manifests import normal

pytestmark = pytest.mark.chart

PEM = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
DIGEST = f"sha256:{'a' * 64}"
OF_HELM = ("app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart")


GROUP = '{"name":"edge","namespace":"web","spec":{"interface":"eth0"}}'


class TestRendering:
    """The objects of the release."""

    def test_lint_finds_nothing(self, helm: Helm) -> None:
        """`helm lint --strict` passes."""
        helm("lint", "--strict", str(manifests.CHART))

    @pytest.mark.parametrize(
        ("base", "settings"),
        [("default", []), ("openshift", ["openshift.enabled=true"]), ("metrics", ["metrics.secure=true"])],
        ids=["default", "openshift", "metrics"],
    )
    def test_it_is_what_config_says(self, helm: Helm, programs: Programs, base: str, settings: list[str]) -> None:
        """The chart equals a folder of config, except for the namespace and Helm's labels."""
        kustomized = manifests.parsed(run([programs["kubectl"], "kustomize", str(manifests.CONFIG / base)]).stdout)
        expected = {key(each): comparable(each) for each in kustomized if each["kind"] != "Namespace"}
        found = {key(each): comparable(each) for each in rendered(helm, *settings) if not hook_of(each)}
        assert found.keys() == expected.keys()
        for name, subject in found.items():
            assert subject == expected[name], name

    def test_monitor_and_alerts_are_what_config_says(self, helm: Helm, programs: Programs) -> None:
        """The PodMonitor and the PrometheusRule of the chart equal config/prometheus."""
        text = run([programs["kubectl"], "kustomize", str(manifests.CONFIG / "prometheus")]).stdout
        objects = rendered(helm, "podMonitor.enabled=true", "prometheusRule.enabled=true")
        for expected in manifests.parsed(text):
            found = manifests.only(objects, expected["kind"])
            assert comparable(found) == comparable(expected)

    def test_alerts_lead_to_a_published_runbook(self, helm: Helm) -> None:
        """With its address each alert has a URL in place of the path in this repository; nothing else changes."""
        url = "https://docs.example/kavip/runbooks?version=1"
        settings = ("prometheusRule.enabled=true", 'prometheusRule.labels={"release":"prometheus"}')
        plain, linked = (
            manifests.only(rendered(helm, *each), "PrometheusRule")
            for each in (settings, (*settings, f'prometheusRule.runbookURL="{url}"'))
        )
        assert linked["metadata"]["labels"]["release"] == "prometheus"
        alerts = [alert for group in plain["spec"]["groups"] for alert in group["rules"]]
        for alert in alerts:
            path, _, anchor = alert["annotations"].pop("runbook").partition("#")
            assert (manifests.ROOT / path).exists()
            alert["annotations"]["runbook_url"] = f"{url}#{anchor}"
        assert len(alerts) > 20
        assert linked == plain

    def test_dashboards_are_config_maps(self, helm: Helm) -> None:
        """Each file is one ConfigMap, with the labels, annotations and namespace of the values; the default is none."""
        chosen = 'dashboards={"enabled":true,"namespace":"grafana","annotations":{"grafana_folder":"kavip"}}'
        here, there = (
            {name: each for each in rendered(helm, setting) for name in each.get("data", ()) if name.endswith(".json")}
            for setting in ("dashboards.enabled=true", chosen)
        )
        for path, text in grafana.files().items():
            expected = json.loads(text)
            for panel in expected["panels"]:
                panel.pop("links", None)  # their address is not known
            found = here[f"kavip-{path.name}"], there[f"kavip-{path.name}"]
            assert [json.loads(each["data"][f"kavip-{path.name}"]) for each in found] == [expected, expected]
            assert [each["metadata"]["namespace"] for each in found] == [manifests.NAMESPACE, "grafana"]
            assert {each["metadata"]["labels"]["grafana_dashboard"] for each in found} == {"1"}
            assert found[1]["metadata"]["annotations"] == {"grafana_folder": "kavip"}
        assert len(here) == len(there) == len(grafana.files())
        assert not [each for each in rendered(helm) if "grafana_dashboard" in each["metadata"].get("labels", {})]

    def test_panels_lead_to_a_published_runbook(self, helm: Helm) -> None:
        """With its address each panel links the sections of its alerts."""
        url = "https://docs.example/kavip/runbooks?version=1"
        objects = rendered(helm, "dashboards.enabled=true", f'prometheusRule.runbookURL="{url}"')
        for path, text in grafana.files().items():
            found = manifests.only(objects, "ConfigMap", f"kavip-dashboard-{path.stem}")
            expected = text.replace('"url": "docs/howto/runbooks.md#', f'"url": "{url}#')
            assert json.loads(found["data"][f"kavip-{path.name}"]) == json.loads(expected)

    def test_definitions_are_kept(self, helm: Helm) -> None:
        """The chart's CRDs equal config/crd, and uninstalling keeps them."""
        found = [each for each in rendered(helm) if each["kind"] == "CustomResourceDefinition"]
        assert [each["spec"] for each in found] == [each["spec"] for each in manifests.objects(*manifests.CRDS)]
        assert all(each["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"} for each in found)
        assert not [each for each in rendered(helm, "crds.install=false") if each["kind"] == found[0]["kind"]]

    def test_webhooks_follow_the_namespace(self, helm: Helm) -> None:
        """In another namespace, the configurations are those that kavip would register there."""
        objects = rendered(helm, namespace="lb-system")
        client = registration.ServiceClientConfig("lb-system", "kavip-webhook")
        for expected in registration.configurations("kavip", client, namespace="lb-system"):
            assert normal(manifests.only(objects, expected["kind"])["webhooks"]) == normal(expected["webhooks"])

    @pytest.mark.parametrize(
        ("options", "settings"),
        [
            (registration.RegistrationOptions(external_ips="all"), ['externalIPs.scope="all"']),
            (registration.RegistrationOptions(external_ips="off"), ['externalIPs.scope="off"']),
            (
                registration.RegistrationOptions(mutating="Fail", validating="Ignore"),
                ['webhook.failurePolicy={"mutating":"Fail","validating":"Ignore"}'],
            ),
        ],
    )
    def test_webhooks_follow_the_choices(
        self, helm: Helm, options: registration.RegistrationOptions, settings: list[str]
    ) -> None:
        """Scope of externalIPs and failure policies have the same effect as in the code."""
        objects = rendered(helm, *settings)
        client = registration.ServiceClientConfig(manifests.NAMESPACE, "kavip-webhook")
        for expected in registration.configurations("kavip", client, namespace=manifests.NAMESPACE, options=options):
            assert normal(manifests.only(objects, expected["kind"])["webhooks"]) == normal(expected["webhooks"])

    @pytest.mark.parametrize(
        ("mode", "annotations"),
        [
            ("self", None),
            ("provided", None),
            ("cert-manager", {"cert-manager.io/inject-ca-from": "kavip/kavip-webhook"}),
            ("service-ca", {"service.beta.openshift.io/inject-cabundle": "true"}),
        ],
    )
    def test_the_mode_decides_which_controller_injects_ca_bundle(
        self, helm: Helm, mode: str, annotations: dict[str, str] | None
    ) -> None:
        """If kavip does not, annotations request it from the other controller; the chart never writes it."""
        objects = rendered(helm, f'certs={{"mode":"{mode}","secretName":"tls"}}')
        for kind in (registration.MUTATING, registration.VALIDATING):
            found = manifests.only(objects, kind)
            assert found["metadata"].get("annotations") == annotations
            assert not [hook for hook in found["webhooks"] if "caBundle" in hook["clientConfig"]]
        serving = manifests.only(objects, "Service")["metadata"].get("annotations")
        assert serving == (
            {"service.beta.openshift.io/serving-cert-secret-name": "tls"} if mode == "service-ca" else None
        )
        leaf = [each["spec"] for each in objects if each["kind"] == "Certificate" and not each["spec"].get("isCA")]
        assert [each["secretName"] for each in leaf] == (["tls"] if mode == "cert-manager" else [])

    @pytest.mark.parametrize(
        ("setting", "variable", "value"),
        [
            ('ipam="never"', "KAVIP_IPAM", "never"),
            ('externalIPs.scope="off"', "KAVIP_EXTERNAL_IPS_SCOPE", "off"),
            ('certs.mode="provided"', "KAVIP_CERTS_MODE", "provided"),
            ('certs.secretName="tls"', "KAVIP_CERTS_SECRET", "tls"),
            ('webhook.host="192.0.2.1"', "KAVIP_WEBHOOK_HOST", "192.0.2.1"),
            ("webhook.port=10443", "KAVIP_WEBHOOK_PORT", "10443"),
            ('webhook.allowMissingGroup="warn"', "KAVIP_ALLOW_MISSING_GROUP", "warn"),
            ("webhook.drainSeconds=0", "KAVIP_DRAIN_SECONDS", "0"),
            ("controller.leaseSeconds=60", "KAVIP_LEASE_SECONDS", "60"),
            ("agent.port=9700", "KAVIP_AGENT_PORT", "9700"),
            (f"webhook.clientCA={json.dumps(PEM)}", "KAVIP_WEBHOOK_CLIENT_CA", PEM),
            ('agent.allowedCIDRs=["10.0.0.0/8","::1/128"]', "KAVIP_AGENT_ALLOWED_CIDRS", "10.0.0.0/8,::1/128"),
            ('agent.metrics="mehdy"', "KAVIP_AGENT_METRICS", "mehdy"),
            ("agent.probeInterval=9", "KAVIP_PROBE_INTERVAL", "9"),
            ('metrics.host="::1"', "KAVIP_METRICS_HOST", "::1"),
            ("metrics.port=8090", "KAVIP_METRICS_PORT", "8090"),
            ("metrics.secure=true", "KAVIP_METRICS_SECURE", "true"),
            ('probes.host="::1"', "KAVIP_PROBE_HOST", "::1"),
            ("probes.port=8091", "KAVIP_PROBE_PORT", "8091"),
            ('logLevel="debug"', "KAVIP_LOG_LEVEL", "debug"),
            ('logFormat="text"', "KAVIP_LOG_FORMAT", "text"),
            ('image={"repository":"registry.example/kavip","tag":"1"}', "KAVIP_IMAGE", "registry.example/kavip:1"),
            (f'image={{"tag":"1","digest":"{DIGEST}"}}', "KAVIP_IMAGE", f"localhost/kavip@{DIGEST}"),
            ('image={"registry":"mirror.example:5000/a","tag":"1"}', "KAVIP_IMAGE", "mirror.example:5000/a/kavip:1"),
            (
                'image={"registry":"mirror.example","repository":"registry.example:5000/b/kavip","tag":"1"}',
                "KAVIP_IMAGE",
                "mirror.example/b/kavip:1",
            ),
            (
                'image={"registry":"mirror.example","repository":"b/kavip","tag":"1"}',
                "KAVIP_IMAGE",
                "mirror.example/b/kavip:1",
            ),
            ('image.pullPolicy="Always"', "KAVIP_PULL_POLICY", "Always"),
            ('imagePullSecrets=[{"name":"a"},{"name":"b"}]', "KAVIP_PULL_SECRETS", "a,b"),
        ],
    )
    def test_values_reach_the_program(self, helm: Helm, setting: str, variable: str, value: str) -> None:
        """Each value sets its variable, and nothing else in the environment."""
        usual, found = environment(rendered(helm)), environment(rendered(helm, setting))
        assert found == {**usual, variable: value}
        assert usual[variable] != value

    @pytest.mark.parametrize(
        ("setting", "path"),
        [
            ("colour=1", "colour"),
            ('topology="three"', "topology"),
            ("webhook.colour=1", "colour"),
            ('ipam="sometimes"', "ipam"),
            ('agent.allowedCIDRs=["everybody"]', "agent/allowedCIDRs"),
            ('webhook.clientCA="/etc/ca.crt"', "webhook/clientCA"),
            ('agent.allowedCIDRs=["10.0.0.0/33"]', "agent/allowedCIDRs"),
            ('agent.allowedCIDRs=["10.0.0.256/8"]', "agent/allowedCIDRs"),
            ('agent.allowedCIDRs=["fd00::/129"]', "agent/allowedCIDRs"),
            ('agent.metrics="prometheus"', "agent/metrics"),
            ('certs.mode="by-hand"', "certs/mode"),
            ('openshift.serviceAccounts=["default"]', "openshift/serviceAccounts"),
            ("webhook.port=0", "webhook/port"),
            ('replicaCount="two"', "replicaCount"),
            ('externalIPs.scope="some"', "externalIPs/scope"),
            ('image.digest="1.0.0"', "image/digest"),
            ('image.registry="https://mirror.example/"', "image/registry"),
            ('pools=[{"name":"a","spec":{"addresses":[],"adresses":[]}}]', "'/pools/0/spec': additional properties"),
            ('pools=[{"name":"a","nme":"b","spec":{"addresses":["192.0.2.0/28"]}}]', "'/pools/0': additional"),
            ('pools=[{"name":"a b","spec":{"addresses":["192.0.2.0/28"]}}]', "'/pools/0/name'"),
            ('groups=[{"name":"a"}]', "'/groups/0': missing property 'spec'"),
            ('groups=[{"name":"a","spec":{"interface":1}}]', "'/groups/0/spec/interface': got number, want string"),
            (
                'groups=[{"name":"a","spec":{"interface":"e","checks":[{"name":"a","url":"kubelet","every":1}]}}]',
                "'/groups/0/spec/checks/0': additional properties 'every' not allowed",
            ),
        ],
    )
    def test_bad_values_are_named(self, helm: Helm, setting: str, path: str) -> None:
        """An unknown or malformed value is refused with its name."""
        done = helm("template", "kavip", str(manifests.CHART), "--set-json", setting, check=False)
        assert done.returncode
        assert path in done.stderr

    @pytest.mark.parametrize("topology", ["split", "combined"])
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (["metrics.port=8081"], "metrics.port and probes.port are both 8081: want different ports"),
            (["probes.port=9443"], "webhook.port and probes.port are both 9443: want different ports"),
            (
                ["webhook.hostNetwork=true", "agent.port=9443"],
                "webhook.port and agent.port are both 9443: want different ports",
            ),
            (['groupNamespaces=["lb","kube-system"]'], "groupNamespaces: kube-system: kavip writes nothing there"),
            (
                ['groupNamespaces=["lb"]', f"groups=[{GROUP}]"],
                "groups[0].namespace: web: want one of groupNamespaces (lb)",
            ),
            (
                [f"groups=[{GROUP.replace('web', 'kube-system')}]"],
                "groups[0].namespace: kube-system: kavip writes nothing there",
            ),
        ],
    )
    def test_values_that_exclude_each_other_are_named(
        self, helm: Helm, topology: str, settings: list[str], message: str
    ) -> None:
        """The chart fails with the paths of the values, before anything is created."""
        values = [argument for each in settings for argument in ("--set-json", each)]
        chosen = ("template", "kavip", str(manifests.CHART), f"--set=topology={topology}")
        done = helm(*chosen, *values, check=False)
        assert done.returncode
        assert message in done.stderr

    @pytest.mark.parametrize(
        "settings",
        [["agent.port=9443"], ['groupNamespaces=["kube-system"]', "policies.enabled=false"]],
        ids=["agents in a network of their own", "no policies"],
    )
    def test_values_that_only_look_alike_are_accepted(self, helm: Helm, settings: list[str]) -> None:
        """Without the host network, agents do not share ports with kavip; without policies, kavip writes anywhere."""
        assert rendered(helm, *settings)

    @pytest.mark.parametrize("mode", ["provided", "cert-manager", "service-ca"])
    @pytest.mark.parametrize("name", ["123", "1e3", "true", "null"])
    def test_a_name_that_yaml_takes_for_something_else_stays_a_name(self, helm: Helm, mode: str, name: str) -> None:
        """
        Kubernetes allows such names; without quotes YAML reads them as numbers or null, and the release fails halfway.
        """
        usual, odd = (
            rendered(helm, f'certs={{"mode":"{mode}","secretName":"{each}"}}', f'priorityClassName="{each}"')
            for each in ("usual-name", name)
        )
        assert odd == json.loads(json.dumps(usual).replace("usual-name", name))

    def test_every_pod_has_the_image_by_digest(self, helm: Helm) -> None:
        """The Deployments, the pod of `helm test` and the pods of groups have one image, and no other is named."""
        objects = rendered(helm, f'image={{"registry":"mirror.example","digest":"{DIGEST}"}}')
        (test,) = [each["spec"] for each in objects if each["kind"] == "Pod"]
        specs = [test, *(pod["spec"] for pod in pods(objects))]
        wanted = f"mirror.example/kavip@{DIGEST}"
        assert {container["image"] for spec in specs for container in spec["containers"]} == {wanted}
        assert environment(objects)["KAVIP_IMAGE"] == wanted
        assert not any("initContainers" in spec for spec in specs)

    def test_pools_and_groups_are_handed_to_the_leader(self, helm: Helm) -> None:
        """The ConfigMap has them as kavip reads them; rights and policies name exactly these objects."""
        pool = '{"name":"lan","labels":{"a":"b"},"spec":{"addresses":["192.0.2.0/28"],"cooldownSeconds":1000000}}'
        group = '{"name":"edge","default":true,"spec":{"interface":"eth0"}}'
        objects = rendered(helm, f"pools=[{pool}]", f"groups=[{group},{GROUP}]")
        data = manifests.only(objects, "ConfigMap", names.VALUES_CONFIGMAP_NAME)["data"]
        lan, edge, web = chartvalues.read(data[names.VALUES_KEY])
        assert (lan.key, edge.key, web.key) == ("lan", "kavip/edge", "web/edge")
        assert lan.body["spec"] == {"addresses": ["192.0.2.0/28"], "cooldownSeconds": 1000000}
        assert edge.body["metadata"]["labels"] == {names.DEFAULT_GROUP_LABEL: "true"}
        assert [each.problem for each in (lan, edge, web)] == [""] * 3
        role = manifests.only(objects, "ClusterRole", "kavip-controller")
        writers = {
            rule["resources"][0]: rule["resourceNames"]
            for rule in role["rules"]
            if "create" in rule["verbs"] and "resourceNames" in rule
        }
        assert writers == {"vippools": ["lan"], "keepalivedgroups": ["edge"]}
        policy = json.dumps(manifests.only(objects, "ValidatingAdmissionPolicy", "kavip-values"))
        assert 'object.metadata.name in [\\"lan\\"]' in policy
        assert 'object.metadata.name in [\\"kavip/edge\\",\\"web/edge\\"]' in policy

    def test_the_values_for_k3s_make_a_pool_and_a_group(self, helm: Helm) -> None:
        """The manifest of the page has the values of the chart as text."""
        text = (manifests.ROOT / "docs" / "howto" / "values.md").read_text()
        manifest = text.partition("apiVersion: helm.cattle.io/v1")[2].partition("```")[0]
        values = yaml.safe_load(yaml.safe_load(manifest)["spec"]["valuesContent"])
        objects = rendered(helm, *(f"{key}={json.dumps(value)}" for key, value in values.items()))
        data = manifests.only(objects, "ConfigMap", names.VALUES_CONFIGMAP_NAME)["data"]
        assert [each.key for each in chartvalues.read(data[names.VALUES_KEY])] == ["lan", "kavip/edge"]

    @pytest.mark.parametrize("values", ["{}", '{"pools":null,"groups":null}'], ids=["empty", "of an older release"])
    def test_without_pools_and_groups_kavip_may_write_none(self, helm: Helm, values: str) -> None:
        """There is no ConfigMap, and no rule: one with no names would permit all."""
        objects = rendered(helm, values)
        assert not [each for each in objects if each["kind"] == "ConfigMap"]
        rules = manifests.only(objects, "ClusterRole", "kavip-controller")["rules"]
        writable = {each for rule in rules if "create" in rule["verbs"] for each in rule["resources"]}
        assert writable.isdisjoint({"vippools", "keepalivedgroups"})

    def test_pods_are_placed_by_the_values(self, helm: Helm) -> None:
        """Values for pods are in the pod template."""
        pod = {
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"operator": "Exists"}],
            "affinity": {"nodeAffinity": {}},
            "priorityClassName": "system-cluster-critical",
            "imagePullSecrets": [{"name": "pull"}],
        }
        objects = rendered(helm, *(f"{name}={json.dumps(value)}" for name, value in pod.items()))
        for found in pods(objects):
            assert {name: found["spec"][name] for name in pod} == pod


def hook_of(subject: manifests.Object) -> str:
    """The hook of *subject*, if it is not part of the release."""
    return str(subject["metadata"].get("annotations", {}).get("helm.sh/hook", ""))


def key(subject: manifests.Object) -> tuple[str, str, str]:
    """The identity of an object."""
    metadata = subject["metadata"]
    return subject["kind"], metadata.get("namespace", ""), metadata["name"]


def comparable(subject: manifests.Object) -> manifests.Object:
    """*subject* without what only helm writes."""
    metadata = {**subject["metadata"]}
    labels = {name: value for name, value in metadata.pop("labels", {}).items() if name not in OF_HELM}
    annotations = {
        name: value for name, value in metadata.pop("annotations", {}).items() if name != "helm.sh/resource-policy"
    }
    if subject["kind"] == "CustomResourceDefinition":
        labels = {}
    result = {**subject, "metadata": {**metadata, "labels": labels, "annotations": annotations}}
    if result["kind"] == "Deployment":
        for container in result["spec"]["template"]["spec"]["containers"]:
            container["env"].sort(key=lambda each: each["name"])  # a patch of kustomize's changes the order
    if "webhooks" in result:
        result["webhooks"] = normal(result["webhooks"])
    return result
