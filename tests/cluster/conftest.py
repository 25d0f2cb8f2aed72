"""What a real cluster held when a test on it failed: that is gone by the time somebody reads of it."""

from collections.abc import Generator

import pytest

from hack.demo.story import Story
from hack.testbed.cluster import Cluster
from tests import files

LOOKS = (
    ("get", "services,vippools,keepalivedgroups,pods", "--all-namespaces", "--output=wide"),
    ("describe", "services", "--all-namespaces"),
    ("logs", "deployment/kavip", f"--namespace={files.NAMESPACE}", "--all-pods", "--tail=60"),
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what kubectl sees to the report of a failure, before the fixtures clean up."""
    report = yield
    if report.failed and report.when != "teardown":
        for found in _clusters(item):
            for look in LOOKS:
                seen = found.kubectl(*look, check=False)
                report.sections.append((f"kubectl {' '.join(look)}", seen.stdout + seen.stderr))
    return report


def _clusters(item: pytest.Item) -> list[Cluster]:
    given = getattr(item, "funcargs", {}).values()
    clusters = [each.cluster if isinstance(each, Story) else each for each in given]
    return [each for each in clusters if isinstance(each, Cluster)]
