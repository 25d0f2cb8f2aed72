"""A real Prometheus beside the cluster, configured as its operator does for a PodMonitor or ServiceMonitor."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from hack.testbed import need, process
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError

ACCOUNT = ("openshift-monitoring", "prometheus-k8s")
PATIENCE = 240.0
_HERE = "127.0.0.1:9090"


@dataclass(frozen=True, slots=True)
class Prometheus:
    """It runs on the machine of the control plane."""

    cluster: Cluster
    log: Path

    def wait_until(self, what: str, ready: Callable[[], bool]) -> None:
        """Wait for *ready*; a failure shows the targets and the log of Prometheus."""
        try:
            process.wait_for(what, ready, timeout=PATIENCE, interval=0.3)
        except TestbedError as error:
            targets = self._ask("targets").get("activeTargets", [])
            seen = [f"{each['scrapeUrl']}: {each['health']} {each['lastError']}" for each in targets]
            raise AssertionError("\n".join([str(error), *seen, process.tail(self.log)])) from None

    def query(self, expression: str) -> dict[str, float]:
        """The instant value of each series, by its instance."""
        result = self._ask(f"query?query={quote(expression)}").get("result", [])
        return {each["metric"].get("instance", ""): float(each["value"][1]) for each in result}

    def _ask(self, what: str) -> Any:
        url = f"http://{_HERE}/api/v1/{what}"
        done = self.cluster.control.exec("curl", "--silent", "--fail", "--max-time", "5", url, check=False)
        return {} if done.returncode else json.loads(done.stdout)["data"]


@contextmanager
def scraping(cluster: Cluster, home: Path, *monitors: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Scrape what *monitors* select, every two seconds."""
    need.packages("Prometheus", ("prometheus",))
    jobs = [
        {
            "job_name": f"{each['kind']}/{each['metadata']['name']}",
            "static_configs": [{"targets": sorted(_targets(cluster, each))}],
        }
        for each in monitors
    ]
    config = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": jobs}
    file, log = home / "prometheus.yml", home / "prometheus.log"
    file.write_text(yaml.safe_dump(config))
    started = cluster.control.spawn(
        *("prometheus", f"--config.file={file}", f"--storage.tsdb.path={home / 'data'}"),
        f"--web.listen-address={_HERE}",
        log=log,
    )
    try:
        yield Prometheus(cluster, log)
    finally:
        process.stop([started])


def _targets(cluster: Cluster, monitor: Mapping[str, Any]) -> Iterator[str]:
    """
    What *monitor* selects, found with the account's rights.

    Debian builds Prometheus without Kubernetes' own discovery.
    """
    labels = ",".join(f"{name}={value}" for name, value in sorted(monitor["spec"]["selector"]["matchLabels"].items()))
    kind = "pods" if monitor["kind"] == "PodMonitor" else "endpoints"
    found = cluster.kubectl(
        *("get", kind, f"--namespace={monitor['metadata']['namespace']}", f"--selector={labels}", "--output=json"),
        f"--as=system:serviceaccount:{ACCOUNT[0]}:{ACCOUNT[1]}",
    )
    for each in json.loads(found.stdout)["items"]:
        if kind == "pods":
            (wanted,) = monitor["spec"]["podMetricsEndpoints"]
            ports = [port for container in each["spec"]["containers"] for port in container.get("ports", ())]
            yield from (
                f"{each['status']['podIP']}:{port['containerPort']}" for port in ports if port["name"] == wanted["port"]
            )
        else:
            (wanted,) = monitor["spec"]["endpoints"]
            for subset in each["subsets"]:
                numbers = [port["port"] for port in subset["ports"] if port["name"] == wanted["port"]]
                yield from (f"{one['ip']}:{number}" for one in subset["addresses"] for number in numbers)
