"""Nodes with a pod of keepalived-operator's are asked where its exporter listens, until the new pod is there."""

import asyncio

import pytest
from aiohttp import web

from kavip.reconcile.migration import exporter
from kavip.reconcile.plan import ProbeTarget
from kavip.vrrp import operatorconfig
from tests.controller.test_prober import PATIENCE, Agent, serving, state, watching
from tests.predecessor.live import conf, instance, metrics

OLD = operatorconfig.read_instances(conf(instance("shop/web", 7, "192.0.2.130")))


async def metrics_of(agent: Agent) -> tuple[web.AppRunner, int]:
    """*agent* as an exporter."""
    app = web.Application()
    app.router.add_get("/metrics", agent.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, int(runner.addresses[0][1])


async def test_the_old_pod_is_asked_and_then_the_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it is master of, by its metrics; silence is an answer; the agent's own word counts as soon as it speaks."""
    gone = asyncio.Event()
    body = metrics(("shop/web", 7, "MASTER"))
    old = Agent(lambda: web.Response(status=500) if gone.is_set() else web.Response(text=body))
    new = Agent(lambda: web.json_response(state("h1", "192.0.2.130")))
    runner, port = await metrics_of(old)
    monkeypatch.setattr(exporter, "PORT", port)
    try:
        async with serving(new) as own, watching(interval=0.05) as (probe, told), asyncio.timeout(PATIENCE):
            probe.set_target(
                "lb/edge", ProbeTarget({"n1": "127.0.0.1"}, own, "h1", old=frozenset({"n1"}), instances=OLD)
            )
            await told.get()
            seen = probe.agents.states_of("lb/edge")["n1"]
            assert [(each.name, each.state) for each in seen.instances] == [("shop/web", "MASTER")]
            assert seen.masters == seen.runs == frozenset(OLD[0].addresses)
            gone.set()
            await told.get()
            assert probe.agents.states_of("lb/edge")["n1"] == exporter.SILENT
            assert new.asked == 0
            probe.set_target("lb/edge", ProbeTarget({"n1": "127.0.0.1"}, own, "h1"))
            await told.get()
            assert probe.agents.states_of("lb/edge")["n1"].config_hash == "h1"
    finally:
        await runner.cleanup()
