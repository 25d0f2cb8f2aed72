"""Worker, renderer and the process that renders, together: the group waits for its template, and others do not."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kavip import names
from kavip.api.group import ConfigTemplateRef
from kavip.api.workload import ConfigMap
from kavip.podtemplate.permissions import ALL_PERMITTED
from kavip.reconcile.plan import Apply, Key, KeyKind, StatusPatch
from kavip.vrrp.configtemplate import MARK
from tests.controller.workerfixture import WorkerFixture, running_worker
from tests.support import build

pytestmark = pytest.mark.slow

TEMPLATE = "global_defs {\n{{ global_defs }}\n    vrrp_min_garp\n}\n"
SLOW = "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a * b %}{% endfor %}{% endfor %}"


def templated(key: str, template: str = "") -> Any:
    """A group that names a template."""
    reference = ConfigTemplateRef("t", template) if template else None
    return build.group(key, metrics_port=9650, config_template_ref=reference)


def texts(fixture: WorkerFixture) -> dict[str, list[str]]:
    """The texts that were written, by group."""
    found: dict[str, list[str]] = {}
    for each in writes(fixture):
        if isinstance(each, Apply) and each.kind == names.CONFIG_MAP:
            found.setdefault(each.key, []).append(each.body["data"][names.CONFIG_KEY])
    return found


def writes(fixture: WorkerFixture) -> Iterator[Any]:
    """Everything that was written."""
    return (each for plan in fixture.writer.sent for each in plan.writes)


def messages(fixture: WorkerFixture, group: str) -> list[str]:
    """The messages of ``Accepted`` that were written for *group*."""
    bodies = [each.body for each in writes(fixture) if isinstance(each, StatusPatch) and each.key == group]
    conditions = [each for body in bodies for each in body["status"].get("conditions", ())]
    return [each["message"] for each in conditions if each["type"] == "Accepted"]


async def test_templates_are_rendered_beside_the_workers() -> None:
    """The first text has the lines; a slow template of another group stops neither it nor its own group."""
    groups = [templated("lb/edge", "good"), templated("lb/slow", "slow"), templated("lb/plain")]
    async with running_worker(*groups, templates=ALL_PERMITTED) as fixture:
        metadata = build.metadata("lb/t")
        fixture.renderer.templates.store(ConfigMap(metadata=metadata, data={"good": TEMPLATE, "slow": SLOW}))
        task = asyncio.create_task(fixture.renderer.run())
        for each in groups:
            fixture.queue.add(Key(KeyKind.GROUP, each.key))
        await fixture.until(lambda: texts(fixture).keys() == {"lb/edge", "lb/slow", "lb/plain"})
        await fixture.until(lambda: messages(fixture, "lb/slow"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    found = texts(fixture)
    assert f"    {MARK}\n    vrrp_min_garp\n}}\n" in found["lb/edge"][0]
    assert MARK not in "".join(found["lb/slow"] + found["lb/plain"])
    assert "takes more than" in messages(fixture, "lb/slow")[0]
