"""
``kavip check``.
"""

import asyncio
import sys
from pathlib import Path

import click

from kavip.cli import flags
from kavip.cli.printing import echo


@click.command()
@flags.FILES
@flags.group_namespaces
@flags.policy
@flags.LIVE
@flags.cluster
@click.option("--strict", is_flag=True, help="exit with 1 also if an object has a warning")
@flags.OUTPUT
def check(
    *,
    paths: tuple[Path, ...],
    group_namespaces: tuple[str, ...],
    live: bool,
    kubeconfig: str,
    context: str,
    strict: bool,
    output: str,
    **policy: str,
) -> None:
    """
    Print what admission would refuse in files.

    The objects are reviewed as the webhook reviews them. With --live, references to kinds that the files lack are
    looked up in the cluster, and objects that exist there are reviewed as updates. Refusals go to standard output;
    warnings and files that cannot be read go to standard error. Exit status: 0 nothing is refused, 1 an object is
    refused, or with --strict has a warning, 2 a file cannot be read, or there is no object.
    """
    from kavip.admission.chain import PolicyOptions
    from kavip.cli.sources import cluster, files
    from kavip.cli.views import planoutput, simulate
    from kavip.cli.views.listing import settings_in
    from kavip.cli.views.structured import structured

    contents = files.read_all(paths)
    for error in contents.unread:
        echo(f"kavip: {error}", err=True)
    given = [each.object for each in contents.found]
    listing = asyncio.run(cluster.list_for_plan(kubeconfig, context=context, given=given)) if live else None
    settings = settings_in(listing, PolicyOptions.of(**policy))
    simulated = simulate.admit(given, group_namespaces=group_namespaces, settings=settings, cluster=listing)
    places = {each.key: str(each) for each in contents.found}
    for line in planoutput.warnings(simulated, places):
        echo(line, err=True)
    if output != "text":
        click.echo(structured(planoutput.check_data(simulated), output))
    else:
        for line in planoutput.refusals(simulated, places):
            echo(line)
    found = simulated.warned if strict else simulated.refused
    sys.exit(2 if contents.unread else 1 if found else 0)
