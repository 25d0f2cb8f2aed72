"""
Ranges of addresses: parsed once, at the edge, then integers in sorted tuples.

netaddr reads and writes CIDRs. The ranges between are integers: a /8 of IPv6 costs as little as a /32 of IPv4.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from netaddr import IPNetwork, spanning_cidr

from kavip.api.address import BITS, WANTED, Address, parse_address
from kavip.errors import BadInput

FAMILIES: Final = (4, 6)
FAMILY_NAMES: Final = {4: "IPv4", 6: "IPv6"}
_ABOVE_ALL: Final = 1 << 129
_REMEDY: Final = "want a CIDR or first-last, such as 192.0.2.128/28, 192.0.2.10-192.0.2.20 or 2001:db8::/120"


class Range(NamedTuple):
    """The addresses of *family* from *first* to *last*, both included. Sorts by family, then by place."""

    family: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """How many addresses it holds."""
        return self.last - self.first + 1

    def holds(self, address: Address) -> bool:
        """Whether *address* is one of them."""
        return self.family == address.family and self.first <= address.value <= self.last

    def overlaps(self, other: "Range") -> bool:
        """Whether the two have an address in common."""
        return self.family == other.family and self.first <= other.last and other.first <= self.last

    def __str__(self) -> str:
        """A CIDR if the range is one, else ``first-last``; a single address stands alone."""
        first, last = (Address(self.family, value) for value in (self.first, self.last))
        if self.size == 1:
            return str(first)
        cidr = spanning_cidr([str(first), str(last)])
        return f"{first}/{cidr.prefixlen}" if cidr.size == self.size else f"{first}-{last}"


def parse_range(text: str, field: str = "") -> Range:
    """
    Read a CIDR, ``first-last`` or one bare address; blanks around the parts are fine.

    Raises :class:`BadInput` naming *field*: for host bits, a reversed range, two families, a zone.
    """
    if "/" in text:
        return _parse_cidr(text, field)
    parts = [part.strip() for part in text.split("-")]
    if len(parts) > len(("first", "last")) or not all(parts):
        raise BadInput(field, text, _REMEDY)
    first, last = (_parse_part(part, text, field) for part in (parts[0], parts[-1]))
    if first.family != last.family:
        raise BadInput(field, text, "want both ends of one family")
    if last < first:
        raise BadInput(field, text, f"is reversed; write {last}-{first}")
    return Range(first.family, first.value, last.value)


@lru_cache(256)  # admission asks for the same few CIDRs for each external IP
def read_network(text: str) -> Range | None:
    """Read a CIDR of OpenShift or Kubernetes, without its host bits; None if it is malformed."""
    try:
        return _span(_network(text, ""))
    except BadInput:
        return None


def subtract(ranges: Iterable[Range], holes: Iterable[Range]) -> tuple[Range, ...]:
    """
    *ranges* without *holes*, sorted. The ranges must be disjoint; holes may overlap.

    Not netaddr's IPSet: it needs 60 ms for 64 ranges and 256 holes (this function: 0.2 ms), and joins adjacent ranges.
    """
    cuts = merged(holes)
    result: list[Range] = []
    start = 0
    for family, begin, last in sorted(ranges):
        first, at = begin, start
        while at < len(cuts) and (cuts[at].family, cuts[at].first) <= (family, last):
            cut = cuts[at]
            if cut.family == family and cut.last >= first:
                if cut.first > first:
                    result.append(Range(family, first, cut.first - 1))
                first = cut.last + 1
            at += 1
        # a hole may reach into the next range: only what ends before this one is done with
        while start < len(cuts) and (cuts[start].family, cuts[start].last) <= (family, last):
            start += 1
        if first <= last:
            result.append(Range(family, first, last))
    return tuple(result)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """*ranges* sorted; those that overlap as one."""
    result: list[Range] = []
    for each in sorted(ranges):
        if result and result[-1].overlaps(each):
            result[-1] = result[-1]._replace(last=max(result[-1].last, each.last))
        else:
            result.append(each)
    return result


def find(ranges: Sequence[Range], address: Address) -> Range | None:
    """The one of *ranges*, sorted and disjoint, that holds *address*; in O(log n)."""
    family, value = address
    at = bisect_right(ranges, (family, value, _ABOVE_ALL))
    if not at:
        return None
    span = ranges[at - 1]
    return span if span[0] == family and value <= span[2] else None


def first_overlap(ranges: Sequence[Range], wanted: Range) -> Range | None:
    """The lowest of *ranges*, sorted and disjoint, that overlaps *wanted*; in O(log n)."""
    at = bisect_right(ranges, (wanted.family, wanted.first, _ABOVE_ALL))
    return next((each for each in ranges[max(at - 1, 0) : at + 1] if each.overlaps(wanted)), None)


def count_families(families: Sequence[int]) -> dict[int, int]:
    """How often each of *families* occurs, in order; for few of them faster than a Counter."""
    return {family: families.count(family) for family in families}


def is_buggy(address: Address) -> bool:
    """Whether careless equipment may drop *address*: IPv4 that ends in .0 or .255."""
    return address.family == min(FAMILIES) and address.value & 255 in (0, 255)


def count_buggy(span: Range) -> int:
    """How many addresses of *span* are buggy, without looking at each."""
    if span.family != min(FAMILIES):
        return 0
    return _buggy_up_to(span.last) - _buggy_up_to(span.first - 1)


def _buggy_up_to(value: int) -> int:
    return (value // 256 + 1) + (value + 1) // 256


def _parse_part(part: str, text: str, field: str) -> Address:
    try:
        return parse_address(part)
    except BadInput as error:
        raise BadInput(field, text, _REMEDY if error.remedy == WANTED else error.remedy) from None


def _parse_cidr(text: str, field: str) -> Range:
    network = _network(text, field)
    if network.value != network.first:
        raise BadInput(field, text, f"has host bits set; write {network.cidr} or {network.ip}")
    return _span(network)


def _network(text: str, field: str) -> IPNetwork:
    """A CIDR with its host bits."""
    head, _, length = (part.strip() for part in text.partition("/"))
    address = _parse_part(head, text, field)
    bits = BITS[address.family]
    # netaddr also takes a net mask (/255.255.255.0), a sign and digits of other scripts
    if not (length.isascii() and length.isdigit() and len(length) <= len("128") and int(length) <= bits):
        raise BadInput(field, text, f"want a prefix length from 0 to {bits}")
    return IPNetwork(f"{address}/{length}")


def _span(network: IPNetwork) -> Range:
    return Range(network.version, network.first, network.last)


EVERYTHING: Final = tuple(Range(family, 0, (1 << bits) - 1) for family, bits in BITS.items())
"""All addresses."""


LINK_LOCAL: Final = "link-local"
UNUSABLE: Final = tuple(
    (_span(IPNetwork(cidr)), what)
    for cidr, what in (
        ("0.0.0.0/32", "the unspecified address"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", LINK_LOCAL),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved (240.0.0.0/4)"),
        ("::/128", "the unspecified address"),
        ("::1/128", "loopback"),
        ("fe80::/10", LINK_LOCAL),
        ("ff00::/8", "multicast"),
        ("::ffff:0:0/96", "IPv4 written as IPv6"),  # no such address is parsed, but a range may extend over them
    )
)
"""What no pool may hold."""
