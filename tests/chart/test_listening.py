"""What the chart says about the ports: metrics over TLS, who scrapes them, and who may connect."""

import json
from typing import Any

import pytest

from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import run
from hack.testbed.programs import Programs
from tests.chart.release import Helm, environment, pods, rendered
from tests.chart.test_rendering import comparable
from tests.chart.test_topology import COMPONENTS, TOPOLOGIES
from tests.support import manifests

pytestmark = pytest.mark.chart

SECURE = ("metrics.secure=true", "serviceMonitor.enabled=true")
OWN = 'metrics.certSecret="own"'
TOKEN = 'metrics.tokenSecret={"name":"reader","key":"token"}'
PEERS: dict[str, list[dict[str, Any]]] = {
    "webhook": [{"ipBlock": {"cidr": "192.0.2.0/28", "except": ["192.0.2.8/32"]}}],
    "metrics": [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
            "podSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["prometheus"]}]},
        },
        {"podSelector": {}},
    ],
    "probes": [{"ipBlock": {"cidr": "2001:db8::/64"}}],
}


def endpoint(objects: list[manifests.Object], kind: str) -> manifests.Object:
    """The only endpoint of the monitor of *kind*."""
    spec = manifests.only(objects, kind)["spec"]
    (found,) = spec["endpoints"] if kind == "ServiceMonitor" else spec["podMetricsEndpoints"]
    return dict(found)


class TestMetrics:
    """``metrics.secure``."""

    def test_plain_monitors_have_no_credentials(self, helm: Helm) -> None:
        """Without it nothing of it is rendered, whatever its other values are."""
        objects = rendered(helm, "serviceMonitor.enabled=true", "podMonitor.enabled=true", OWN, TOKEN)
        assert endpoint(objects, "ServiceMonitor") == endpoint(objects, "PodMonitor") == PLAIN
        assert "metrics-reader" not in json.dumps(objects)
        assert "tokenreviews" not in json.dumps(objects)
        assert "own" not in environment(objects).values()

    def test_prometheus_sends_the_token_of_its_own_account(self, helm: Helm) -> None:
        """The file that kubelet mounts into its pod; the self-signed certificate is not verified."""
        assert endpoint(rendered(helm, *SECURE), "ServiceMonitor") == {
            **PLAIN,
            "scheme": "https",
            "tlsConfig": {"insecureSkipVerify": True},
            "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        }

    def test_a_token_and_a_certificate_may_be_given(self, helm: Helm) -> None:
        """Then both monitors name the Secrets, and no file of Prometheus."""
        objects = rendered(helm, *SECURE, OWN, TOKEN, "podMonitor.enabled=true")
        for kind in ("ServiceMonitor", "PodMonitor"):
            assert endpoint(objects, kind) == {
                **PLAIN,
                "scheme": "https",
                "authorization": {"credentials": {"name": "reader", "key": "token"}},
                "tlsConfig": {
                    "ca": {"secret": {"name": "own", "key": "ca.crt"}},
                    "serverName": "kavip-metrics.kavip.svc",
                },
            }

    def test_a_pod_monitor_needs_a_token(self, helm: Helm) -> None:
        """It has no field for the file of Prometheus's own account; the refusal names the value."""
        settings = ("--set=metrics.secure=true", "--set=podMonitor.enabled=true")
        done = helm("template", "kavip", str(manifests.CHART), *settings, check=False)
        assert done.returncode
        assert "metrics.tokenSecret.name" in done.stderr

    @TOPOLOGIES
    def test_the_certificate_is_mounted_where_the_program_reads_it(self, helm: Helm, topology: str) -> None:
        """The pod starts without the Secret: admission does not depend on it."""
        objects = rendered(helm, topology, *SECURE, OWN)
        path = environment(objects)["KAVIP_METRICS_CERT_PATH"]
        for pod in pods(objects):
            (volume,) = pod["spec"]["volumes"]
            assert volume == {"name": "metrics-cert", "secret": {"secretName": "own", "optional": True}}
            (mount,) = pod["spec"]["containers"][0]["volumeMounts"]
            assert mount == {"name": "metrics-cert", "mountPath": path, "readOnly": True}
        assert not [pod for pod in pods(rendered(helm, topology, *SECURE)) if "volumes" in pod["spec"]]

    def test_the_monitor_is_what_config_says(self, helm: Helm, programs: Programs) -> None:
        """ServiceMonitor, Service and PrometheusRule of the chart equal config/prometheus/secure."""
        text = run([programs["kubectl"], "kustomize", str(manifests.CONFIG / "prometheus" / "secure")]).stdout
        objects = rendered(helm, *SECURE, "prometheusRule.enabled=true")
        for expected in manifests.parsed(text):
            found = manifests.only(objects, expected["kind"], expected["metadata"]["name"])
            assert comparable(found) == comparable(expected)


PLAIN = {"port": "metrics", "interval": "30s"}


class TestPolicy:
    """``networkPolicy``."""

    @TOPOLOGIES
    def test_everyone_may_connect_to_what_is_served(self, helm: Helm, topology: str) -> None:
        """By default there is one rule for each port of the container, without peers."""
        objects = rendered(helm, topology, "networkPolicy.enabled=true")
        for name in COMPONENTS[topology]:
            rules = manifests.only(objects, "NetworkPolicy", name)["spec"]["ingress"]
            (container,) = manifests.only(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"]
            assert rules == [{"ports": [{"port": each["name"]}]} for each in container["ports"]]

    @TOPOLOGIES
    @pytest.mark.parametrize("port", PEERS)
    def test_peers_restrict_one_port(self, helm: Helm, topology: str, port: str) -> None:
        """The other ports stay open."""
        peers = f"networkPolicy.from.{port}={json.dumps(PEERS[port])}"
        objects = rendered(helm, topology, "networkPolicy.enabled=true", peers)
        rules = [rule for each in objects if each["kind"] == "NetworkPolicy" for rule in each["spec"]["ingress"]]
        assert [rule["from"] for rule in rules if rule["ports"] == [{"port": port}]]
        for rule in rules:
            assert rule.get("from") == (PEERS[port] if rule["ports"] == [{"port": port}] else None)

    @pytest.mark.apiserver
    def test_the_api_server_accepts_it(self, helm: Helm, control_plane: ControlPlane) -> None:
        """With peers of every form, by a dry run; no network plugin enforces it here."""
        settings = ('topology="combined"', "networkPolicy.enabled=true", f"networkPolicy.from={json.dumps(PEERS)}")
        policy = manifests.only(rendered(helm, *settings, namespace="default"), "NetworkPolicy")
        strict = ("create", "--dry-run=server", "--validate=strict", "--output=json", "--filename=-")
        made = json.loads(control_plane.kubectl(*strict, input=json.dumps(policy)).stdout)
        assert [rule["from"] for rule in made["spec"]["ingress"]] == list(PEERS.values())

    @pytest.mark.parametrize(
        "peers",
        [
            '{"everyone":[]}',
            '{"metrics":{}}',
            '{"metrics":[{}]}',
            '{"metrics":[{"selector":{}}]}',
            '{"metrics":[{"podSelector":{},"ipBlock":{"cidr":"192.0.2.0/28"}}]}',
            '{"metrics":[{"ipBlock":{"cidr":"192.0.2.1"}}]}',
            '{"metrics":[{"podSelector":{"labels":{}}}]}',
            '{"metrics":[{"podSelector":{"matchExpressions":[{"key":"a","operator":"Is"}]}}]}',
        ],
    )
    def test_malformed_peers_are_refused(self, helm: Helm, peers: str) -> None:
        """The schema is closed, so a misspelled selector does not open a port."""
        setting = ("--set-json", f"networkPolicy.from={peers}")
        done = helm("template", "kavip", str(manifests.CHART), *setting, check=False)
        assert done.returncode
        assert "networkPolicy/from" in done.stderr
