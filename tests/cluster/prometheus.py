"""A real Prometheus beside the cluster, configured as its operator does for a PodMonitor or ServiceMonitor."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from hack.testbed import need, process
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from hack.testbed.place import Result

ACCOUNT = ("openshift-monitoring", "prometheus-k8s")
PATIENCE = 240.0
_HERE = "127.0.0.1:9090"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that is pending, or *fires*."""

    name: str
    labels: Mapping[str, str]
    fires: bool

    def __str__(self) -> str:
        """As Prometheus writes series."""
        return f"{self.name}{{{', '.join(f'{name}={value}' for name, value in sorted(self.labels.items()))}}}"


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
            active = [f"{each['state']}: {each['labels']}" for each in self._ask("alerts").get("alerts", [])]
            raise AssertionError("\n".join([str(error), *seen, *active, process.tail(self.log)])) from None

    def query(self, expression: str) -> dict[str, float]:
        """The instant value of each series, by its instance."""
        result = self._ask(f"query?query={quote(expression)}").get("result", [])
        return {each["metric"].get("instance", ""): float(each["value"][1]) for each in result}

    def alerts(self) -> list[Alert]:
        """Those that are active now."""
        return [_alert(each["labels"], each["state"]) for each in self._read("alerts")["alerts"]]

    def fired(self, since: float) -> list[Alert]:
        """All that have fired at any time since *since*, in seconds of Unix."""
        query = {"query": 'ALERTS{alertstate="firing"}', "start": since, "end": time.time(), "step": 1}
        series = self._read(f"query_range?{urlencode(query)}")["result"]
        return [_alert(each["metric"], each["metric"]["alertstate"]) for each in series]

    def _ask(self, what: str) -> Any:
        """The answer; empty while there is none."""
        done = self._get(what, "--max-time", "5", check=False)
        return {} if done.returncode else json.loads(done.stdout)["data"]

    def _read(self, what: str) -> Any:
        """The answer, however long it takes: without one it would seem that nothing fires."""
        return json.loads(self._get(what, "--max-time", "60").stdout)["data"]

    def _get(self, what: str, *flags: str, check: bool = True) -> Result:
        url = f"http://{_HERE}/api/v1/{what}"
        return self.cluster.control.exec("curl", "--silent", "--show-error", "--fail", *flags, url, check=check)


def _alert(labels: Mapping[str, str], state: str) -> Alert:
    own = {name: value for name, value in labels.items() if name not in ("__name__", "alertname", "alertstate")}
    return Alert(labels["alertname"], own, state == "firing")


@contextmanager
def scraping(cluster: Cluster, home: Path, *monitors: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Scrape what *monitors* select, every two seconds."""
    jobs = [
        {
            "job_name": f"{each['kind']}/{each['metadata']['name']}",
            "static_configs": [{"targets": sorted(_targets(cluster, each))}],
        }
        for each in monitors
    ]
    config = {"global": {"scrape_interval": "2s", "scrape_timeout": "2s"}, "scrape_configs": jobs}
    with running(cluster, home, config) as found:
        yield found


@contextmanager
def running(cluster: Cluster, home: Path, config: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Run Prometheus with this *config*, and its files in *home*."""
    need.packages("Prometheus", ("prometheus",))
    file, log = home / "prometheus.yml", home / "prometheus.log"
    file.write_text(yaml.safe_dump(dict(config)))
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
