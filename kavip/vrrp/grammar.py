"""
Grammars of values: what may follow a keyword, and the :class:`Line` that results.

keepalived accepts more than is safe: it ignores extra words, reads ``5x`` as 5, and a missing value ends the process.
So a value is accepted only if it is exactly one of the forms below; numbers are canonical decimals.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import ip_network
from typing import Final

from kavip.api.address import BITS, Address, read_address
from kavip.api.naming import is_interface
from kavip.vrrp.tokens import Tokens

NUMBER: Final = re.compile(r"(?!-0\b)-?(0|[1-9][0-9]{0,9})(\.[0-9]{1,6})?")
COMMAND_WORD: Final = re.compile(r"[A-Za-z0-9_.:/+=,-]{1,128}")

MOST_COMMAND: Final = 400
"""Characters of a program with its arguments: with its keyword it fits in one line (:data:`tokens.MAX_LINE`)."""
_WIDEST: Final = {4: 8, 6: 16}


@dataclass(frozen=True, slots=True)
class Line:
    """
    One line of a block: a keyword and its words.

    The words of *block* follow in braces, on a line of their own. With *quoted*, the words are one command.
    """

    keyword: str
    words: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    quoted: bool = False


@dataclass(frozen=True, slots=True)
class Value:
    """The grammar of a keyword's value: *read* returns the line, or None; *want* describes the valid values."""

    want: str
    read: Callable[[str, Tokens], Line | None]


def flag() -> Value:
    """A keyword without a value."""
    return Value('want an empty value ("")', lambda keyword, given: Line(keyword) if given.plain == "" else None)


def number(low: str, high: str, *, decimals: int = 0) -> Value:
    """A decimal from *low* to *high*."""
    fraction = f" with at most {decimals} decimals" if decimals else ", a whole number"

    def read(keyword: str, given: Tokens) -> Line | None:
        text = given.plain
        return Line(keyword, (text,)) if text and is_number(text, low, high, decimals=decimals) else None

    return Value(f"want {low} to {high}{fraction}", read)


def is_number(text: str, low: str, high: str, *, decimals: int = 0) -> bool:
    """Whether *text* is a canonical decimal from *low* to *high*."""
    if not NUMBER.fullmatch(text) or len(text.partition(".")[2]) > decimals:
        return False
    return Decimal(low) <= Decimal(text) <= Decimal(high)


def one_of(*values: str) -> Value:
    """One of *values*, each one word; "" stands for the keyword alone."""

    def read(keyword: str, given: Tokens) -> Line | None:
        return Line(keyword, given.words) if given.plain in values else None

    return Value(f"want {' or '.join(value or 'nothing' for value in values)}", read)


def pattern(expression: str, want: str) -> Value:
    """One word that matches *expression*."""
    wanted = re.compile(expression)

    def read(keyword: str, given: Tokens) -> Line | None:
        return Line(keyword, given.words) if given.plain and wanted.fullmatch(given.plain) else None

    return Value(want, read)


def either(first: Value, second: Value) -> Value:
    """A value of either grammar."""

    def read(keyword: str, given: Tokens) -> Line | None:
        return first.read(keyword, given) or second.read(keyword, given)

    return Value(f"{first.want}, or {second.want.removeprefix('want ')}", read)


def address_in(network: str) -> Value:
    """An address of *network*."""
    block = ip_network(network)
    low, high = int(block.network_address), int(block.broadcast_address)

    def read(keyword: str, given: Tokens) -> Line | None:
        address = _address(given.plain or "")
        if address is None or address.family != block.version or not low <= address.value <= high:
            return None
        return Line(keyword, (str(address),))

    return Value(f"want an address in {network}", read)


def path() -> Value:
    """An absolute path."""
    return pattern(r"/[A-Za-z0-9_.+/-]{1,200}", "want an absolute path of letters, digits, '.', '_', '+', '-' and '/'")


def command() -> Value:
    """An absolute path and its arguments, written in quotes so that keepalived reads one word."""

    def read(keyword: str, given: Tokens) -> Line | None:
        words = given.words
        fits = not given.braced and words and all(COMMAND_WORD.fullmatch(word) for word in words)
        short = len(" ".join(words)) <= MOST_COMMAND
        return Line(keyword, words, quoted=True) if fits and short and words[0].startswith("/") else None

    return Value(f"want an absolute path and plain arguments, at most {MOST_COMMAND} characters in all", read)


def tracked_interface() -> Value:
    """``{ NAME }`` or ``{ NAME weight N }``: a one-line block, which a JSON string can hold."""

    def read(keyword: str, given: Tokens) -> Line | None:
        if not given.braced or not given.words or not is_interface(given.words[0]):
            return None
        match given.words[1:]:
            case () | ("weight", _) as rest if not rest or is_number(rest[1], "-253", "253"):
                return Line(keyword, block=given.words)
        return None

    return Value("want { INTERFACE } or { INTERFACE weight -253..253 }", read)


def route() -> Value:
    """``{ NETWORK via ADDRESS dev NAME }`` or ``{ NETWORK dev NAME }``; very wide networks are refused."""

    def read(keyword: str, given: Tokens) -> Line | None:
        match given.words:
            case (network, "via", gateway, "dev", name):
                via = _address(gateway)
                fits = via is not None and via.family == _family(network)
            case (network, "dev", name):
                fits = _family(network) != 0
            case _:
                return None
        # "to" is keepalived's own word; without it agents would read the line as a VIP with its interface
        return Line(keyword, block=("to", *given.words)) if given.braced and fits and is_interface(name) else None

    return Value("want { NETWORK via ADDRESS dev INTERFACE }, of /8 (IPv6: /16) or longer, without host bits", read)


def rule() -> Value:
    """``{ from NETWORK table N preference N }``, or ``to``."""

    def read(keyword: str, given: Tokens) -> Line | None:
        match given.words:
            case ("from" | "to", network, "table", table, "preference", preference) if given.braced:
                known = is_number(table, "1", "252") and is_number(preference, "1", "32765")
                return Line(keyword, block=given.words) if known and _family(network) else None
        return None

    return Value("want { from|to NETWORK table 1..252 preference 1..32765 }, of /8 (IPv6: /16) or longer", read)


def _address(text: str) -> Address | None:
    """The address *text*, or None; letters may be upper case, any other spelling must be canonical."""
    address = read_address(text)
    return address if address is not None and str(address) == text.lower() else None


def _family(text: str) -> int:
    """The family of the network *text*; 0 if it is no network or too wide."""
    bare, _, prefix = text.partition("/")
    address = _address(bare)
    if address is None:
        return 0
    bits, widest = BITS[address.family], _WIDEST[address.family]
    if not is_number(prefix, str(widest), str(bits)) or address.value & ((1 << bits - int(prefix)) - 1):
        return 0
    return address.family
