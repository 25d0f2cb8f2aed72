"""
keepalived's dump: the JSON about its instances that it writes upon a signal.

It holds the VRRP password too; that field is never decoded.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from kavip.agent.config.model import ParsedConfig
from kavip.api.address import Address, read_address

STATES: Final = ("INIT", "BACKUP", "MASTER", "FAULT")


class Stats(msgspec.Struct, frozen=True, gc=False):
    """The counters of one instance since keepalived started."""

    advert_rcvd: int = 0
    advert_sent: int = 0
    become_master: int = 0
    release_master: int = 0
    packet_len_err: int = 0
    advert_interval_err: int = 0
    ip_ttl_err: int = 0
    invalid_type_rcvd: int = 0
    addr_list_err: int = 0
    invalid_authtype: int = 0
    authtype_mismatch: int = 0
    auth_failure: int = 0
    pri_zero_rcvd: int = 0
    pri_zero_sent: int = 0

    @property
    def unauthenticated(self) -> int:
        """Adverts that were not accepted because of their password, or because they have none, or should have none."""
        return self.invalid_authtype + self.authtype_mismatch + self.auth_failure


class Data(msgspec.Struct, frozen=True, gc=False):
    """One instance, without its counters."""

    iname: str
    vrid: int
    state: int
    base_priority: int = 0
    effective_priority: int = 0
    last_transition: float = 0.0
    ifp_ifname: str = ""
    garp_delay: int = 0
    vips: list[str] = []
    evips: list[str] = []

    @property
    def state_name(self) -> str:
        """MASTER, BACKUP, FAULT or INIT."""
        return STATES[self.state] if 0 <= self.state < len(STATES) else "INIT"

    @property
    def family(self) -> int:
        """4 or 6, by the first address."""
        return 6 if self.vips and ":" in self.vips[0].split(" ", 1)[0] else 4

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Its VIPs, sorted: those that it advertises, and those in virtual_ipaddress_excluded."""
        return addresses_of((*self.vips, *self.evips))


class Entry(msgspec.Struct, frozen=True, gc=False):
    """One instance of a dump."""

    data: Data
    stats: Stats = Stats()


Dump = tuple[Entry, ...]


def addresses_of(texts: Iterable[str]) -> tuple[Address, ...]:
    """The addresses in *texts* such as ``ADDRESS/PREFIX dev ...``, sorted."""
    found = (read_address(text.split(" ", 1)[0].partition("/")[0]) for text in texts)
    return tuple(sorted(address for address in found if address))


def decode(content: bytes) -> Dump | None:
    """The instances in *content*, sorted by name; None while keepalived is still writing."""
    try:
        entries = msgspec.json.decode(content, type=list[Entry])
    except msgspec.DecodeError:
        return None
    return tuple(sorted(entries, key=lambda entry: entry.data.iname))


def shows(dump: Dump, configuration: ParsedConfig) -> bool:
    """Whether *dump* holds the instances of *configuration*, as far as a dump shows them."""
    found = [(each.data.iname, each.data.vrid, each.data.base_priority, each.data.addresses) for each in dump]
    wanted = [
        (each.name, each.router_id, each.priority, tuple(sorted(vip.address for vip in each.virtual_ips)))
        for each in configuration.instances
    ]
    return found == wanted
