"""
``kavip convert``.
"""

import asyncio
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kavip.cli import flags
from kavip.cli.commands.progress import Progress
from kavip.cli.commands.rewriting import rewrite
from kavip.cli.printing import echo
from kavip.names import Reason

if TYPE_CHECKING:
    from kavip.api.refusal import Refusal
    from kavip.cli.views.conversion import ConversionPlan
    from kavip.convert.steps import Json
    from kavip.kube.client import Client

_TIMEOUT: Final = 60.0  # seconds


@click.group()
def convert() -> None:
    """Move Services away from what Kubernetes deprecates."""


@convert.command("external-ips")
@click.argument("services", nargs=-1)
@flags.filename()
@click.option("-n", "--namespace", default="", help="convert only Services of this namespace; default: of all")
@click.option("--dry-run", is_flag=True, help="print what would change, and change nothing")
@click.option("--pool", default="", metavar="NAME", help="print a VIPPool for the addresses that are in none, and exit")
@click.option(
    "--timeout", type=click.FloatRange(min=1), default=_TIMEOUT, show_default=True, help="seconds to wait for kavip"
)
@flags.cluster
@flags.OUTPUT
def external_ips(
    *,
    services: tuple[str, ...],
    paths: tuple[Path, ...],
    namespace: str,
    dry_run: bool,
    pool: str,
    timeout: float,
    kubeconfig: str,
    context: str,
    output: str,
) -> None:
    """
    Turn SERVICES with externalIPs into LoadBalancer Services with the same addresses.

    Without SERVICES (ns/name), all that kavip or keepalived-operator serves. Group, VRID and node ports stay, and no
    VIP moves: an address is removed from externalIPs when the status has it. An interrupted run continues when it is
    started again. With -f, manifests are rewritten instead, comments included; - prints to standard output. Needs the
    rights to list what kavip explain lists, and to get and patch Services. Exit status: 0 all are converted, 1 a
    Service is not, 2 unknown. With --dry-run: 0 nothing would change, 1 something would, 2 a Service cannot be
    converted, or unknown.
    """
    if output != "text" and not dry_run:
        raise click.UsageError(f"-o {output} shows a plan: give it with --dry-run")
    if output != "text" and paths:
        raise click.UsageError(f"-o {output} shows the plan for a cluster: give it without -f")
    if pool and paths:
        raise click.UsageError("--pool reads the pools of a cluster: give it without -f")
    options = _Options(services, namespace, dry_run, pool, timeout, output)
    if paths:
        sys.exit(_rewrite(paths, options))
    sys.exit(asyncio.run(_convert(kubeconfig, context, options)))


@dataclass(frozen=True, slots=True)
class _Options:
    """What the user asked for."""

    services: tuple[str, ...]
    namespace: str
    dry_run: bool
    pool: str
    timeout: float
    output: str


# --- a cluster --------------------------------------------------------------------------------------------------------
async def _convert(kubeconfig: str, context: str, options: _Options) -> int:
    """Plan, and carry out what *options* request; return the exit status."""
    from kavip.cli.sources import cluster
    from kavip.cli.views import conversionoutput
    from kavip.cli.views.conversion import plan_conversion
    from kavip.cli.views.scope import Scope
    from kavip.cli.views.structured import structured

    async with cluster.connected(kubeconfig, context) as (client, default):
        scope = Scope.of(options.services, options.namespace, default)
        namespaces = {scope.namespace or default, *(key.partition("/")[0] for key in scope.keys)}
        listing = await cluster.list_for_conversion(client, namespaces)
        plan = plan_conversion(listing, scope)
        for note in listing.notes:
            echo(f"kavip: {note}", err=True)
        if options.pool:
            click.echo(conversionoutput.pool(options.pool, plan.without_pool) if plan.without_pool else "", nl=False)
            return 0
        for line in conversionoutput.remarks(plan):
            echo(line, err=True)
        if not options.dry_run:
            return await _carry_out(client, plan, options.timeout)
    if options.output != "text":
        click.echo(structured(conversionoutput.data(plan), options.output))
    else:
        for each in conversionoutput.diffs(plan):
            click.echo(each)
    return 2 if plan.refused else 1 if plan.converted else 0


async def _carry_out(client: "Client", plan: "ConversionPlan", timeout: float) -> int:
    """Convert one Service after the other; return the exit status."""
    from kavip.cli.sources.stepping import lead
    from kavip.convert import externalips
    from kavip.kube.resources import SERVICES

    failed: set[str] = {row.key for row in plan.refused}
    with Progress() as progress:
        for key, text in plan.sharing:
            sharing = partial(externalips.sharing_step, key=text)
            if refusal := await lead(client, key, sharing, timeout=timeout, on_write=lambda _: None, resource=SERVICES):
                _print_failure(key, refusal, failed, progress)
        for number, row in enumerate(plan.converted, start=1):
            if row.key in failed:
                continue
            progress.show(f"{number - 1} of {len(plan.converted)} converted; next: {row.key}")
            printing = partial(_print, row.key, progress)
            step = externalips.next_step
            refusal = await lead(client, row.key, step, timeout=timeout, on_write=printing, resource=SERVICES)
            if refusal is None:
                progress.echo(f"{row.key}: converted ({number} of {len(plan.converted)})")
            else:
                _print_failure(row.key, refusal, failed, progress)
                if refusal.reason is Reason.PENDING:
                    break  # kavip does not act, so the next Service would only wait too
    if not plan.rows:
        echo("no Service has externalIPs that kavip serves", err=True)
    return 1 if failed else 0


def _print(key: str, progress: Progress, says: str) -> None:
    progress.echo(f"{key}: {says}")


def _print_failure(key: str, refusal: "Refusal", failed: set[str], progress: Progress) -> None:
    failed.add(key)
    progress.echo(f"{key}: not converted, and still served: {refusal.message}", err=True)


# --- manifests --------------------------------------------------------------------------------------------------------
def _rewrite(paths: tuple[Path, ...], options: _Options) -> int:
    """Rewrite the Services in files; return the exit status."""
    from kavip.api.refusal import Refusal
    from kavip.cli.sources.rewrite import read_manifests
    from kavip.cli.views.conversion import NOT_SERVED
    from kavip.cli.views.conversionoutput import cause
    from kavip.cli.views.scope import Scope
    from kavip.convert import externalips
    from kavip.convert.steps import annotated
    from kavip.names import SHARING_KEY_ANNOTATION

    manifests, unread = read_manifests(paths)
    stored = {each.service.key: each.service for manifest in manifests for each in manifest.services}
    scope = Scope.of(options.services, options.namespace)
    scope.check(stored)
    sharing, connected = externalips.sharing_keys(stored.values()), externalips.connected(stored.values())
    patches: dict[str, Json] = {}
    refused = 0
    for key, service in stored.items():
        if not scope.has(key):
            continue
        found = externalips.conversion_of(service, sharing_key=sharing.get(key, ""))
        if isinstance(found, Refusal):
            echo(f"{key}: not converted: {cause(found)}", err=True)
            refused += 1
        elif found is not None:
            needing = {each: annotated(**{SHARING_KEY_ANNOTATION: sharing[each]}) for each in connected.get(key, ())}
            patches = {**needing, **patches, key: found.patch}
        elif service.spec.external_ips:
            echo(f"{key}: left as it is: {NOT_SERVED}", err=True)
    return rewrite(manifests, patches, unread=unread, refused=refused, dry_run=options.dry_run)
