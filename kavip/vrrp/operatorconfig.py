"""
What keepalived-operator's configuration makes its daemons run.

Old pods keep running while they are replaced one after the other, and a new pod beside them must use the same address
list, version and interval. Otherwise they do not hear each other, and two nodes become master. So the text is read as
keepalived reads it, in any layout; statements about other things are skipped.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kavip.api.address import Address, read_address
from kavip.api.naming import is_interface
from kavip.vrrp.timing import LONGEST

_INSTANCE: Final = "vrrp_instance"
_COMMENTS: Final = ("#", "!")
_INTERVAL: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")
_NUMBER: Final = re.compile(r"[0-9]{1,3}")
_PRIORITY: Final = 100
_PASSWORD_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorInstance:
    """
    One ``vrrp_instance`` of keepalived-operator.

    *addresses* are the advertised ones: those of the family of the first, because keepalived drops the others. *peers*
    are those of the same family; without peers the instance is multicast. *priority* is the highest of any node.
    """

    name: str
    router_id: int
    family: int
    interface: str
    version: int
    interval: str
    addresses: tuple[Address, ...]
    peers: frozenset[Address]
    authenticated: bool
    priority: int


@dataclass(slots=True)
class _Block:
    """What the text says of one instance, so far."""

    name: str
    values: dict[str, str] = field(default_factory=dict)
    priorities: list[int] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    peers: list[Address] = field(default_factory=list)
    authenticated: bool = False


def read_instances(text: str) -> tuple[OperatorInstance, ...]:
    """The instances of *text*, sorted by name; one without a VRID or addresses does not run and is skipped."""
    found: list[_Block] = []
    version = "2"
    for path, words in _statements(text):
        if path == ("global_defs",) and words[0] == "vrrp_version" and len(words) > 1:
            version = words[1]
        elif path[:1] == (_INSTANCE,) and found:
            _take(found[-1], path[1:], words)
        elif not path and words[0] == _INSTANCE and len(words) > 1:
            found.append(_Block(words[1]))
    instances = (_instance(each, version) for each in found)
    return tuple(sorted((each for each in instances if each), key=lambda each: each.name))


def read_password(text: str) -> str | None:
    """The clear-text password in *text*, cut to the bytes that VRRP uses; None if there is none."""
    for path, words in _statements(text):
        if path == (_INSTANCE, "authentication") and words[0] == "auth_pass" and len(words) > 1:
            return words[1][:_PASSWORD_BYTES]
    return None


def _statements(text: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each statement of *text* with its enclosing blocks; a statement that opens a block comes before its content."""
    path: list[str] = []
    for line in text.splitlines():
        words: list[str] = []
        for word in _bare(line).replace("{", " { ").replace("}", " } ").split():
            if word == "{":
                if words:
                    yield tuple(path), words
                path.append(words[0] if words else "")
                words = []
            elif word == "}":
                if words:
                    yield tuple(path), words
                words = []
                del path[-1:]
            else:
                words.append(word)
        if words:
            yield tuple(path), words


def _bare(line: str) -> str:
    """*line* without its comment and without the quotes of words."""
    cut = min((at for mark in _COMMENTS if (at := line.find(mark)) >= 0), default=len(line))
    return line[:cut].replace('"', " ")


def _take(block: _Block, path: Sequence[str], words: list[str]) -> None:
    """Read one statement inside an instance."""
    match tuple(path):
        case ():
            keyword, *values = words[1:] if words[0].startswith("@") else words
            if keyword == "priority" and values and _NUMBER.fullmatch(values[0]):
                block.priorities.append(int(values[0]))
            elif values:
                block.values[keyword] = values[0]
        case ("virtual_ipaddress",):
            _add(block.addresses, words[0])
        case ("unicast_peer",):
            _add(block.peers, words[0])
        case ("authentication",) if words[0] == "auth_pass":
            block.authenticated = len(words) > 1


def _add(addresses: list[Address], text: str) -> None:
    address = read_address(text.partition("/")[0])
    if address is not None and address not in addresses:
        addresses.append(address)


def _instance(block: _Block, version: str) -> OperatorInstance | None:
    number = block.values.get("virtual_router_id", "")
    if not block.addresses or not _NUMBER.fullmatch(number) or not int(number):
        return None
    family = block.addresses[0].family
    interface, interval = block.values.get("interface", ""), block.values.get("advert_int", "")
    used = 3 if family == 6 or block.values.get("version", version) == "3" else 2
    return OperatorInstance(
        name=block.name,
        router_id=int(number),
        family=family,
        interface=interface if is_interface(interface) else "",
        version=used,
        interval=interval if _INTERVAL.fullmatch(interval) and 0 < float(interval) <= LONGEST else "1",
        addresses=tuple(sorted(each for each in block.addresses if each.family == family)),
        peers=frozenset(each for each in block.peers if each.family == family),
        authenticated=block.authenticated and used == 2,
        priority=max(block.priorities, default=_PRIORITY),
    )
