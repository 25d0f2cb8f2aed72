"""
The nodes of groups without an API server, as the command line names them: ``--node NAME=ADDRESS[,ADDRESS]``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from kavip.api.address import Address, parse_address
from kavip.api.cluster import Node, NodeAddress, NodeStatus
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.errors import BadInput
from kavip.snapshot import Object
from kavip.vrrp.running import running_instances

INTERNAL_IP: Final = "InternalIP"
"""The type of a node's address that VRRP uses."""

_NODE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def with_nodes(given: Sequence[str], objects: Sequence[Object]) -> list[Object]:
    """
    *objects*, and the nodes *given* as ``NAME=ADDRESS[,ADDRESS]``, which all groups among *objects* select.

    Raises :class:`BadInput`.
    """
    labels: dict[str, str] = {}
    found = list(objects)
    for index, each in enumerate(objects if given else ()):
        if isinstance(each, KeepalivedGroup):
            labels |= each.spec.node_selector or {}
            spec = msgspec.structs.replace(each.spec, affinity=None)  # it may select labels that are unknown here
            found[index] = msgspec.structs.replace(each, spec=spec)
    nodes = [_node(text, labels) for text in given]
    _check_distinct(nodes, [each for each in objects if isinstance(each, Node)])
    return [*found, *nodes]


def _check_distinct(given: Iterable[Node], others: Iterable[Node]) -> None:
    """Raise :class:`BadInput` if a *given* node has the name or an address of another: it would be no peer of it."""
    known: dict[str | Address, str] = {}
    for node in others:
        known |= dict.fromkeys((node.metadata.name, *node.addresses(INTERNAL_IP)), node.metadata.name)
    for node in given:
        name = node.metadata.name
        if name in known:
            raise BadInput("--node", name, "is there twice; want each node once")
        for address in node.addresses(INTERNAL_IP):
            if address in known:
                raise BadInput("--node", f"{name}={address}", f"{known[address]} has this address; want its own")
        known |= dict.fromkeys((name, *node.addresses(INTERNAL_IP)), name)


def _node(text: str, labels: Mapping[str, str]) -> Node:
    name, _, addresses = text.partition("=")
    if not addresses or not _NODE.fullmatch(name):
        raise BadInput("--node", text, "want NAME=ADDRESS[,ADDRESS], with the name of a node")
    found = [parse_address(each, "--node") for each in addresses.split(",")]
    status = NodeStatus([NodeAddress(INTERNAL_IP, str(each)) for each in found])
    return Node(Metadata(name=name, labels=dict(labels)), status=status)


def lacking_families(config: str, nodes: Sequence[Node]) -> Iterator[str]:
    """The *nodes* without an address of a family of the VIPs of a unicast *config*, one line for each family."""
    instances = running_instances(config).values()
    for family in sorted({each.family for instance in instances for each in instance.carried}):
        having = {
            node.metadata.name for node in nodes if family in {each.family for each in node.addresses(INTERNAL_IP)}
        }
        if lacking := sorted({node.metadata.name for node in nodes} - having):
            result = "do not hold" if having else "use multicast for"
            remedy = f"give --node an IPv{family} address of each"
            yield f"nodes without an IPv{family} address {result} IPv{family} VIPs: {', '.join(lacking)}; {remedy}"
