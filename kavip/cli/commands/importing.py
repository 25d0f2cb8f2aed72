"""
``kavip import``.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from kavip.cli import flags
from kavip.cli.commands.progress import Progress
from kavip.cli.commands.rewriting import rewrite
from kavip.cli.printing import echo

if TYPE_CHECKING:
    from kavip.api.handover import HandedService
    from kavip.api.metallb import ForeignObject
    from kavip.api.refusal import Refusal
    from kavip.cli.sources.foreign import Announcements
    from kavip.cli.views.importing import ImportPlan, ServiceRow
    from kavip.convert.imported import Imported
    from kavip.convert.metallb import Wishes
    from kavip.convert.provider import Provider
    from kavip.convert.steps import NextStep
    from kavip.kube.client import Client

F = TypeVar("F", bound=Callable[..., Any])

_TIMEOUT: Final = 120.0  # seconds


@click.group("import")
def import_() -> None:
    """Come from another load balancer: its objects as kavip's, and its Services with their addresses."""


def _options(command: F) -> F:
    """The options of both commands."""
    for option in (
        flags.OUTPUT,
        flags.cluster,
        click.option(
            "--timeout",
            type=click.FloatRange(min=1),
            default=_TIMEOUT,
            show_default=True,
            help="seconds for each step of a Service",
        ),
        click.option(
            "--hand-over", is_flag=True, help="hand the Services over to kavip; with -f: rewrite their manifests"
        ),
        click.option("--interface", default="", help="interface of the addresses, where the objects name none"),
        click.option(
            "--into", default="lb", show_default=True, metavar="NAMESPACE", help="namespace of the groups that are made"
        ),
        click.option("--group", default="", metavar="NS/NAME", help="an existing group for all Services; none is made"),
        click.option("-n", "--namespace", default="", help="only Services of this namespace; default: of all"),
        flags.filename(),
        click.argument("services", nargs=-1),
    ):
        command = option(command)
    return command


@import_.command("metallb")
@_options
def metallb(**given: Any) -> None:
    """
    Print VIPPools and KeepalivedGroups made of MetalLB's objects.

    They go to standard output, ready for kubectl apply; below them stands, as comments, what the hand-over changes in
    SERVICES (ns/name; default: all that MetalLB serves). What has no counterpart goes to standard error, by object and
    field. With --hand-over, the Services are handed over one after the other, with all addresses: apply the manifests
    first. An interrupted run continues when it is started again. Needs the rights to list what kavip explain lists and
    MetalLB's objects, and to get and patch Services. Exit status: 0 all has a counterpart or is handed over, 1
    something is not, 2 unknown.
    """
    _run("metallb", given)


@import_.command("kube-vip")
@_options
def kube_vip(**given: Any) -> None:
    """
    Print VIPPools and KeepalivedGroups made of kube-vip's objects.

    Reads the ConfigMap kubevip of kube-vip-cloud-provider, and the variables of kube-vip's pods. The manifests go to
    standard output, ready for kubectl apply; below them stands, as comments, what the hand-over changes in SERVICES
    (ns/name; default: all that kube-vip serves). What has no counterpart goes to standard error, by object and field.
    With --hand-over, the Services are handed over one after the other, with all addresses: apply the manifests first.
    An interrupted run continues when it is started again. Needs the rights to list what kavip explain lists and
    DaemonSets, Pods and ConfigMaps, and to get and patch Services. Exit status: 0 all has a counterpart or is handed
    over, 1 something is not, 2 unknown.
    """
    _run("kube-vip", given)


@dataclass(frozen=True, slots=True)
class _Given:
    """What the user asked for."""

    name: str
    provider: "Provider"
    wishes: "Wishes"
    services: tuple[str, ...]
    namespace: str
    hand_over: bool
    timeout: float
    output: str

    def imported(self, objects: "tuple[ForeignObject, ...]") -> "Imported":
        """What the objects become."""
        from kavip.convert.kubevip import import_kubevip
        from kavip.convert.metallb import import_metallb

        return (import_metallb if self.name == "metallb" else import_kubevip)(objects, self.wishes)


def _run(name: str, given: dict[str, Any]) -> None:
    from kavip.convert.metallb import Wishes
    from kavip.convert.provider import KUBE_VIP, METALLB

    if given["hand_over"] and given["output"] != "text":
        raise click.UsageError(f"-o {given['output']} shows a plan: give it without --hand-over")
    _check(given["into"], given["interface"], given["group"])
    request = _Given(
        name,
        METALLB if name == "metallb" else KUBE_VIP,
        Wishes(given["into"], given["interface"], given["group"]),
        given["services"],
        given["namespace"],
        given["hand_over"],
        given["timeout"],
        given["output"],
    )
    if given["paths"]:
        sys.exit(_import_files(request, given["paths"]))
    sys.exit(asyncio.run(_import_cluster(request, given["kubeconfig"], given["context"])))


def _check(into: str, interface: str, group: str) -> None:
    """Raise :class:`BadInput` for a wish that no object could have."""
    from kavip.api import naming
    from kavip.errors import BadInput

    parts = group.split("/")
    if not naming.is_name(into):
        raise BadInput("--into", into, "want the name of a namespace")
    if interface and not naming.is_interface(interface):
        raise BadInput("--interface", interface, naming.INTERFACE_REMEDY)
    if group and not (len(parts) == 2 and all(map(naming.is_name, parts))):
        raise BadInput("--group", group, "want NAMESPACE/NAME of a group")


def _print_plan(plan: "ImportPlan", request: _Given) -> int:
    """Print everything; return the exit status."""
    from kavip.cli.views import importingoutput

    for line in importingoutput.remarks(plan):
        echo(line, err=True)
    click.echo(importingoutput.text(plan, request.output))
    return 1 if plan.remarks or plan.refused else 0


def _print_nothing(plan: "ImportPlan", request: _Given, source: str) -> None:
    """Say that *source* has nothing of the other load balancer: probably it is the wrong one."""
    if not (plan.rows or plan.remarks or plan.imported.pools):
        echo(f"kavip: nothing of {request.provider.name} is in the {source}", err=True)


# --- a cluster --------------------------------------------------------------------------------------------------------
async def _import_cluster(request: _Given, kubeconfig: str, context: str) -> int:
    from kavip.cli.sources import cluster, foreign
    from kavip.cli.views.importing import plan_import, with_imported
    from kavip.cli.views.scope import Scope

    async with cluster.connected(kubeconfig, context) as (client, default):
        scope = Scope.of(request.services, request.namespace, default)
        namespaces = {scope.namespace or default, *(key.partition("/")[0] for key in scope.keys)}
        listing = await cluster.list_for_conversion(client, namespaces)
        found = await foreign.list_objects(request.name, client)
        for note in (*listing.notes, *found.notes):
            echo(f"kavip: {note}", err=True)
        services, imported = await foreign.list_services(client, namespaces), request.imported(found.objects)
        known = listing if request.hand_over else with_imported(listing, imported)
        plan = plan_import(imported, request.provider, services, known, scope)
        _print_nothing(plan, request, "cluster")
        return await _hand_over(client, plan, request) if request.hand_over else _print_plan(plan, request)


async def _hand_over(client: "Client", plan: "ImportPlan", request: _Given) -> int:
    """Hand one unit of Services over after the other; return the exit status."""
    from kavip.cli.sources.foreign import Announcements
    from kavip.cli.views import importingoutput

    for line in (
        *importingoutput.service_remarks(plan),
        *importingoutput.assigning(plan.imported, request.provider.name),
    ):
        echo(line, err=True)
    failed = len(plan.refused)
    with Progress() as progress:
        run = _Run(client, request.timeout, Announcements(client, request.provider), progress)
        for number, unit in enumerate(plan.units, start=1):
            keys = ", ".join(row.key for row in unit)
            progress.show(f"{number - 1} of {len(plan.units)} handed over; next: {keys}")
            if stopped := await run.hand_over(unit):
                key, refusal = stopped
                failed += len(unit)
                progress.echo(f"{key}: not handed over, and still served: {refusal.message}", err=True)
                break  # the next one would meet the same: what can be known before was evaluated before
            progress.echo(f"{keys}: handed over ({number} of {len(plan.units)})")
    stuck = [row.key for unit in plan.units for row in unit if row.service.has_foreign_class]
    if stuck and not request.provider.withdraws:
        echo(
            f"{request.provider.name} may announce {', '.join(stuck)} until its speakers restart: it does not look at "
            "Services that have lost its class; kubectl rollout restart daemonset -n metallb-system",
            err=True,
        )
    return 1 if failed else 0


@dataclass(frozen=True, slots=True)
class _Run:
    """One hand-over of Services."""

    client: "Client"
    timeout: float
    announcements: "Announcements"
    progress: Progress

    async def hand_over(self, unit: "tuple[ServiceRow, ...]") -> "tuple[str, Refusal] | None":
        """All of *unit*, and first prepare all; the Service that cannot go on, and why."""
        from kavip.convert import handover

        goals = {row.key: replace(row.goal, announced=self.announcements.of) for row in unit}
        for step in (handover.prepare_step, handover.next_step):
            for row in unit:
                if refusal := await self._lead(row.key, partial(step, goal=goals[row.key])):
                    return row.key, refusal
        return None

    async def _lead(self, key: str, step: "NextStep[HandedService]") -> "Refusal | None":
        from kavip.cli.sources.foreign import HANDED
        from kavip.cli.sources.stepping import lead

        def printing(says: str) -> None:
            self.progress.echo(f"{key}: {says}")

        look = self.announcements.refresh
        return await lead(self.client, key, step, timeout=self.timeout, on_write=printing, resource=HANDED, look=look)


# --- manifests --------------------------------------------------------------------------------------------------------
def _import_files(request: _Given, paths: tuple[Path, ...]) -> int:
    from kavip.cli.sources import foreign
    from kavip.cli.sources.rewrite import read_manifests
    from kavip.cli.views import importingoutput
    from kavip.cli.views.importing import plan_manifests
    from kavip.cli.views.scope import Scope

    theirs = foreign.read_files(request.name, paths)
    imported = request.imported(theirs.objects)
    manifests, bad = read_manifests(paths)
    unread = [*{str(each): each for each in (*theirs.unread, *bad)}.values()]  # a file that is no YAML is in both
    services = [each.service for manifest in manifests for each in manifest.services]
    scope = Scope.of(request.services, request.namespace)
    plan = plan_manifests(imported, request.provider, services, scope, group=request.wishes.group)
    if not unread:
        _print_nothing(plan, request, "files")
    if request.hand_over:
        for line in importingoutput.service_remarks(plan):
            echo(line, err=True)
        patches = {row.key: row.patch for row in plan.rows if not row.refusals}
        return rewrite(manifests, patches, unread=unread, refused=len(plan.refused), dry_run=False)
    for error in unread:
        echo(f"kavip: {error}", err=True)
    status = _print_plan(plan, request)
    return 2 if unread else status
