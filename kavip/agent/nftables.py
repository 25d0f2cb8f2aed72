"""
kavip's tables of nftables, by the program ``nft``.

The program is the interface that nftables keeps stable, and it sends a whole input as one transaction. pyroute2 has
neither sets of ranges nor transactions of several objects.
"""

import subprocess
from collections.abc import Iterator
from ipaddress import ip_network
from typing import Any, Final

import msgspec

from kavip.agent.config.returnroutes import SET_PREFIX, group_of, table_name
from kavip.api.address import parse_address
from kavip.api.spans import Span
from kavip.errors import NftablesFailed

NFT: Final = "/usr/sbin/nft"
_TIMEOUT: Final = 10.0
_MOST_BYTES: Final = 200  # of an error message
_FAMILIES: Final = {"ip": 4, "ip6": 6}

Spans = tuple[Span, ...]


def apply(ruleset: str) -> None:
    """Make the changes of *ruleset* in one transaction; raises :class:`NftablesFailed`."""
    _run("-f", "-", ruleset=ruleset)


def listing(group: str) -> tuple[str, ...]:
    """The tables of *group* as ``nft`` lists them; raises :class:`NftablesFailed`."""
    return tuple(
        _run("-j", "list", "table", family, table_name(group))
        for family, name in _tables()
        if name == table_name(group)
    )


def other_groups(group: str) -> frozenset[str]:
    """The other groups than *group* that have tables; raises :class:`NftablesFailed`."""
    return frozenset(found for _, name in _tables() if (found := group_of(name)) not in ("", group))


def sets_of(group: str) -> dict[tuple[int, int], Spans]:
    """The addresses in the tables of *group*, by family and routing table; raises :class:`NftablesFailed`."""
    found: dict[tuple[int, int], Spans] = {}
    for text in listing(group):
        for each in _objects(text, "set"):
            number = str(each.get("name", "")).removeprefix(SET_PREFIX)
            if number.isdecimal() and each.get("family") in _FAMILIES:
                found[_FAMILIES[each["family"]], int(number)] = tuple(_spans(each.get("elem") or ()))
    return found


def _tables() -> list[tuple[str, str]]:
    """Family and name of each table of kavip."""
    tables = _objects(_run("-j", "list", "tables"), "table")
    found = [(str(each.get("family")), str(each.get("name"))) for each in tables]
    return sorted((family, name) for family, name in found if family in _FAMILIES and group_of(name))


def _objects(text: str, kind: str) -> list[dict[str, Any]]:
    try:
        content = msgspec.json.decode(text, type=dict[str, list[dict[str, Any]]])
    except msgspec.MsgspecError:
        return []
    return [each[kind] for each in content.get("nftables", ()) if isinstance(each.get(kind), dict)]


def _spans(elements: Any) -> Iterator[Span]:
    """The ranges of *elements*: an address, ``{"range": [first, last]}`` or ``{"prefix": {"addr", "len"}}``."""
    for each in elements:
        match each:
            case {"range": [first, last]}:
                yield Span(parse_address(first), parse_address(last))
            case {"prefix": {"addr": address, "len": length}}:
                network = ip_network(f"{address}/{length}")
                yield Span(parse_address(str(network[0])), parse_address(str(network[-1])))
            case _:
                yield Span(parse_address(str(each)), parse_address(str(each)))


def _run(*arguments: str, ruleset: str = "") -> str:
    try:
        done = subprocess.run(
            [NFT, *arguments],
            input=ruleset,
            capture_output=True,
            check=False,
            text=True,
            timeout=_TIMEOUT,
            env={"LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NftablesFailed(f"{NFT}: {getattr(error, 'strerror', None) or 'no answer'}") from error
    if done.returncode:
        line = (done.stderr.splitlines() or ["no message"])[0][:_MOST_BYTES]
        raise NftablesFailed(f"nft: {line}")
    return done.stdout
