"""
Keeps the node's interfaces free of addresses that a daemon left behind.

A record names every VIP that a daemon of this pod may have put anywhere; it is written before the daemon can.
"""

import asyncio
from typing import Final

import structlog

from kavip.agent import netlink
from kavip.agent.config.facts import Facts, leftovers
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.api.address import Address, read_address
from kavip.vrrp.virtualips import VirtualIP

log = structlog.get_logger()

_MOST: Final = 20
"""Addresses that a line of the log names."""


class Sweeper:
    """One node's interfaces; *removed* counts the addresses that were taken off."""

    def __init__(self, node: str, node_ip: Address | None, files: RunDirectory) -> None:
        self._node, self._node_ip, self._files = node, node_ip, files
        self.removed = 0

    async def facts(self, reach: str = "") -> Facts:
        """What the node is now, and how it reaches the address *reach*."""
        interfaces, held, route = await netlink.look(read_address(reach))
        ours = await asyncio.to_thread(self._files.load_record)
        return Facts(self._node, self._node_ip, interfaces, held, ours, route, str(self._files.tracks))

    async def expect(self, virtual_ips: frozenset[VirtualIP]) -> None:
        """Record that a daemon may put *virtual_ips* somewhere."""
        record = await asyncio.to_thread(self._files.load_record)
        await asyncio.to_thread(self._files.save_record, record | virtual_ips)

    async def sweep(self, facts: Facts, *, wanted: frozenset[VirtualIP]) -> None:
        """With no daemon there: take off what one left, *wanted* or not."""
        await self._remove(leftovers(facts, wanted=wanted, running=frozenset()))

    async def settle(self, running: frozenset[VirtualIP]) -> None:
        """Beside a daemon that has *running*: take off what else is recorded, and shorten the record."""
        facts = await self.facts()
        if facts.ours - running:
            await self._remove(leftovers(facts, wanted=frozenset(), running=running))
            await asyncio.to_thread(self._files.save_record, running)

    async def _remove(self, found: tuple[VirtualIP, ...]) -> None:
        if not found:
            return
        await netlink.remove(found)
        shown = ", ".join(f"{each} on {each.interface}" for each in found[:_MOST])
        log.warning("removed addresses left behind", count=len(found), addresses=shown)
        self.removed += len(found)
