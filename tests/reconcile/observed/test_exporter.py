"""The exporter in a pod of keepalived-operator: its metrics, and how long the prober polls it."""

import asyncio

import pytest
from aiohttp import web

from kavip.reconcile.observed import exporter
from kavip.reconcile.plan import ProbeTarget
from kavip.vrrp import operatorconfig
from tests.controller.fakeagent import PATIENCE, Agent, serving, state, watching
from tests.keepalived_operator.oldobjects import conf, instance, metrics

OLD = operatorconfig.read_instances(conf(instance("shop/web", 7, "192.0.2.130")))


async def metrics_of(agent: Agent) -> tuple[web.AppRunner, int]:
    """*agent* as an exporter."""
    app = web.Application()
    app.router.add_get("/metrics", agent.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, int(runner.addresses[0][1])


async def test_the_prober_asks_the_old_pod_until_the_new_one_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The metrics give the masters; an exporter without an answer is silent; the new pod's agent replaces it."""
    gone = asyncio.Event()
    body = metrics(("shop/web", 7, "MASTER"))
    old = Agent(lambda: web.Response(status=500) if gone.is_set() else web.Response(text=body))
    new = Agent(lambda: web.json_response(state("h1", "192.0.2.130")))
    runner, port = await metrics_of(old)
    monkeypatch.setattr(exporter, "PORT", port)
    try:
        async with serving(new) as own, watching(interval=0.05) as (probe, changed_groups), asyncio.timeout(PATIENCE):
            probe.set_target(
                "lb/edge", ProbeTarget({"n1": "127.0.0.1"}, own, "h1", old=frozenset({"n1"}), instances=OLD)
            )
            await changed_groups.get()
            seen = probe.agents.states_of("lb/edge")["n1"]
            assert [(each.name, each.state) for each in seen.instances] == [("shop/web", "MASTER")]
            assert seen.masters == seen.runs == frozenset(OLD[0].addresses)
            gone.set()
            await changed_groups.get()
            assert probe.agents.states_of("lb/edge")["n1"] == exporter.SILENT
            assert new.requests == 0
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, own, "h1"))
            await changed_groups.get()
            assert probe.agents.states_of("lb/edge")["n1"].config_hash == "h1"
    finally:
        await runner.cleanup()


def test_the_exporters_metrics_name_the_master() -> None:
    """A label of a counter has the state; a node whose keepalived the exporter does not see counts as silent."""
    state = exporter.node_state(metrics(("shop/web", 7, "MASTER"), ("shop/api", 8, "BACKUP")))
    assert [(each.name, each.router_id, each.state) for each in state.instances] == [
        ("shop/api", 8, "BACKUP"),
        ("shop/web", 7, "MASTER"),
    ]
    assert exporter.node_state("keepalived_up 0\n") == exporter.SILENT
    known = exporter.node_state(metrics(("shop/web", 7, "MASTER")), OLD)
    assert {str(vip) for vip in known.masters} == {"192.0.2.130"} == {str(vip) for vip in known.instance_of}
