"""
``kavip drain`` and ``kavip undrain``.
"""

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import click

from kavip.cli import flags
from kavip.cli.commands.progress import Progress
from kavip.cli.printing import echo
from kavip.errors import SettingsError

if TYPE_CHECKING:
    from kavip.cli.views.drain import DrainProgress

_TIMEOUT: Final = 120.0  # seconds


@click.command()
@click.argument("node")
@click.option("--wait", is_flag=True, help="return when NODE holds no VIP; needs the rights of kavip status too")
@click.option("--timeout", type=click.FloatRange(min=1), default=_TIMEOUT, show_default=True, help="seconds for --wait")
@flags.cluster
def drain(*, node: str, wait: bool, timeout: float, kubeconfig: str, context: str) -> None:
    """
    Move all VIPs of NODE to other nodes, while it still runs.

    Sets the annotation kavip.io/drain of the Node, which needs the right to patch this Node. To drain its pods as well:
    kavip drain n2 --wait && kubectl drain n2 --ignore-daemonsets. Exit status: 0 done, 1 NODE still holds VIPs after
    the timeout, or no controller has drained it, 2 unknown.
    """
    from kavip import telemetry
    from kavip.cli.sources.drain import set_drain

    asyncio.run(set_drain(node, "true", kubeconfig=kubeconfig, context=context))
    echo(f"node/{node} drain requested")
    if not wait:
        return
    telemetry.configure_logging("critical", "text")  # the watch starts again by itself

    found = asyncio.run(_wait_until_drained(node, timeout, kubeconfig, context))
    if found.is_done:
        echo(f"node/{node} drained")
    else:
        for line in found.lines():
            echo(f"kavip: after {timeout:g} s {line}", err=True)
        sys.exit(1 if found.held or found.undrained else 2)


async def _wait_until_drained(node: str, timeout: float, kubeconfig: str, context: str) -> "DrainProgress":
    """Print which node took which VIP of *node*; return how far it is drained after *timeout* seconds at most."""
    from kavip.cli.sources.drain import watch_drain

    found: DrainProgress | None = None
    leaving = set[str]()
    told = ""
    with suppress(TimeoutError), Progress() as progress:
        async with asyncio.timeout(timeout) as limit:
            async for now in watch_drain(node, kubeconfig, context=context):
                for name in sorted(leaving):
                    if now.holders.get(name, node) != node:
                        progress.echo(f"{name}: {now.place_of(name)}")
                        leaving.remove(name)
                leaving |= {*now.held}
                if now.awaits_pods and now.pods_needed != told:
                    told = now.pods_needed
                    progress.echo(f"kavip: {told}", err=True)
                progress.show(f"{node}: {len(now.held)} VIPs left to move")
                found = now
                if found.is_done:
                    limit.reschedule(0)  # a watch ends only when it is cancelled
    if found is None:
        raise SettingsError(f"the API server listed no VIPs within {timeout:g} s")
    return found


@click.command()
@click.argument("node")
@flags.cluster
def undrain(*, node: str, kubeconfig: str, context: str) -> None:
    """
    Let NODE hold VIPs again: removes the annotation kavip.io/drain of the Node.

    The VIPs for which NODE ranks first return once.
    """
    from kavip.cli.sources.drain import set_drain
    from kavip.cli.views.drain import still_drained

    found = asyncio.run(set_drain(node, None, kubeconfig=kubeconfig, context=context))
    echo(f"node/{node} undrained")
    for line in still_drained(found):
        echo(f"kavip: {line}", err=True)
