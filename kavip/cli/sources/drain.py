"""
The annotation ``kavip.io/drain`` of a Node, and which node holds which VIP meanwhile.
"""

from collections.abc import AsyncIterator
from typing import Final

from kavip import names
from kavip.api.cluster import Node
from kavip.cli.sources.cluster import connected, list_everywhere
from kavip.cli.sources.watch import watch_status
from kavip.cli.views.drain import DrainProgress, progress_of
from kavip.errors import BadInput, NotFound
from kavip.kube import resources

_MANAGER: Final = "kavip-drain"
"""The field manager: not that of the controller, which never writes a Node."""


async def set_drain(node: str, value: str | None, *, kubeconfig: str, context: str) -> Node:
    """
    Set the annotation of *node*; None removes it. Return the Node.

    Raises :class:`BadInput` if there is no such Node, and :class:`~kavip.errors.Forbidden` without the right.
    """
    body = {"metadata": {"annotations": {names.DRAIN_ANNOTATION: value}}}
    async with connected(kubeconfig, context) as (client, _):
        try:
            return await client.patch(resources.NODES, node, body, field_manager=_MANAGER)
        except NotFound:
            raise BadInput("NODE", node, "no such Node") from None


async def watch_drain(node: str, kubeconfig: str, *, context: str) -> AsyncIterator[DrainProgress]:
    """
    How far *node* is drained; again after each change, without an end.

    Raises :class:`~kavip.errors.Forbidden` where the user may not list all groups, Services and Nodes: VIPs would be
    missing, or the groups of the node.
    """
    async with connected(kubeconfig, context) as (client, _):
        for resource in (resources.GROUPS, resources.SERVICES, resources.NODES):
            await list_everywhere(client, resource)
    async for listing in watch_status(kubeconfig, context=context, namespace=""):
        yield progress_of(listing.objects, node)
