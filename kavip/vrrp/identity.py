"""
The identity of a VRRP instance: what all its nodes must agree on.

Two nodes that differ in it do not hear each other, and both become master. So a change of it cannot roll from node to
node. In version 3 a backup normally learns the interval from the master, but a backup that is configured with a
shorter interval than the master's does not wait for the master.
"""

from dataclasses import dataclass, replace

from kavip.vrrp.instances import Instance
from kavip.vrrp.virtualips import VirtualIP


@dataclass(frozen=True, slots=True)
class Identity:
    """
    What nodes must agree on, including address and interface of the *anchor*. *also* is advertised with the anchor.
    """

    router_id: int
    interface: str
    version: int
    interval: str
    unicast: bool
    authenticated: bool
    anchor: VirtualIP
    also: tuple[VirtualIP, ...] = ()


def identity_of(instance: Instance) -> Identity:
    """The identity of *instance*."""
    return Identity(
        instance.router_id,
        instance.interface,
        instance.version,
        instance.interval,
        bool(instance.peers),
        instance.authenticated,
        instance.anchor,
        instance.also,
    )


def agree(one: Identity, other: Identity) -> bool:
    """Whether a node with *one* and a node with *other* hear each other."""
    return one == other or _comparable(one) == _comparable(other)  # mostly they are equal


def _comparable(identity: Identity) -> Identity:
    """*identity* without what nodes need not agree on: prefix lengths, and the order of addresses."""
    anchor, *also = (vip._replace(prefix=0) for vip in (identity.anchor, *identity.also))
    return replace(identity, anchor=anchor, also=tuple(sorted(also)))
