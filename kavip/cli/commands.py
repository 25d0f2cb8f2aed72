"""
The commands that ask and change nothing: check, plan, render, explain, status, vrids.

Each imports only what it runs. Exit status: 0 yes, 1 no (something refused, a Service that waits), 2 the question was
wrong, or cannot be answered.
"""

import asyncio
import json
import sys
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import click

from kavip.cli import flags

if TYPE_CHECKING:
    from kavip.admission.chain import PolicyOptions
    from kavip.cli.sources.overlay import Standing
    from kavip.cli.views.status import Overview
    from kavip.snapshot import Object

_IMAGE: Final = "kavip:latest"


@click.command()
@flags.FILES
@flags.homes
@flags.manner
@flags.LIVE
@flags.cluster
@flags.OUTPUT
def check(
    *,
    paths: tuple[Path, ...],
    homes: tuple[str, ...],
    live: bool,
    kubeconfig: str,
    context: str,
    output: str,
    **manner: str,
) -> None:
    """
    Say what the admission webhook would refuse of the objects in files.

    With --live references of kinds that the files lack are read from the cluster, and what stands there is updated.
    Refusals go to standard output, warnings and what cannot be read to standard error. Exit status: 0 nothing is
    refused, 1 something is, 2 a file cannot be read, or there is nothing to judge.
    """
    from kavip.admission.chain import PolicyOptions
    from kavip.cli.sources import files
    from kavip.cli.views import simulate

    gathered = files.gather(paths)
    for error in gathered.unread:
        click.echo(f"kavip: {error}", err=True)
    given = [each.object for each in gathered.found]
    standing = _standing(kubeconfig, context, given) if live else None
    judged = simulate.admit(given, homes=homes, manner=PolicyOptions(**manner), standing=standing)
    places = {each.key: str(each) for each in gathered.found}
    for line in simulate.remarks(judged, places):
        click.echo(line, err=True)
    if output == "json":
        click.echo(json.dumps(simulate.refusals(judged), indent=2, sort_keys=True))
    else:
        for line in simulate.lines(judged, places):
            click.echo(line)
    sys.exit(2 if gathered.unread else 1 if judged.refused else 0)


@click.command()
@flags.FILES
@flags.homes
@flags.manner
@click.option("--diff", is_flag=True, help="say instead what would change in the cluster; implies --live")
@flags.LIVE
@flags.cluster
@flags.OUTPUT
def plan(
    *,
    paths: tuple[Path, ...],
    homes: tuple[str, ...],
    diff: bool,
    live: bool,
    kubeconfig: str,
    context: str,
    output: str,
    **manner: str,
) -> None:
    """
    Say what would be refused, which address each Service gets, and which objects come out, without a cluster.

    With --live beside what stands in one. Exit status: 0 nothing is refused, 1 something is, 2 a file or the cluster
    cannot be read; with --diff: 0 nothing would change, 1 something would, 2 that cannot be said.
    """
    from kavip.admission.chain import PolicyOptions
    from kavip.cli.sources import files
    from kavip.cli.views import simulate, tables

    given, chosen = files.load(paths), PolicyOptions(**manner)
    if diff:
        _diff(given, kubeconfig, context, homes=homes, manner=chosen, output=output)
    standing = _standing(kubeconfig, context, given) if live else None
    planned = simulate.plan(given, homes=homes, manner=chosen, standing=standing)
    for line in simulate.remarks(planned) + simulate.lines(planned):
        click.echo(line, err=True)
    if output == "json":
        click.echo(json.dumps(simulate.as_data(planned), indent=2, sort_keys=True))
    else:
        click.echo(tables.text(planned))
    sys.exit(1 if planned.refused else 0)


def _standing(kubeconfig: str, context: str, given: Collection["Object"]) -> "Standing":
    from kavip.cli.sources import cluster

    told = kubeconfig or cluster.usual_kubeconfig()
    return asyncio.run(cluster.standing(told, context=context, given=given))


def _diff(
    given: Collection["Object"],
    kubeconfig: str,
    context: str,
    *,
    homes: tuple[str, ...],
    manner: "PolicyOptions",
    output: str,
) -> NoReturn:
    """Print what *given* would change in the cluster, and exit."""
    from kavip.cli.sources import cluster
    from kavip.cli.views import diff as drift
    from kavip.cli.views import simulate

    told = kubeconfig or cluster.usual_kubeconfig()
    standing = asyncio.run(cluster.whole(told, context=context, given=given))
    options = drift.settings_of(standing, ipam=manner.ipam)
    planned = simulate.plan(given, homes=homes, manner=manner, standing=standing, options=options)
    for line in simulate.remarks(planned) + simulate.lines(planned):
        click.echo(line, err=True)
    found = drift.drift_of(planned, standing)
    for each in found.waits:
        click.echo(str(each), err=True)
    if output == "json":
        click.echo(json.dumps(drift.data(found), indent=2, sort_keys=True))
    elif found:
        click.echo(drift.text(found))
    sys.exit(2 if planned.refused else 1 if found else 0)


@click.command()
@flags.FILES
@flags.homes
@click.option("--group", default="", help="ns/name of one group; empty: all")
@click.option(
    "--static",
    "shape",
    is_flag=False,
    flag_value="pod",
    type=click.Choice(("pod", "unit")),
    help="what runs the groups where no API can be asked: a static pod, or files for systemd",
)
@click.option(
    "--node", "nodes", multiple=True, help="NAME=ADDRESS[,ADDRESS] of a node of the groups, beside those in files"
)
@click.option("--image", default=_IMAGE, show_default=True, help="kavip's image in static pods")
@click.option("--output-dir", type=click.Path(path_type=Path), help="where --static unit writes NODE/etc/...")
def render(
    *,
    paths: tuple[Path, ...],
    homes: tuple[str, ...],
    group: str,
    shape: str | None,
    nodes: tuple[str, ...],
    image: str,
    output_dir: Path | None,
) -> None:
    """
    Print the keepalived.conf of each group in files.

    With --static print static pods instead, the same for every node, or write the files of systemd units for each node.
    """
    from kavip.cli.sources import files
    from kavip.cli.views import simulate, static
    from kavip.reconcile.plan import ReconcileOptions

    given = static.with_nodes(nodes, files.load(paths))
    planned = simulate.plan(given, homes=homes, options=ReconcileOptions(image=image))
    if shape is None:
        for key, text in planned.configurations.items():
            if group in ("", key):
                click.echo(text, nl=False)
        return
    for line in simulate.lines(planned):
        click.echo(line, err=True)
    if planned.refused:
        sys.exit(1)
    found = [each for each in static.groups_of(planned.objects) if group in ("", each.key)]
    for each in found:
        if not planned.snapshot.group_nodes(planned.snapshot.groups[each.key]):
            raise click.UsageError(f"group {each.key} has no node: name them with --node NAME=ADDRESS")
        for line in static.needs_of(each):
            click.echo(f"{each.key}: {line}", err=True)
    if shape == "pod" and image == _IMAGE:
        click.echo(f"the pods run {image}: name the image that their nodes have, or can pull, with --image", err=True)
    if shape == "pod":
        for each in found:
            click.echo(static.yaml_of(static.static_pod(each)), nl=False)
    elif output_dir is None:
        raise click.UsageError("--static unit needs --output-dir")
    else:
        for each in found:
            members = planned.snapshot.group_nodes(planned.snapshot.groups[each.key])
            for path, text in static.files_of(each, members).items():
                (output_dir / path).parent.mkdir(parents=True, exist_ok=True)
                (output_dir / path).write_text(text)


@click.command()
@click.argument("service")
@flags.filename()
@click.option("-n", "--namespace", default="", help="of SERVICE, where that is a bare name; default: the context's")
@flags.cluster
@flags.setting("ipam", doc="as the cluster's kavip has it")
@flags.homes
@flags.OUTPUT
def explain(
    service: str,
    *,
    paths: tuple[Path, ...],
    namespace: str,
    kubeconfig: str,
    context: str,
    ipam: str,
    homes: tuple[str, ...],
    output: str,
) -> None:
    """
    Say why SERVICE (ns/name) has its addresses or none: pool by pool, rule by rule.

    Asks the cluster (it only lists Services, VIPPools, KeepalivedGroups, Namespaces, Nodes), or with -f files alone.
    Exit status: 0 it has all its addresses, 1 it waits or is refused, 2 that cannot be said.
    """
    from kavip.cli.sources import cluster, files
    from kavip.cli.views import explain as explaining
    from kavip.cli.views import explanation, simulate
    from kavip.reconcile.plan import ReconcileOptions

    if paths:
        key = service if "/" in service else f"{namespace or 'default'}/{service}"
        given, now = explaining.from_files(files.load(paths), key, ipam=ipam, homes=homes), simulate.NOW
    else:
        told = kubeconfig or cluster.usual_kubeconfig()
        now = datetime.now(UTC)
        key, given = asyncio.run(cluster.read(told, context=context, service=service, namespace=namespace))
    found = explaining.explain_service(given, key, now=now, options=ReconcileOptions(ipam=ipam), homes=homes)
    click.echo(
        json.dumps(explanation.data(found), indent=2, sort_keys=True) if output == "json" else explanation.text(found)
    )
    sys.exit(found.status)


@click.command()
@flags.filename()
@click.option("-n", "--namespace", default="", help="where to look for what you may read nowhere else; context's")
@click.option("-w", "--watch", is_flag=True, help="print again whenever something changes, until interrupted")
@click.option("-o", "--output", type=click.Choice(("table", "json", "yaml")), default="table", show_default=True)
@flags.cluster
def status(*, paths: tuple[Path, ...], namespace: str, watch: bool, output: str, kubeconfig: str, context: str) -> None:
    """
    Show every VIP with the node that holds it, and the groups, pools and nodes around them.

    Asks the cluster (it only lists Services, VIPPools, KeepalivedGroups, Nodes, and watches them with --watch), or with
    -f files alone. Exit status: 0 every VIP has its master, 1 one has not, 2 that cannot be said.
    """
    from kavip import telemetry
    from kavip.cli.sources import cluster, files
    from kavip.cli.sources import watch as watching
    from kavip.cli.views import status as overview

    if paths and watch:
        raise click.UsageError("--watch asks a cluster: give it without -f")
    if paths:
        _show_status(overview.overview(files.load(paths)), output)
    told = kubeconfig or cluster.usual_kubeconfig()
    if not watch:
        scene = asyncio.run(watching.look(told, context=context, namespace=namespace))
        _show_status(overview.overview(scene.objects, scene.notes), output)
    telemetry.configure_logging("critical", "text")  # that the watch is interrupted is told once, below
    try:
        asyncio.run(_watch_status(told, context, namespace, output))
    except KeyboardInterrupt:
        sys.exit(130)


def _show_status(found: "Overview", output: str) -> NoReturn:
    from kavip.cli.views import status as overview

    for note in found.notes:
        click.echo(f"kavip: {note}", err=True)
    click.echo(overview.shown(found, output))
    sys.exit(found.status)


async def _watch_status(kubeconfig: str, context: str, namespace: str, output: str) -> None:
    from kavip.cli.sources import watch as watching
    from kavip.cli.views import status as overview

    before, noted, trouble = "", False, ""
    async for scene in watching.follow(kubeconfig, context=context, namespace=namespace):
        found = overview.overview(scene.objects, scene.notes)
        for note in () if noted else found.notes:
            click.echo(f"kavip: {note}", err=True)
        if scene.trouble != trouble:
            lost = f"the API server does not answer ({scene.trouble}): what is shown may be old"
            click.echo(f"kavip: {lost if scene.trouble else 'the API server answers again'}", err=True)
        text = overview.shown(found, output)
        if text != before:
            at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n"
            parted = {"json": "", "yaml": "---\n", "table": f"\n{at}" if before else at}[output]
            click.echo(f"{parted}{text}")
        before, noted, trouble = text, True, scene.trouble


@click.command()
@click.argument("cluster_name")
def vrids(cluster_name: str) -> None:
    """Print the VRIDs that an OpenShift IPI cluster called CLUSTER_NAME takes on its segment."""
    from kavip.vrrp import openshift

    ids = openshift.router_ids(cluster_name)
    click.echo(f"api {ids.api}\ningress {ids.ingress}\ndns {ids.dns} (OpenShift 4.7 and older)")


ALL: Final = (check, plan, render, explain, status, vrids)
