"""A ledger of a leader whose clock only the test moves."""

from datetime import UTC, datetime, timedelta
from typing import Any

from kavip.api.address import parse_address
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, settle
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from tests.support.build import pool, service

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST = parse_address("192.0.2.128")
EDGE = pool("edge", "192.0.2.128/30", cooldown_seconds=60)


class LeaderLedger:
    """A ledger of a leader over *pools*, with a clock that only the test moves."""

    def __init__(self, *pools: Any) -> None:
        """Start at :data:`NOW`."""
        self.now = NOW
        self.pools = Pools.of(pools or (EDGE,))
        self.ledger = Ledger(self.pools)
        self.ledger.cooldown.lead(NOW)

    def see(self, *services: Service) -> None:
        """Observe *subjects* and enter their cool-downs."""
        for each in services:
            self.ledger.observe(each.key, each)
            self.ledger.cooldown.start(self.now)

    def delete(self, *keys: str) -> None:
        """Delete the Services *keys*."""
        for key in keys:
            self.ledger.observe(key, None)
            self.ledger.cooldown.start(self.now)

    def later(self, seconds: float) -> None:
        """Advance the clock by *seconds*, or set it back."""
        self.now += timedelta(seconds=seconds)
        self.ledger.cooldown.expire(self.now)

    def configure(self, *pools: Any) -> None:
        """Replace all pools."""
        self.pools = Pools.of(pools)
        self.ledger.configure(self.pools)

    def decided(self, subject: Service) -> Any:
        """What *subject* would get now."""
        return settle(subject, self.pools, self.ledger)

    def addresses_for(self, subject: Service) -> list[str]:
        """The addresses that *subject* would get now."""
        found = self.decided(subject)
        return [str(each) for each in found.addresses] if isinstance(found, Allocation) else []

    def cooldowns(self, name: str = "edge") -> list[tuple[str, str]]:
        """The address and the Service of each cool-down of the pool."""
        return [(str(cooling.address), cooling.service) for cooling in self.ledger.cooldown.of(name)]


def freed(*pools: Any, **more: Any) -> LeaderLedger:
    """A ledger in which ``shop/web`` has just freed the first address."""
    leader = LeaderLedger(*pools)
    leader.see(service("shop/web", holds=["192.0.2.128"], **more))
    leader.delete("shop/web")
    return leader
