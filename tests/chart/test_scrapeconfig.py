"""The scrape configuration of monitoring.md finds the pods of kavip and the agents, and no other port of them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from kavip.reconcile.group import manifests as groupmanifests
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, settings_of
from tests.chart.release import Helm, rendered
from tests.support import build, manifests

pytestmark = pytest.mark.chart

PAGE: Final = manifests.ROOT / "docs" / "howto" / "monitoring.md"
META: Final = "__meta_kubernetes_"


def jobs() -> Mapping[str, Any]:
    """The jobs of the page by name."""
    (text,) = re.findall(r"```yaml\n(rule_files:.*?)```", PAGE.read_text(), re.DOTALL)
    return {each["job_name"]: each for each in yaml.safe_load(text)["scrape_configs"]}


def targets(namespace: str, template: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The labels of the targets of a pod, one for each port, as Prometheus' discovery of pods gives them."""
    pod = {f"{META}namespace": namespace, f"{META}pod_name": "pod"}
    for key, value in template["metadata"]["labels"].items():
        pod[f"{META}pod_label_{re.sub('[^A-Za-z0-9_]', '_', key)}"] = value
    for container in template["spec"]["containers"]:
        for port in container.get("ports", ()):
            yield pod | {f"{META}pod_container_port_name": port["name"]}


def relabelled(job: Mapping[str, Any], target: dict[str, str]) -> dict[str, str] | None:
    """*target* after the rules of *job*, without what is dropped after them; None: it is not scraped."""
    found = {"job": job["job_name"], **target}
    for rule in job["relabel_configs"]:
        text = rule.get("separator", ";").join(found.get(each, "") for each in rule["source_labels"])
        if rule.get("action") == "keep" and not re.fullmatch(rule["regex"], text):
            return None
        if "target_label" in rule:
            found[rule["target_label"]] = text
    return {key: value for key, value in found.items() if not key.startswith("__")}


def scraped(job: str, namespace: str, template: Mapping[str, Any]) -> list[dict[str, str]]:
    """The labels of what *job* scrapes of a pod."""
    results = (relabelled(jobs()[job], each) for each in targets(namespace, template))
    return [each for each in results if each is not None]


def test_it_finds_the_pods_of_kavip(helm: Helm) -> None:
    """Webhook and controller, each once."""
    deployments = [each for each in rendered(helm) if each["kind"] == "Deployment"]
    assert len(deployments) == 2
    for each in deployments:
        assert scraped("kavip", manifests.NAMESPACE, each["spec"]["template"]) == [{"job": "kavip", "pod": "pod"}]


def test_it_finds_the_agents() -> None:
    """Under the job that dashboards and alerts expect; the job of kavip's own pods leaves them alone."""
    group = build.group("lb/edge")
    published = PublishedRevisions(Revision("", "0123456789abcdef", settings_of(group)))
    body = groupmanifests.daemon_set(group, image="kavip", port=9650, secrets=published.secrets)
    template = body["spec"]["template"]
    assert scraped("agents", "lb", template) == [{"job": "lb/edge", "pod": "pod"}]
    assert scraped("kavip", "lb", template) == []
