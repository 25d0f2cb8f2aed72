"""
``kavip plan``.
"""

import asyncio
import sys
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from kavip.cli import flags
from kavip.cli.printing import echo

if TYPE_CHECKING:
    from kavip.admission.chain import PolicyOptions
    from kavip.cli.views.listing import Listing
    from kavip.cli.views.simulate import Simulation
    from kavip.snapshot import Object


@click.command()
@flags.FILES
@flags.group_namespaces
@flags.policy
@click.option("--diff", is_flag=True, help="print what would change in the cluster instead; implies --live")
@flags.LIVE
@flags.cluster
@flags.OUTPUT
def plan(
    *,
    paths: tuple[Path, ...],
    group_namespaces: tuple[str, ...],
    diff: bool,
    live: bool,
    kubeconfig: str,
    context: str,
    output: str,
    **policy: str,
) -> None:
    """
    Print what applying files would do.

    That is: what would be refused, the address that each Service would get, and the objects that would be made. No
    cluster is needed. With --live, the command also reads the objects of a cluster; it changes nothing there. Exit
    status: 0 nothing is refused, 1 an object is refused, or a group has no room for one of its Services, 2 a file or
    the cluster cannot be read. With --diff: 0 nothing would change, 1 something would, 2 unknown.
    """
    from kavip.admission.chain import PolicyOptions
    from kavip.cli.sources import cluster, files
    from kavip.cli.views import planoutput, simulate
    from kavip.cli.views.listing import settings_in
    from kavip.cli.views.structured import structured
    from kavip.rendering import process

    (given, templates), settings = files.load_with_templates(paths), PolicyOptions.of(**policy)
    run = partial(simulate.plan, templates=templates, render=process.render_now)
    if diff:
        listing = asyncio.run(cluster.list_for_diff(kubeconfig, context=context, given=given))
        settings = settings_in(listing, settings)
        _print_diff(run, given, listing, group_namespaces=group_namespaces, settings=settings, output=output)
    live_listing = asyncio.run(cluster.list_for_plan(kubeconfig, context=context, given=given)) if live else None
    settings = settings_in(live_listing, settings)
    simulated = run(given, group_namespaces=group_namespaces, settings=settings, cluster=live_listing)
    _print_remarks(simulated)
    if output != "text":
        click.echo(structured(planoutput.plan_data(simulated), output))
    else:
        click.echo(planoutput.text(simulated, columns=flags.terminal_columns()))
    sys.exit(1 if simulated.refused or simulated.excluded else 0)


def _print_remarks(simulated: "Simulation") -> None:
    """Print warnings, refusals, and the groups without room for all of their Services, to standard error."""
    from kavip.cli.views import planoutput

    for line in (
        *planoutput.warnings(simulated),
        *planoutput.refusals(simulated),
        *planoutput.exclusions(simulated),
    ):
        echo(line, err=True)


def _print_diff(
    run: Callable[..., "Simulation"],
    given: Collection["Object"],
    listing: "Listing",
    *,
    group_namespaces: tuple[str, ...],
    settings: "PolicyOptions",
    output: str,
) -> NoReturn:
    """Print what *given* would change in the cluster of *listing*, by the simulation that *run* does, and exit."""
    from kavip.cli.views import diff
    from kavip.cli.views.structured import structured

    options = diff.settings_of(listing, ipam=settings.ipam, templates=settings.templates)
    simulated = run(given, group_namespaces=group_namespaces, settings=settings, cluster=listing, options=options)
    _print_remarks(simulated)
    found = diff.diff_of(simulated, listing)
    for each in found.pending:
        echo(str(each), err=True)
    if output != "text":
        click.echo(structured(diff.data(found), output))
    elif found:
        click.echo(diff.text(found))
    sys.exit(2 if simulated.refused else 1 if found else 0)
