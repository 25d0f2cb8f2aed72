"""
The Nodes of the API server, by pages: never more than a page is in memory, and the number of nodes is bounded.

An API server that lies can add nodes and addresses, and remove nodes. :mod:`~kavip.agent.peers.membership` says what
follows; no address gets in that would harm the node.
"""

import re
from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlencode

import msgspec

from kavip.agent.peers.client import Server, get
from kavip.api.address import Address
from kavip.api.cluster import Node
from kavip.api.meta import Wire, field
from kavip.errors import NoAnswer

MOST_NODES: Final = 100
"""Nodes of a group: so many have distinct priorities (:mod:`kavip.vrrp.priorities`)."""
MOST_ADDRESSES: Final = 4
"""Addresses that one node may have."""

_PAGE: Final = 10
_LARGEST: Final = 4 << 20  # bytes of a page; a Node with many images and annotations has up to 300 KiB
_SECONDS: Final = 5.0
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_CONTINUE: Final = 4096


class _ListMeta(Wire, frozen=True):
    continue_: str = field(name="continue", default="")


class _NodeList(Wire, frozen=True):
    kind: str = ""
    metadata: _ListMeta = _ListMeta()
    items: tuple[Node, ...] = ()


async def list_nodes(server: Server, selector: str, *, vips: Collection[Address]) -> dict[str, tuple[Address, ...]]:
    """The addresses of the Nodes that match *selector*, by name; raises :class:`NoAnswer`."""
    found: dict[str, tuple[Address, ...]] = {}
    following = ""
    for _ in range(-(-MOST_NODES // _PAGE)):
        query = {"limit": str(_PAGE), "labelSelector": selector, "continue": following}
        path = f"/api/v1/nodes?{urlencode({key: value for key, value in query.items() if value})}"
        page = _decoded(await get(server, path, largest=_LARGEST, seconds=_SECONDS))
        found |= {
            node.metadata.name: _usable(node.host_addresses, vips)
            for node in page.items
            if _NAME.fullmatch(node.metadata.name)
        }
        following = page.metadata.continue_
        if not following:
            break
    if following or len(found) > MOST_NODES:
        raise NoAnswer(f"more than {MOST_NODES} nodes match: use a nodeSelector that picks fewer")
    return found


def _decoded(body: bytes) -> _NodeList:
    try:
        page = msgspec.json.decode(body, type=_NodeList)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        page = _NodeList()
    if page.kind != "NodeList" or len(page.metadata.continue_) > _CONTINUE:
        raise NoAnswer("its answer is no list of Nodes")
    return page


def _usable(addresses: Iterable[Address], vips: Collection[Address]) -> tuple[Address, ...]:
    """Those of *addresses* from which a node may send: no VIP, which moves, and none that is no machine's own."""
    usable = (each for each in dict.fromkeys(addresses) if each not in vips and _is_own(each))
    return tuple(usable)[:MOST_ADDRESSES]


def _is_own(address: Address) -> bool:
    found = ip_address(str(address))
    return not (found.is_loopback or found.is_multicast or found.is_unspecified or found.is_link_local)
