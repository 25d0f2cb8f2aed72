"""On which interface of the nodes the pool of an address puts it, and by which gateway its replies leave."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kavip.api.address import Address
from kavip.snapshot import Snapshot


class AddressPlace(NamedTuple):
    """*address* is on *interface*, as *pool* says; *gateway*: "" if its replies leave as the nodes' other packets."""

    address: Address
    pool: str
    interface: str
    gateway: str = ""
    table: int = 0


def places_of(addresses: Iterable[Address], snapshot: Snapshot) -> Iterator[AddressPlace]:
    """The places of those *addresses* that are not on the interface of their group, sorted."""
    for address in sorted(set(addresses)):
        if found := snapshot.interface_of(address):
            pool = snapshot.parsed_pools.read(found.pool)
            routing = pool.routing if pool else None
            gateways = [str(each) for each in routing.gateways if each.family == address.family] if routing else []
            table = routing.table if routing and gateways else 0
            yield AddressPlace(address, found.pool, found.interface, next(iter(gateways), ""), table)
