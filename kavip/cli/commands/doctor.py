"""
``kavip doctor``.
"""

import asyncio
import sys

import click

from kavip.cli import flags


@click.command()
@click.option("-o", "--output", type=click.Choice(("text", "json", "yaml")), default="text", show_default=True)
@flags.cluster
def doctor(*, output: str, kubeconfig: str, context: str) -> None:
    """
    Check a cluster, and say what is wrong, why it matters and which command mends it.

    Changes nothing: of what it sends only a Service is an object, as a dry run. A check whose objects you may not read
    is not made. Agents are asked through the API server, which needs the right to get pods/proxy. Exit status: 0
    nothing is found, 1 something is, 2 nothing is found and a check was not made, or the cluster does not answer.
    """
    from kavip.cli.sources.doctor import inspect
    from kavip.cli.views.doctor.checks import diagnose
    from kavip.cli.views.doctor.output import output as printed

    report = diagnose(asyncio.run(inspect(kubeconfig, context=context)))
    click.echo(printed(report, output, style=flags.problem_style()))
    sys.exit(report.status)
