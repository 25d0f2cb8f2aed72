"""
``make fuzz``: the webhook answers any request with a well-formed AdmissionReview or a 4xx, in bounded time and memory.

Seven of ten reviews are bytes sent to the endpoint, and three are objects evaluated by the policy. Random histories of
a cluster follow: no address may have two holders, move without cause, or stay free while a Service waits for it
(:mod:`fuzz.histories`). Each finding has a seed. ``python -m fuzz --seed N`` repeats it.
"""

import secrets
import sys
from typing import Final

import click

from fuzz import costliest, endpoint, large, policy
from fuzz.histories import run as histories_run
from fuzz.histories.mutants import MUTANTS
from fuzz.report import Report

REVIEWS: Final = 200_000
LARGE: Final = 6 << 20
HISTORIES: Final = 10_000
COSTLIEST: Final = 1_000


@click.command()
@click.option("--reviews", default=REVIEWS, show_default=True, help="Number of reviews.")
@click.option("--histories", default=HISTORIES, show_default=True, help="Number of histories of a cluster.")
@click.option(
    "--costliest", "bodies", default=COSTLIEST, show_default=True, help="Number of bodies to find the costliest."
)
@click.option("--seed", type=int, help="Repeat a run. [a new one]")
def main(reviews: int, histories: int, bodies: int, seed: int | None) -> None:
    """Run all parts; exit with status 1 if there is a finding."""
    chosen = secrets.randbits(32) if seed is None else seed
    print(f"seed {chosen}", flush=True)
    objects = reviews * 3 // 10
    reports: list[Report] = [endpoint.run(reviews - objects, seed=chosen), policy.run(objects, seed=chosen)]
    for report in reports:
        print("\n".join(report.lines()), flush=True)
    dear = [costliest.search(bodies // 2, seed=chosen, size=size) for size in (costliest.SMALL, costliest.LARGE)]
    for found in dear:
        print("\n".join(found.lines()), flush=True)
    slow = large.slow(LARGE)
    print("\n".join(["objects of 6 MiB: each field in turn", *(f"  FOUND {line}" for line in slow)]))
    outcome = histories_run.run(histories, seed=chosen)
    print("\n".join(outcome.lines()), flush=True)
    surviving = histories_run.surviving_mutants(chosen)
    print("\n".join([f"{len(MUTANTS)} controllers broken on purpose", *(f"  NOT FOUND {name}" for name in surviving)]))
    sys.exit(
        bool(slow)
        or any(found.is_too_costly for found in dear)
        or bool(surviving)
        or bool(outcome.findings)
        or any(report.findings or report.growth for report in reports)
    )


if __name__ == "__main__":  # the histories start processes that import this module too
    main()
