"""``make faults`` runs a history of 2,000 Services. The exit status is 1 if the checker finds an error."""

import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

import click

from hack.faults import faultrun
from hack.faults.replicas import FAULTS
from hack.testbed import programs, runs
from hack.testbed.progress import step

_SEEDS = 2**16


@click.command()
@click.option("--services", default=2000, show_default=True, help="The number of Services to create.")
@click.option("--seconds", default=120.0, show_default=True, help="The duration of the edits.")
@click.option("--rounds", default=1, show_default=True, help="The number of histories.")
@click.option("--seed", default=None, type=int, help="The seed of the first history; each further history adds 1.")
@click.option("--fault", "faults", multiple=True, type=click.Choice([*FAULTS, "none"]), help="Inject only these.")
def main(services: int, seconds: float, rounds: int, seed: int | None, faults: tuple[str, ...]) -> None:
    """Run histories, each with a new control plane and two controllers."""
    built = programs.ensure()
    first = random.randrange(_SEEDS) if seed is None else seed
    good = True
    for number in range(first, first + rounds):
        chosen = () if "none" in faults else faults or FAULTS
        with (
            runs.temporary() as state,
            faultrun.start_control_plane(built, state) as plane,
            step(f"A history of {services} Services", f"seed {number}"),
        ):
            history = faultrun.run(plane, services=services, seconds=seconds, seed=number, faults=chosen)
            verdict = asyncio.run(history)
            kept = "" if verdict.is_clean else _kept(state)
        print(verdict.table(), flush=True)
        if kept:
            print(f"the audit log and the logs of kavip: {kept}", flush=True)
        good &= verdict.is_clean
    sys.exit(0 if good else 1)


def _kept(state: Path) -> str:
    """Copy the logs of a failed history, and return their directory."""
    folder = tempfile.mkdtemp(prefix="kavip-faults-")
    for log in sorted(state.glob("*.log")):
        shutil.copy(log, folder)
    return folder


if __name__ == "__main__":
    main()
