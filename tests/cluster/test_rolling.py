"""On a real cluster: rollouts, evictions and rotations lose no admission call; kill -9 loses few."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from hack.demo.__main__ import image
from hack.endurance import disturb, endurancerun
from hack.endurance.endurancerun import KILL, Run
from hack.endurance.metrics import WebhookCounters
from hack.endurance.writer import NAMESPACE
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from tests.cluster.provisioning import PATIENCE, chart, create_namespaces, delete_objects

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

RATE = 50.0  # writes a second, at most; `make endurance` writes more and faster
WRITES = 1_000  # a third of the writes of an idle machine in this time; a busy machine continues until it has this many


@pytest.fixture(scope="module")
def rolled(cluster: Callable[..., Cluster]) -> Iterator[Cluster]:
    """A cluster of three nodes with kavip and the objects of the writer, which are removed afterwards."""
    found = cluster(nodes=3, images=(image(),))
    with pytest.MonkeyPatch.context() as patched:
        for module in (endurancerun, disturb):
            patched.setattr(module, "CHART", chart(found))
        endurancerun.install(found)
        create_namespaces(found, NAMESPACE)
        endurancerun.prepare(found)
        try:
            yield found
        finally:
            delete_objects(
                found,
                ("services", "--all", f"--namespace={NAMESPACE}"),
                ("namespace", NAMESPACE, "--wait=false"),
                ("vippool", NAMESPACE),
            )


def test_not_one_call_is_lost(rolled: Cluster) -> None:
    """Every write has the expected answer, and the API server accepted none without a review by kavip."""
    run, before = Run(rolled), WebhookCounters.read(rolled)
    with run.writing(rate=RATE):
        run.run_disturbance("rollout restart", disturb.roll)
        run.run_disturbance("drain", disturb.drain)
        run.run_disturbance("CA rotated, a pod deleted", partial(disturb.rotate, meanwhile=disturb.delete))
        enough = 3 * WRITES  # calls: a write has at most three
        wait_for(
            "enough is written",
            lambda: (WebhookCounters.read(rolled) - before).calls > enough,
            timeout=PATIENCE,
            interval=1,
        )
    assert not run.record.wrong, run.table()
    assert (run.counters.lost, run.counters.fail_open) == (0, 0), run.table()
    # the metrics count these writes, and kavip refuses the updates that it must refuse
    writes = len(run.record.writes)
    assert writes > WRITES
    assert run.counters.calls > writes
    assert run.counters.refused > writes / 20


def test_a_killed_replica_costs_calls_for_seconds(rolled: Cluster) -> None:
    """
    After kill -9 calls are lost only until all replicas are ready again, or within 5 s.

    Every failed write is a call that the API server lost. It may have lost more calls: it repeats an update by itself
    if the object has changed meanwhile.
    """
    endurancerun.install(rolled, "--set=webhook.failurePolicy.mutating=Fail")
    run = Run(rolled)
    with run.writing(rate=RATE):
        run.run_disturbance(KILL, disturb.kill)
    assert all(period.span < max(endurancerun.LATEST, period.over - period.at) for period in run.periods), run.table()
    assert len(run.record.wrong) <= run.counters.lost, run.table()
    assert run.counters.fail_open == 0
