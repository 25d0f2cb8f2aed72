"""A Prometheus that scrapes kavip and its agents every second, and evaluates rules."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import yaml

from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from kavip import names
from tests.cluster.prometheus import Prometheus, running

EVERY = "1s"
_PODS = ("get", "pods", "--all-namespaces", "--field-selector=status.phase=Running", "--output=json")


@contextmanager
def watching(cluster: Cluster, home: Path, rules: Mapping[str, Any]) -> Iterator[Prometheus]:
    """Evaluate *rules* during the block, which begins when every pod of kavip and of groups is scraped."""
    (home / "rules.yml").write_text(yaml.safe_dump(dict(rules)))
    targets = home / "targets.json"
    discovery = {"files": [str(targets)], "refresh_interval": EVERY}
    config = {
        "global": {"scrape_interval": EVERY, "scrape_timeout": EVERY, "evaluation_interval": EVERY},
        "rule_files": [str(home / "rules.yml")],
        "scrape_configs": [{"job_name": "pods", "file_sd_configs": [discovery]}],
    }
    with running(cluster, home, config) as prometheus:

        def are_scraped() -> bool:  # a pod that is about to end is a target until it has ended
            number = write_targets(cluster, targets)
            return list(prometheus.query("up").values()) == [1.0] * number

        prometheus.wait_until("all are scraped", are_scraped)
        with following(cluster, targets):
            yield prometheus


@contextmanager
def following(cluster: Cluster, targets: Path) -> Iterator[None]:
    """Write *targets* again and again during the block, as discovery follows pods that come and go."""
    over = Event()

    def follow() -> None:
        while not over.wait(1):
            with suppress(TestbedError):  # the API server is busy: as with discovery, the targets stay
                write_targets(cluster, targets)

    thread = Thread(target=follow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def write_targets(cluster: Cluster, targets: Path) -> int:
    """Write what a PodMonitor of each group and one of kavip select; return the number of targets."""
    pods = json.loads(cluster.kubectl(*_PODS).stdout)["items"]
    entries = [
        {
            "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
            "labels": {"namespace": pod["metadata"]["namespace"], "pod": pod["metadata"]["name"]},
        }
        for pod in pods
        for container in pod["spec"]["containers"]
        for port in container.get("ports", ())
        if port.get("name") == names.METRICS_PORT_NAME
    ]
    draft = targets.with_suffix(".draft")
    draft.write_text(json.dumps(entries))
    draft.rename(targets)
    return len(entries)
