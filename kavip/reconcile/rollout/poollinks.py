"""
What the nodes of a group need of pools besides the text: their interfaces, and the way back of replies.

A route that is new, or not needed any more, may roll from node to node: it concerns no VIP that runs. If it changes for
a VIP that runs, all nodes change it at one instant, as they do with the interface.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from kavip.api.address import Address
from kavip.api.agentconfig import ReturnRoute
from kavip.api.spans import read_spans


@dataclass(frozen=True, slots=True)
class PoolLinks:
    """The *interfaces* that pools name for VIPs of a text, sorted; *routes*: the way back of replies, by pool."""

    interfaces: tuple[str, ...] = ()
    routes: tuple[ReturnRoute, ...] = ()

    @property
    def size(self) -> int:
        """The bytes of the routes in ``agent.json``."""
        return len(msgspec.json.encode(self.routes)) if self.routes else 0

    def rolled(self, wanted: "PoolLinks", stays: Callable[[ReturnRoute], bool]) -> "PoolLinks":
        """
        These links with those routes of *wanted* that may roll from node to node.

        *stays*: whether a VIP of the route runs, and is to run on.
        """
        before, after = ({route.pool: route for route in each.routes} for each in (self, wanted))
        found: list[ReturnRoute] = []
        for pool in sorted(before.keys() | after.keys()):
            old, new = before.get(pool), after.get(pool)
            if old is not None and new is not None:
                found.append(new if _way(old) == _way(new) else old)
            elif old is not None and stays(old):
                found.append(old)
            elif new is not None and not stays(new):
                found.append(new)
        return replace(wanted, routes=tuple(found))


NO_LINKS: Final = PoolLinks()


def is_routed(addresses: Iterable[Address], route: ReturnRoute) -> bool:
    """Whether *route* concerns the replies of one of *addresses*."""
    spans = read_spans(route.addresses)
    return any(each in spans for each in addresses)


def _way(route: ReturnRoute) -> ReturnRoute:
    """*route* without the addresses that it may concern."""
    return msgspec.structs.replace(route, addresses=())
