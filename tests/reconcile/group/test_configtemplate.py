"""The configuration of a group with a template of keepalived.conf: what waits, what goes on, and what stays."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.group import ConfigTemplateRef
from kavip.api.meta import Metadata
from kavip.api.workload import ConfigMap
from kavip.podtemplate.permissions import ALL_PERMITTED
from kavip.reconcile.group.configtemplate import PATIENCE
from kavip.reconcile.observed.templates import rendered
from kavip.reconcile.plan import Apply, Key, KeyKind, ReconcileOptions
from kavip.vrrp.addedlines import read_added
from kavip.vrrp.configtemplate import MARK, AddedLines, RenderRequest, TemplateFault
from kavip.vrrp.grammar import Line
from tests.reconcile.group.settledgroup import ACCEPTED, API, WEB, applied_kinds, condition, serving
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster
from tests.support import build

PERMITTED = ReconcileOptions(templates=ALL_PERMITTED)
KEY = Key(KeyKind.GROUP, GROUP)
FAULT = TemplateFault("bad", 3, 5)


def configmap(text: str = "one", name: str = "t", **data: str) -> ConfigMap:
    """The ConfigMap of a template."""
    labels = {names.CONFIG_TEMPLATE_LABEL: "true"}
    metadata = Metadata(name=name, namespace="lb", labels=labels)
    return ConfigMap(metadata=metadata, data={names.CONFIG_KEY: text, **data})


def simulated(*services: Any, template: ConfigMap | None = None, **spec: Any) -> SimulatedCluster:
    """A cluster with a group that names a template, before its first plan."""
    group = build.group(metrics_port=9650, config_template_ref=ConfigTemplateRef("t"), **spec)
    simulation = SimulatedCluster(cluster(group, *services), options=PERMITTED)
    simulation.templates.store(template or configmap())
    return simulation


def adding(request: RenderRequest, line: str = "garp_master_delay 2") -> AddedLines:
    """What a template adds that puts *line* into each instance."""
    text = request.own.replace("    state BACKUP\n", f"    state BACKUP\n{line}\n")
    found = read_added(request, text.replace("global_defs {\n", "global_defs {\n    vrrp_min_garp\n"))
    assert isinstance(found, AddedLines), str(found)
    return found


def answer(simulation: SimulatedCluster, request: RenderRequest | None, fault: TemplateFault | None = None) -> None:
    """The result of *request* is there."""
    assert request is not None
    simulation.templates.rendered[GROUP] = rendered(request, fault or adding(request))


def work(simulation: SimulatedCluster, fault: TemplateFault | None = None) -> None:
    """Plan, render and write until nothing is left to do."""
    for _ in range(12):
        plan = simulation.group()
        if plan.rendering is not None:
            answer(simulation, plan.rendering, fault)
        elif not plan.writes:
            return
    raise AssertionError("the plans have no end")


def test_a_group_without_a_template_asks_for_nothing() -> None:
    """Its text is the same with and without templates of other groups."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650), serving(WEB, "192.0.2.130")))
    simulation.templates.store(configmap())
    simulation.settle(KEY)
    assert simulation.plan_group().rendering is None
    assert MARK not in simulation.text()


def test_the_plan_waits_for_the_template() -> None:
    """Nothing is written until the result is there; then the text has its lines, and nothing is asked again."""
    simulation = simulated(serving(WEB, "192.0.2.130"))
    plan = simulation.group()
    assert (plan.writes, plan.requeue_after) == ((), PATIENCE)
    work(simulation)
    text = simulation.text()
    assert f"    {MARK}\n    vrrp_min_garp\n}}\n" in text
    assert f"    {MARK}\n    garp_master_delay 2\n}}\n" in text
    assert condition(simulation, ACCEPTED)[:2] == ("True", "Accepted")
    assert simulation.plan_group().rendering is None


def test_a_change_of_input_or_template_asks_again() -> None:
    """A new Service, an edit of the ConfigMap and another key are new requests; a plan without change is none."""
    simulation = simulated(serving(WEB, "192.0.2.130"))
    work(simulation)
    simulation.snapshot.put(serving(API, "192.0.2.131"))
    work(simulation)
    assert simulation.text().count("garp_master_delay 2") == 2
    simulation.templates.store(configmap("two"))
    assert (request := simulation.plan_group().rendering)
    assert request.template == "two"


def test_a_slow_template_does_not_stop_the_group() -> None:
    """After a moment the new Service gets its VIP; the old instance keeps its lines until the result is there."""
    simulation = simulated(serving(WEB, "192.0.2.130"))
    work(simulation)
    simulation.snapshot.put(serving(API, "192.0.2.131"))
    while (plan := simulation.group()).rendering is None:  # the VRID is persisted first
        assert plan.writes
    simulation.templates.asked_since[GROUP] = simulation.now
    simulation.later(PATIENCE - 1)
    assert not simulation.plan_group().writes
    simulation.later(1)
    assert simulation.group().writes
    assert "192.0.2.131" in simulation.text()
    assert simulation.text().count("garp_master_delay 2") == 1
    work(simulation)
    assert simulation.text().count("garp_master_delay 2") == 2


@pytest.mark.parametrize("is_new_leader", [False, True])
def test_a_fault_keeps_the_last_lines(is_new_leader: bool) -> None:
    """Accepted has line and column; what runs keeps its lines, also for a new leader, and new Services get VIPs."""
    simulation = simulated(serving(WEB, "192.0.2.130"))
    work(simulation)
    if is_new_leader:
        simulation.templates.rendered.clear()
    simulation.templates.store(configmap("two"))
    work(simulation, FAULT)
    status, reason, message = condition(simulation, ACCEPTED)
    assert (status, reason) == ("False", "Invalid")
    assert message.startswith("spec.configTemplateRef: ConfigMap lb/t, key keepalived.conf: line 3, column 5: bad")
    assert simulation.text().count("garp_master_delay 2") == 1
    simulation.snapshot.put(serving(API, "192.0.2.131"))
    plans = [simulation.group() for _ in range(4)]
    assert any(applied_kinds(plan) == ["ConfigMap"] for plan in plans)
    assert condition(simulation, ACCEPTED)[:2] == ("False", "Invalid")
    assert "192.0.2.131" in simulation.text()
    assert simulation.text().count("garp_master_delay 2") == 1
    simulation.templates.store(configmap("three"))
    work(simulation)
    assert simulation.text().count("garp_master_delay 2") == 2
    assert condition(simulation, ACCEPTED)[:2] == ("True", "Accepted")


def test_a_temporary_fault_is_asked_again() -> None:
    """The request stays, and the group does not wait for it."""
    simulation = simulated(serving(WEB, "192.0.2.130"))
    request = simulation.plan_group().rendering
    answer(simulation, request, TemplateFault("takes too long", is_temporary=True))
    plan = simulation.group()
    assert plan.writes
    assert plan.rendering == request


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"template": configmap(name="other")}, "no such ConfigMap with the label kavip.io/config-template"),
        ({"key": "other"}, "the ConfigMap has no such key"),
        ({"options": ReconcileOptions()}, "the chart value templates.namespaces does not name 'lb'"),
    ],
)
def test_a_template_that_is_not_there_stops_nothing(change: dict[str, Any], message: str) -> None:
    """The group runs kavip's own text, and Accepted says what to do."""
    simulation = simulated(serving(WEB, "192.0.2.130"), template=change.get("template"))
    simulation.options = change.get("options", simulation.options)
    if key := change.get("key"):
        group = simulation.snapshot.groups[GROUP]
        spec = msgspec.structs.replace(group.spec, config_template_ref=ConfigTemplateRef("t", key))
        simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    simulation.settle(KEY)
    assert "192.0.2.130" in simulation.text()
    status, _, text = condition(simulation, ACCEPTED)
    assert (status, message in text) == ("False", True), text


def test_lines_that_do_not_fit_are_left_out() -> None:
    """A text that no agent reads is a fault of the template, and the group runs kavip's own."""
    simulation = simulated(serving(WEB, "192.0.2.130"))
    for _ in range(8):
        if request := simulation.group().rendering:
            found = adding(request)
            long = {name: (Line("garp_master_delay", ("2",) * 1_100_000),) for name in found.instances}
            simulation.templates.rendered[GROUP] = rendered(request, AddedLines(found.globals, long))
    assert "192.0.2.130" in simulation.text()
    assert "garp_master_delay" not in simulation.text()
    assert "an agent reads 2,000,000" in condition(simulation, ACCEPTED)[2]


def test_the_field_removed_gives_the_bytes_of_before() -> None:
    """The text is kavip's own again."""
    simulation = simulated(serving(WEB, "192.0.2.130"))
    work(simulation)
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, config_template_ref=None)
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    simulation.settle(KEY)
    plain = SimulatedCluster(cluster(build.group(metrics_port=9650), serving(WEB, "192.0.2.130")))
    plain.settle(KEY)
    assert simulation.text() == plain.text()
    assert [each.kind for each in simulation.plan_group().writes if isinstance(each, Apply)] == []
