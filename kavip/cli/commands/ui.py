"""
``kavip ui``.
"""

import asyncio
import itertools
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kavip.cli import flags
from kavip.cli.printing import echo

if TYPE_CHECKING:
    from kavip.cli.ui.board import Board, Moment
    from kavip.cli.ui.files import PageFile
    from kavip.cli.ui.server import ServicePage
    from kavip.reconcile.plan import ReconcileOptions
    from kavip.snapshot import Object


@click.command()
@flags.filename()
@flags.readable_namespace
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="port on loopback; default: any free one")
@flags.cluster
@flags.setting("ipam", doc="the value that kavip in the cluster uses")
@flags.group_namespaces
def ui(
    *,
    paths: tuple[Path, ...],
    namespace: str,
    port: int,
    kubeconfig: str,
    context: str,
    ipam: str,
    group_namespaces: tuple[str, ...],
) -> None:
    """
    Serve a page with the live picture of a cluster, on this machine only.

    Prints a link that opens the page, once. The page shows what is wrong, the VIPs of each node, the pools, and what
    changes. Reads and watches the cluster with your rights, or reads files with -f; changes nothing. Agents are asked
    through the API server, which needs the right to get pods/proxy. Runs until interrupted. Exit status: 2 the cluster
    does not answer.
    """
    from kavip import telemetry
    from kavip.cli.sources import files
    from kavip.cli.ui import files as pages
    from kavip.reconcile.plan import ReconcileOptions

    telemetry.configure_logging("critical", "text")  # the page shows that a watch is broken
    service_page = _service_page(ReconcileOptions(ipam=ipam), group_namespaces)
    page = pages.load()
    serving = (
        _serve_files(files.load(paths), ", ".join(map(str, paths)), port=port, page=page, service_page=service_page)
        if paths
        else _serve_cluster(kubeconfig, context, namespace, port=port, page=page, service_page=service_page)
    )
    try:
        asyncio.run(serving)
    except KeyboardInterrupt:
        sys.exit(130)


async def _serve_files(
    objects: "list[Object]", name: str, *, port: int, page: "dict[str, PageFile]", service_page: "ServicePage"
) -> None:
    from kavip.cli.ui.board import Board
    from kavip.cli.ui.feed import of_files
    from kavip.cli.ui.server import Source, UIServer
    from kavip.cli.views.explain import listing_of

    board = Board(of_files(listing_of(objects), now=datetime.now(UTC)))
    source = Source(name, is_live=False, service_page=service_page)
    async with UIServer(board, source, files=page, announce=_announcer()).serving(port):
        await asyncio.Event().wait()


async def _serve_cluster(
    kubeconfig: str,
    context: str,
    namespace: str,
    *,
    port: int,
    page: "dict[str, PageFile]",
    service_page: "ServicePage",
) -> None:
    from kavip.cli.sources.cluster import connected
    from kavip.cli.ui.feed import ClusterFeed
    from kavip.cli.ui.server import Source, UIServer

    async with connected(kubeconfig, context) as (client, default):
        feed = ClusterFeed(client, namespace or default)
        following = asyncio.create_task(feed.run())
        try:
            await _first_picture(feed.board, following)
            source = Source(client.server, is_live=True, service_page=service_page)
            async with UIServer(feed.board, source, files=page, announce=_announcer()).serving(port):
                await following
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _first_picture(board: "Board", following: asyncio.Task[None]) -> None:
    """Return when *board* has a picture; raises the error of *following* if it ends before."""
    shown = asyncio.create_task(board.after(0, timeout=inf))
    try:
        await asyncio.wait({shown, following}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        shown.cancel()
        await asyncio.gather(shown, return_exceptions=True)
    if following.done():
        following.result()


def _announcer() -> Callable[[str], None]:
    """Prints links: the first one on standard output, those after a used one on standard error."""
    links = itertools.count(1)

    def announce(link: str) -> None:
        if next(links) == 1:
            click.echo(f"Open {link}")
            echo("kavip: the link works once; Ctrl-C ends the page", err=True)
        else:
            with suppress(OSError):  # standard error is closed; the page stays open
                echo(f"kavip: the link was used; for another browser or tab: {link}", err=True)

    return announce


def _service_page(options: "ReconcileOptions", group_namespaces: tuple[str, ...]) -> "ServicePage":
    """Explains Services as ``kavip explain`` does."""
    from kavip.cli.views.explain import explain_service
    from kavip.cli.views.picture.servicepage import service_page

    def page_of(moment: "Moment", key: str) -> dict[str, Any]:
        found = explain_service(moment.listing, key, now=moment.at, options=options, group_namespaces=group_namespaces)
        return service_page(found, moment.picture)

    return page_of
