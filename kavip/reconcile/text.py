"""
Text that the messages of several conditions share.
"""

from collections.abc import Sequence
from typing import Final

_NAMED: Final = 3  # nodes and addresses that a message names before it counts the rest


def left_out(interface: str, nodes: Sequence[str]) -> str:
    """That *nodes* take no part in what needs *interface*."""
    return f"left out, because interface {interface} is missing there: {few(nodes)}"


def few(texts: Sequence[str]) -> str:
    """*texts* for a message: the first ones by name, the rest counted."""
    if len(texts) == 1:
        return texts[0]
    rest = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def unrouted(pool: str, nodes: Sequence[str]) -> str:
    """The note of a condition that *nodes* do not route the replies of *pool* by its gateway."""
    return f"replies of VIPPool {pool} are not routed by its gateway on {few(nodes)}"
