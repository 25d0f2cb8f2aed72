"""
What keepalived-operator's text makes its daemons run.

Its pods go on while they are taken over one after the other, and a new pod beside them must speak as they do: who
advertises another list of addresses, another version or another interval is not heard, and two nodes become master. So
the text is read as keepalived reads it, whatever its layout, and what is not about that is passed over.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kavip.api.address import Address, read_address
from kavip.vrrp.grammar import is_interface

_INSTANCE: Final = "vrrp_instance"
_COMMENTS: Final = ("#", "!")
_INTERVAL: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3})?")
_PRIORITY: Final = 100
_PASSWORD_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """
    One ``vrrp_instance`` of the old text.

    *addresses* are what it advertises: those of the family of its first one, for keepalived drops the others. *peers*
    are those of that family; without any it is multicast. *priority* is the highest that a node may have.
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
class _Draft:
    name: str
    values: dict[str, str] = field(default_factory=dict)
    priorities: list[int] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    peers: list[Address] = field(default_factory=list)
    authenticated: bool = False


def read(text: str) -> tuple[Inherited, ...]:
    """The instances of *text* that its daemons run, by name; one without VRID or addresses is none."""
    drafts: list[_Draft] = []
    version = "2"
    for path, words in _statements(text):
        if path == ("global_defs",) and words[0] == "vrrp_version" and len(words) > 1:
            version = words[1]
        elif path[:1] == (_INSTANCE,) and drafts:
            _take(drafts[-1], path[1:], words)
        elif not path and words[0] == _INSTANCE and len(words) > 1:
            drafts.append(_Draft(words[1]))
    found = (_finished(draft, version) for draft in drafts)
    return tuple(sorted((each for each in found if each), key=lambda each: each.name))


def password(text: str) -> str | None:
    """The password that *text* holds in clear, as far as VRRP uses it; None: there is none."""
    for path, words in _statements(text):
        if path == (_INSTANCE, "authentication") and words[0] == "auth_pass" and len(words) > 1:
            return words[1][:_PASSWORD_BYTES]
    return None


def _statements(text: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every statement of *text* with the blocks around it; one that opens a block comes before what is in it."""
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


def _take(draft: _Draft, path: Sequence[str], words: list[str]) -> None:
    """One statement inside an instance."""
    match tuple(path):
        case ():
            keyword, *values = words[1:] if words[0].startswith("@") else words
            if keyword == "priority" and values and values[0].isdecimal():
                draft.priorities.append(int(values[0]))
            elif values:
                draft.values[keyword] = values[0]
        case ("virtual_ipaddress",):
            _add(draft.addresses, words[0])
        case ("unicast_peer",):
            _add(draft.peers, words[0])
        case ("authentication",) if words[0] == "auth_pass":
            draft.authenticated = len(words) > 1


def _add(addresses: list[Address], text: str) -> None:
    address = read_address(text.partition("/")[0])
    if address is not None and address not in addresses:
        addresses.append(address)


def _finished(draft: _Draft, version: str) -> Inherited | None:
    number = draft.values.get("virtual_router_id", "")
    if not draft.addresses or not number.isdecimal() or not int(number):
        return None
    family = draft.addresses[0].family
    interface, interval = draft.values.get("interface", ""), draft.values.get("advert_int", "")
    spoken = 3 if family == 6 or draft.values.get("version", version) == "3" else 2
    return Inherited(
        name=draft.name,
        router_id=int(number),
        family=family,
        interface=interface if is_interface(interface) else "",
        version=spoken,
        interval=interval if _INTERVAL.fullmatch(interval) else "1",
        addresses=tuple(sorted(each for each in draft.addresses if each.family == family)),
        peers=frozenset(each for each in draft.peers if each.family == family),
        authenticated=draft.authenticated and spoken == 2,
        priority=max(draft.priorities, default=_PRIORITY),
    )
