"""
What all nodes must agree on for one VRRP instance, and what of it runs.

Where two nodes differ in one of these, each becomes master: a change of them cannot roll from node to node. The text
that is published is the record of what runs. A backup of version 3 learns a longer interval from the master, but one
that has been told a shorter one before the master does not wait for it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Final

from kavip.api.address import Address, read_address
from kavip.memo import KEEPS_NOTHING, Memory
from kavip.vrrp.instances import Instance
from kavip.vrrp.virtualips import VirtualIP, addresses_of, is_anchor

_OPEN: Final = re.compile(r"vrrp_instance (\S+) \{\n")
_CLOSE: Final = "\n}"
_ROUTER_ID: Final = re.compile(r"^    virtual_router_id ([0-9]{1,3})$", re.MULTILINE)
_INTERFACE: Final = re.compile(r"^    interface (\S+)$", re.MULTILINE)
_VERSION: Final = re.compile(r"^    version ([23])$", re.MULTILINE)
_INTERVAL: Final = re.compile(r"^    advert_int ([0-9.]+)$", re.MULTILINE)
_ADDRESSES: Final = re.compile(r"^    virtual_ipaddress(_excluded)? \{\n(.*?)^    \}", re.MULTILINE | re.DOTALL)
_ADDRESS: Final = re.compile(r"^        ([0-9A-Fa-f:.]+)/([0-9]{1,3}) dev (\S+)$", re.MULTILINE)
_UNICAST: Final = "\n    unicast_peer {\n"
_AUTHENTICATED: Final = "\n    # kavip: authentication\n"


@dataclass(frozen=True, slots=True)
class Identity:
    """
    What nodes must agree on; of the *anchor* its address and its interface. *also*: what is advertised beside it.
    """

    router_id: int
    interface: str
    version: int
    interval: str
    unicast: bool
    authenticated: bool
    anchor: VirtualIP
    also: tuple[VirtualIP, ...] = ()


@dataclass(frozen=True)
class Running:
    """One instance as a text has it; *virtual_ips*: all but an anchor that is nobody's VIP."""

    name: str
    identity: Identity
    virtual_ips: tuple[VirtualIP, ...]

    @cached_property
    def carried(self) -> frozenset[Address]:
        """The addresses of the VIPs."""
        return addresses_of(self.virtual_ips)


NOTHING: Final[Mapping[str, Running]] = MappingProxyType({})


def agree(one: Identity, other: Identity) -> bool:
    """Whether a node with *one* and a node with *other* hear each other."""
    return _essence(one) == _essence(other)


def identity_of(instance: Instance) -> Identity:
    """What nodes must agree on for *instance*."""
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


def identities_of(text: str, memory: Memory = KEEPS_NOTHING) -> Mapping[str, Running]:
    """What runs where *text* does, by instance; texts and instances that kavip did not write have none."""
    return memory.last(_identities, "", text, memory)


def _identities(text: str, memory: Memory) -> Mapping[str, Running]:
    found = (memory.last(_running, name, name, block) for name, block in _blocks(text))
    return MappingProxyType({each.name: each for each in found if each is not None})


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """The instances of *text*, each with what stands between its braces."""
    place = 0
    while match := _OPEN.search(text, place):
        place = match.end()
        if match.start() and text[match.start() - 1] != "\n":
            continue
        if (end := text.find(_CLOSE, place - 1)) < 0:
            return  # nor does any that comes after it
        yield match[1], text[place : end + 1]
        place = end


def _essence(identity: Identity) -> Identity:
    anchor, *also = (vip._replace(prefix=0) for vip in (identity.anchor, *identity.also))
    return replace(identity, anchor=anchor, also=tuple(sorted(also)))


def _running(name: str, block: str) -> Running | None:
    router_id, interface = _ROUTER_ID.search(block), _INTERFACE.search(block)
    version, interval = _VERSION.search(block), _INTERVAL.search(block)
    lists = {match[1] or "": _virtual_ips(match[2]) for match in _ADDRESSES.finditer(block)}
    if not (router_id and interface and version and interval and lists.get("")):
        return None
    anchor = lists[""][0]
    identity = Identity(
        int(router_id[1]),
        interface[1],
        int(version[1]),
        interval[1],
        _UNICAST in block,
        _AUTHENTICATED in block,
        anchor,
        lists[""][1:],
    )
    every = (*lists[""], *lists.get("_excluded", ()))
    return Running(name, identity, tuple(each for each in every if not is_anchor(each.address)))


def _virtual_ips(block: str) -> tuple[VirtualIP, ...]:
    found = (_virtual_ip(*parts) for parts in _ADDRESS.findall(block))
    return tuple(each for each in found if each is not None)


@lru_cache(maxsize=1 << 14)  # from one text to the next most stay
def _virtual_ip(text: str, prefix: str, interface: str) -> VirtualIP | None:
    address = read_address(text)
    return VirtualIP(address, int(prefix), interface) if address is not None else None
