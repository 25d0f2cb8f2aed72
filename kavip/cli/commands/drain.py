"""
``kavip drain`` and ``kavip undrain``.
"""

import asyncio
import sys
from contextlib import suppress
from typing import Final

import click

from kavip.cli import flags
from kavip.errors import SettingsError

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
    kavip drain n2 --wait && kubectl drain n2. Exit status: 0 done, 1 NODE holds VIPs after the timeout, 2 unknown.
    """
    from kavip import telemetry
    from kavip.cli.sources.drain import set_drain

    asyncio.run(set_drain(node, "true", kubeconfig=kubeconfig, context=context))
    click.echo(f"node/{node} drained")
    if not wait:
        return
    telemetry.configure_logging("critical", "text")  # the watch starts again by itself

    if left := asyncio.run(_wait_until_empty(node, timeout, kubeconfig, context)):
        click.echo(f"kavip: after {timeout:g} s {node} still holds {', '.join(left)}", err=True)
        click.echo("kavip: see the condition Ready of their KeepalivedGroups, and docs/howto/drain.md", err=True)
        sys.exit(1)


async def _wait_until_empty(node: str, timeout: float, kubeconfig: str, context: str) -> list[str]:
    """Print which node took which VIP of *node*; return those that it still holds after *timeout* seconds."""
    from kavip.cli.sources.drain import watch_node

    holding: dict[str, str] | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout) as limit:
            async for rows in watch_node(kubeconfig, context=context):
                for address, service in sorted((holding or {}).items()):
                    if (holder := rows.get(address, ("", ""))[0]) != node:
                        click.echo(f"{address} {service}: {f'on {holder}' if holder else 'on no node'}")
                holding = {address: service for address, (holder, service) in rows.items() if holder == node}
                if not holding:
                    limit.reschedule(0)  # a watch ends only when it is cancelled
    if holding is None:
        raise SettingsError(f"the API server listed no VIPs within {timeout:g} s")
    return [f"{address} {service}" for address, service in sorted(holding.items())]


@click.command()
@click.argument("node")
@flags.cluster
def undrain(*, node: str, kubeconfig: str, context: str) -> None:
    """
    Let NODE hold VIPs again: removes the annotation kavip.io/drain of the Node.

    The VIPs for which NODE ranks first return once.
    """
    from kavip.cli.sources.drain import set_drain

    asyncio.run(set_drain(node, None, kubeconfig=kubeconfig, context=context))
    click.echo(f"node/{node} undrained")
