"""The report of a run of specs: read from ginkgo's JSON, and written as a page of the docs."""

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

EXCUSES = {
    "should be able to switch session affinity for LoadBalancer service with Local traffic policy": (
        "The spec expects requests of one client to reach several nodes. With policy Local one node holds a VIP, and "
        "kube-proxy serves it from that node's own pods alone."
    ),
    "should handle load balancer cleanup finalizer for service": (
        "The spec waits for the finalizer that cloud controllers set. kavip sets none: it has nothing to clean up "
        "outside the cluster, and frees an address when its Service is gone."
    ),
}
"""Specs that cannot pass, and why."""
_WIDTH = 100  # columns of prose in the docs
_SECOND = 1e9  # ginkgo counts nanoseconds


@dataclass(frozen=True, slots=True)
class Spec:
    """One spec that ran."""

    text: str
    state: str
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether it ended in any other way than by passing."""
        return self.state != "passed"

    @property
    def excuse(self) -> str:
        """Why it cannot pass; empty where it can."""
        return next((why for text, why in EXCUSES.items() if text in self.text), "")


def read(*paths: Path) -> list[Spec]:
    """The specs that ran, in the order of their texts; of a spec in several reports, the result in the last one."""
    suites = [suite for path in paths for suite in json.loads(path.read_text())]
    specs = [
        Spec(_text(each), each["State"], each["RunTime"] / _SECOND)
        for suite in suites
        for each in suite["SpecReports"]
        if each["LeafNodeType"] == "It" and each["State"] not in {"skipped", "pending"}
    ]
    return sorted({spec.text: spec for spec in specs}.values(), key=lambda spec: spec.text)


def page(specs: list[Spec], *, version: str) -> str:
    """The page of the docs."""
    passed, total = sum(not spec.failed for spec in specs), len(specs)
    intro = (
        f"`make e2e` runs the LoadBalancer specs of Kubernetes {version} against kavip, on a cluster of three nodes "
        f"with IPv4. {passed} of {total} passed in the last run."
    )
    lines = [
        "# Kubernetes' own load balancer specs",
        "",
        "<!-- written by `make e2e` -->",
        "",
        _wrapped(intro),
        "",
        "| spec | result | minutes |",
        "|---|---|---|",
    ]
    lines += [f"| {spec.text} | {spec.state} | {spec.seconds / 60:.1f} |" for spec in specs]
    excused = [spec for spec in specs if spec.failed and spec.excuse]
    if excused:
        lines += ["", "## Specs that cannot pass", ""]
        lines += [_wrapped(f"- *{spec.text}*: {spec.excuse}", indent="  ") for spec in excused]
    return "\n".join((*lines, ""))


def _wrapped(text: str, *, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def progress(log: Path) -> tuple[int, int]:
    """How many specs ended, and how many there are, as ginkgo's output shows."""
    text = log.read_text(errors="replace")
    found = re.search(r"Will run (\d+) of \d+ specs", text)
    ended = len(re.findall(r"^• (?:\[[A-Z]+\] )?\[\d", text, re.MULTILINE))
    return ended, int(found[1]) if found else 0


def _text(each: dict[str, object]) -> str:
    containers = each.get("ContainerHierarchyTexts") or []
    assert isinstance(containers, list)
    whole = " ".join((*containers, str(each["LeafNodeText"])))
    return re.sub(r"\s+", " ", re.sub(r"\[(?!LinuxOnly)[^]]*\]", "", whole)).strip()
