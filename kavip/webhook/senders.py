"""
The kinds of senders on the webhook's port.

The kinds have equal shares of the connections (:mod:`kavip.http.shares`). So other clients, however many addresses they
have, do not take the shares of API servers and nodes. Nodes count because an API server may call with the address of
another interface of its node; other clients get a share because an API server may call by way of a pod (konnectivity).
"""

from collections.abc import Callable
from enum import StrEnum

from kavip import names
from kavip.api.address import read_address
from kavip.snapshot import Snapshot


class SenderKind(StrEnum):
    """Whose address a sender has."""

    API_SERVER = "API server"
    NODE = "Node"
    OTHER = "other"


def sender_kinds(snapshot: Snapshot) -> Callable[[str], SenderKind]:
    """A function from the address of a client to its kind, by the objects in *snapshot*."""

    def kind_of(peer: str) -> SenderKind:
        address = read_address(peer)
        owners = snapshot.ledger.owners(address) if address is not None else frozenset()
        if names.API_SERVER in owners:
            return SenderKind.API_SERVER
        if any(each.startswith(f"{names.NODE} ") for each in owners):
            return SenderKind.NODE
        return SenderKind.OTHER

    return kind_of
