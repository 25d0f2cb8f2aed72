"""
The way back of replies (``spec.routing`` of a VIPPool): the mark of connections, and the routing tables it may select.

A node marks the connections that enter by a pool's interface, and routes the replies of marked connections by the
pool's table. Packets and connections have one mark of 32 bits, which all programs of the node share:

========================= ====================================================================================
program                   bits
========================= ====================================================================================
kube-proxy                ``0x0000c000``: masquerade and drop
portmap (CNI plugins)     ``0x00002000``
Calico                    ``0xffff0000`` (``iptablesMarkMask``)
Cilium                    ``0x00000f00`` and, with these set, an identity in ``0xffff00ff``; ``0x0000f000`` with IPsec
Antrea                    ``0x80000000``, and ``0x000000ff`` from the route of a packet to its SNAT
AWS VPC CNI               ``0x00000080``
kube-router, Weave Net    ``0x00030000``
Tailscale, Submariner     ``0x00ff0000``, ``0x000c0000``
OVN-Kubernetes            the whole mark: ``0x001745ec``, ``0x000003f0``
========================= ====================================================================================

kavip's bits are :data:`MASK`: :data:`FLAG`, which is in none of them without IPsec of Cilium, and seven bits that hold
the remainder of the table's number. So the mark follows from the table, and tables with the same remainder cannot be
used together. Packets have the mark only until they are routed: no tunnel, no SNAT and no queue sees it.
"""

from typing import Final

FLAG: Final = 0x1000
MASK: Final = 0x107F

KERNEL_TABLES: Final = frozenset({0, 253, 254, 255})
"""Unspecified, default, main and local."""
MOST_TABLE: Final = 2**32 - 1
MOST_MARKS: Final = MASK - FLAG + 1
MOST_RANGES: Final = 256
"""Ranges of one pool, as in its CRD."""


def mark_of(table: int) -> int:
    """The mark of connections whose replies are routed by *table*."""
    return FLAG | table % MOST_MARKS


def is_table(number: int) -> bool:
    """Whether *number* is that of a routing table that a pool may use."""
    return 0 < number <= MOST_TABLE and number not in KERNEL_TABLES
