"""The table of Kubernetes' own specs."""

import json
from pathlib import Path
from typing import Any

from hack.e2e import report

LOCAL = "should be able to switch session affinity for LoadBalancer service with Local traffic policy"


def entry(text: str, state: str, *, kind: str = "It") -> dict[str, Any]:
    """A spec as ginkgo reports it."""
    return {
        "ContainerHierarchyTexts": ["[sig-network] LoadBalancers [Feature:LoadBalancer]"],
        "LeafNodeText": f"{text} [LinuxOnly] [Slow]",
        "LeafNodeType": kind,
        "State": state,
        "RunTime": 90e9,
    }


def test_the_page_lists_what_ran(tmp_path: Path) -> None:
    """Each spec with its result; one that cannot pass with its reason; not what was left out."""
    entries = [
        entry("should work", "passed"),
        entry(LOCAL, "failed"),
        entry("should not run", "skipped"),
        entry("", "passed", kind="SynchronizedBeforeSuite"),
    ]
    (tmp_path / "report.json").write_text(json.dumps([{"SpecReports": entries}]))
    specs = report.read(tmp_path / "report.json")
    page = report.page(specs, version="v1.35.4")
    assert "1 of 2 passed" in page
    assert "| LoadBalancers should work [LinuxOnly] | passed | 1.5 |" in page
    assert "should not run" not in page
    assert " ".join(page.split()).count(report.EXCUSES[LOCAL]) == 1
    assert all(len(line) <= 100 for line in page.splitlines() if not line.startswith("|"))
    assert [spec.failed and not spec.excuse for spec in specs] == [False, False]


def test_progress_is_read_from_the_log(tmp_path: Path) -> None:
    """A spec that passed has a bullet, one that failed has a word."""
    log = tmp_path / "specs.log"
    log.write_text("Will run 17 of 6000 specs\nSS\n• [12.0 seconds]\n\n• [FAILED] [70.1 seconds]\n[sig-network] x\n")
    assert report.progress(log) == (2, 17)


def test_a_later_report_replaces_results(tmp_path: Path) -> None:
    """A spec that ran again has the result of the last run."""
    for name, state in (("first", "failed"), ("second", "passed")):
        (tmp_path / name).write_text(json.dumps([{"SpecReports": [entry("should work", state)]}]))
    assert [spec.state for spec in report.read(tmp_path / "first", tmp_path / "second")] == ["passed"]
