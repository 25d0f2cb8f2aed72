"""
``kavip explain``.
"""

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kavip.cli import flags

if TYPE_CHECKING:
    from kavip.cli.views.explain import ServiceReport


@click.command()
@click.argument("service")
@flags.filename()
@click.option(
    "-n", "--namespace", default="", help="namespace of SERVICE if the name has none; default: that of the context"
)
@flags.cluster
@flags.setting("ipam", doc="the value that kavip in the cluster uses")
@flags.group_namespaces
@flags.OUTPUT
def explain(
    service: str,
    *,
    paths: tuple[Path, ...],
    namespace: str,
    kubeconfig: str,
    context: str,
    ipam: str,
    group_namespaces: tuple[str, ...],
    output: str,
) -> None:
    """
    Explain why a Service has its addresses or none.

    The report about SERVICE (ns/name) shows each pool and each rule. Reads the cluster (it only lists Services,
    VIPPools, KeepalivedGroups, Namespaces and Nodes), or files with -f. Exit status: 0 the Service has all its
    addresses, whether a node announces them or not (kavip status says so), 1 it waits or is refused, 2 unknown.
    """
    from kavip.cli.sources import cluster
    from kavip.cli.views import explain as explaining
    from kavip.cli.views import explainoutput
    from kavip.cli.views.structured import structured
    from kavip.reconcile.plan import ReconcileOptions

    if paths:
        key = service if "/" in service else f"{namespace or 'default'}/{service}"
        found = _explain_files(paths, key, ipam=ipam, group_namespaces=group_namespaces)
    else:
        key, listing = asyncio.run(
            cluster.list_for_service(kubeconfig, context=context, service=service, namespace=namespace)
        )
        options = ReconcileOptions(ipam=ipam)
        found = explaining.explain_service(
            listing, key, now=datetime.now(UTC), options=options, group_namespaces=group_namespaces
        )
    if output != "text":
        click.echo(structured(explainoutput.data(found), output))
    else:
        click.echo(explainoutput.text(found))
    sys.exit(found.status)


def _explain_files(
    paths: tuple[Path, ...], key: str, *, ipam: str, group_namespaces: tuple[str, ...]
) -> "ServiceReport":
    from kavip.cli.sources import files
    from kavip.cli.views import simulate
    from kavip.cli.views.explain import explain_service, listing_of, refusals_of
    from kavip.reconcile.plan import ReconcileOptions

    objects = files.load(paths)
    return explain_service(
        listing_of(objects),
        key,
        now=simulate.NOW,
        options=ReconcileOptions(ipam=ipam),
        group_namespaces=group_namespaces,
        refused=refusals_of(objects, key, ipam=ipam, group_namespaces=group_namespaces),
    )
