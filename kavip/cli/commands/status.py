"""
``kavip status``.
"""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from kavip.cli import flags
from kavip.cli.printing import echo

if TYPE_CHECKING:
    from kavip.cli.views.status import StatusReport


@click.command()
@flags.filename()
@flags.readable_namespace
@click.option("-w", "--watch", is_flag=True, help="print again after each change, until interrupted")
@click.option(
    "-o",
    "--output",
    type=click.Choice(("table", "wide", "name", "json", "yaml")),
    default="table",
    show_default=True,
    help="wide: also VRIDs, interfaces and ranges; name: Services only",
)
@flags.cluster
def status(*, paths: tuple[Path, ...], namespace: str, watch: bool, output: str, kubeconfig: str, context: str) -> None:
    """
    Print every VIP with the node that holds it.

    The groups, pools and nodes follow. Reads the cluster (it only lists Services, VIPPools, KeepalivedGroups and Nodes,
    and watches them with --watch), or files with -f. Exit status: 0 every VIP has its master, 1 a VIP has none or
    a Service waits for one, 2 unknown.
    """
    from kavip import telemetry
    from kavip.cli.sources import files
    from kavip.cli.sources.watch import list_status
    from kavip.cli.views.status import report

    if paths and watch:
        raise click.UsageError("--watch reads a cluster: give it without -f")
    if paths:
        _print_and_exit(report(files.load(paths)), output)
    if not watch:
        listing = asyncio.run(list_status(kubeconfig, context=context, namespace=namespace))
        _print_and_exit(report(listing.objects, listing.notes), output)
    telemetry.configure_logging("critical", "text")  # a broken watch is reported below, once
    try:
        asyncio.run(_watch(kubeconfig, context, namespace, output))
    except KeyboardInterrupt:
        sys.exit(130)


def _print_and_exit(found: "StatusReport", form: str) -> NoReturn:
    from kavip.cli.views.statusoutput import output

    for note in found.notes:
        echo(f"kavip: {note}", err=True)
    if text := output(found, form, style=flags.problem_style(), columns=flags.terminal_columns()):
        click.echo(text)
    sys.exit(found.status)


async def _watch(kubeconfig: str, context: str, namespace: str, form: str) -> None:
    from kavip.cli.sources.watch import watch_status
    from kavip.cli.views.status import report
    from kavip.cli.views.statusoutput import output

    before, noted, watch_error = "", False, ""
    async for listing in watch_status(kubeconfig, context=context, namespace=namespace):
        found = report(listing.objects, listing.notes)
        for note in () if noted else found.notes:
            echo(f"kavip: {note}", err=True)
        if listing.watch_error != watch_error:
            lost = f"the API server does not answer ({listing.watch_error}): the output may be outdated"
            echo(f"kavip: {lost if listing.watch_error else 'the API server answers again'}", err=True)
        text = output(found, form, style=flags.problem_style(), columns=flags.terminal_columns())
        if text != before:
            at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n"
            separator = {"json": "", "yaml": "---\n"}.get(form, f"\n{at}" if before else at)
            click.echo(f"{separator}{text}")
        before, noted, watch_error = text, True, listing.watch_error
