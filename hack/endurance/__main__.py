"""``make endurance`` writes 20,000 Services on a cluster with kavip. The exit status is 1 if a call is lost."""

import sys

import click

from hack.demo.__main__ import image
from hack.endurance import disturb, endurancerun
from hack.endurance.endurancerun import DISTURBANCES, KILL, Run
from hack.testbed import programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.progress import step

STRICT = "webhook.failurePolicy.mutating=Fail"
KILLS = 4


@click.command()
@click.option("--writes", default=20_000, show_default=True, help="The minimum of writes, over all disturbances.")
@click.option("--rate", default=200.0, show_default=True, help="The maximum of writes per second.")
@click.option("--set", "values", multiple=True, help="Chart values, as helm takes them.")
@click.option("--only", multiple=True, type=click.Choice([*DISTURBANCES, KILL]), help="Run only these disturbances.")
def main(writes: int, rate: float, values: tuple[str, ...], only: tuple[str, ...]) -> None:
    """Run the disturbances on a new cluster."""
    built = programs.ensure()
    archive = image()
    with runs.temporary() as state:
        cluster = Cluster(built, state, nodes=3, images=[archive])
        with step("Start a cluster", "three nodes"):
            cluster.start()
        try:
            with step("Install kavip"):
                endurancerun.install(cluster, *(f"--set={value}" for value in values))
            endurancerun.prepare(cluster)
            good = _run_disturbances(cluster, writes, rate, only)
            # with failurePolicy Ignore, a write succeeds although the call of the mutating webhook is lost
            endurancerun.install(cluster, *(f"--set={value}" for value in (*values, STRICT)))
            good &= _run_kills(cluster, rate, only)
        finally:
            cluster.stop()
    sys.exit(0 if good else 1)


def _run_disturbances(cluster: Cluster, writes: int, rate: float, only: tuple[str, ...]) -> bool:
    """Run all disturbances in turn until there are *writes*; returns whether nothing was lost."""
    wanted = {name: one for name, one in DISTURBANCES.items() if not only or name in only}
    if not wanted:
        return True
    run = Run(cluster)
    while len(run.record.writes) < writes:
        with run.writing(rate=rate):
            for name, disturbance in wanted.items():
                with step(name):
                    run.run_disturbance(name, disturbance)
    return _print_table(run, not run.record.wrong and not run.counters.lost + run.counters.fail_open)


def _run_kills(cluster: Cluster, rate: float, only: tuple[str, ...]) -> bool:
    """Kill a replica several times; returns whether writes failed only shortly after each kill."""
    if only and KILL not in only:
        return True
    run = Run(cluster)
    with run.writing(rate=rate):
        for _ in range(KILLS):
            with step(KILL):
                run.run_disturbance(KILL, disturb.kill)
    return _print_table(run, all(period.span < endurancerun.LATEST for period in run.periods))


def _print_table(run: Run, good: bool) -> bool:
    print(run.table(), flush=True)
    return good


if __name__ == "__main__":
    main()
