"""
The packed notation of a group's text, for a group with thousands of VIPs: its gzip, as base64.

Each VIP is a line. With 20,000 of them on 200 nodes a text has 1,041 KB in full and 710 KB in the compact notation,
which the API server, etcd and every kubelet get again with each change. Packed it has 115 KB (``python -m
bench.render``), and a ConfigMap holds twice as many VIPs as a compact one. A text is packed only where it is long,
because people read shorter ones with ``kubectl``. The first line of a packed text says how to read the rest.

The gzip has parts that do not refer to each other, so that after a change of one VIP mostly one part is compressed
again.

What is packed may be in the compact notation (:mod:`kavip.vrrp.compact`). Agents read both before anything else, byte
for byte: hashes, and what keepalived reads, do not depend on the notation.
"""

import base64
import binascii
import gzip
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kavip.memo import KEEPS_NOTHING, Memory, Recent, recent
from kavip.vrrp import compact
from kavip.vrrp.compact import Unreadable

MARKER: Final = "# kavip: packed; to read it: sed 1d | base64 -d | gunzip\n"
"""The first line of a text in this notation."""

MOST_UNPACKED: Final = 2_000_000
"""Bytes of the largest text that is packed or unpacked: it has fewer VIPs than the controller reads of an agent."""

_FASTEST: Final = 1
_SMALL: Final = (
    4  # a tenth less than the fastest in twice its time; the smallest saves a tenth more in eight times that
)
_GZIP: Final = 31  # zlib's wbits for a gzip header and no other
_DEFLATE: Final = -15  # for none

_PART: Final = 1 << 15
"""Characters after which a part ends with the next instance. Shorter parts need more bytes, longer ones more time."""
_NEXT: Final = "\nvrrp_instance "
_HEADER: Final = bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 4, 255])  # of a gzip: without name and time, fastest, any system
_LAST: Final = bytes([3, 0])  # the last block of deflate, which is empty
_LINE: Final = 76  # characters of a line of base64 (RFC 2045)


@dataclass(frozen=True, slots=True)
class _Part:
    """
    A part of a text, from *begin* to *end*, *deflated*; *size* is its bytes in UTF-8.

    *crc* is that of all parts up to its end, *before* that of the parts before it.
    """

    begin: int
    end: int
    deflated: bytes
    size: int
    before: int
    crc: int


@dataclass(slots=True)
class _LastText:
    """The *text* that was packed last, and its *parts* by their first lines."""

    text: str = ""
    parts: Mapping[str, _Part] = field(default_factory=dict)

    def part_at(self, text: str, begin: int) -> _Part | None:
        """The part of *text* from *begin* on, if this text has it too."""
        part = self.parts.get(_first_line(text, begin))
        if part is None or not text.startswith(self.text[part.begin : part.end], begin):
            return None
        length = part.end - part.begin
        end = begin + length
        is_whole = end == len(text) or (length > _PART and text.startswith(_NEXT, end - 1))
        return replace(part, begin=begin, end=end) if is_whole else None


_PACKED: Final = Recent[str](8)  # the text that a group has now, and the next one: a plan packs each of them again
_UNPACKED: Final = Recent[str](8)


def pack(text: str, memory: Memory = KEEPS_NOTHING) -> str:
    """
    *text* in the notation: the same bytes for the same text and version of zlib.

    Only parts are compressed that the text before did not have. *memory* keeps that one. The result is kept for all who
    pack this text.
    """
    if (packed := _PACKED.get(text)) is None:
        encoded = binascii.b2a_base64(_gzip(text, memory), newline=False).decode()
        lines = [encoded[begin : begin + _LINE] for begin in range(0, len(encoded), _LINE)]
        packed = _PACKED.keep(text, "\n".join([MARKER.rstrip(), *lines, ""]))
        _UNPACKED.keep(packed, text)  # it comes back from the API server
    return packed


def _gzip(text: str, memory: Memory) -> bytes:
    """The gzip of *text* (RFC 1952): no part refers to another one (RFC 1951), so they can follow one another."""
    last, found, place, crc = memory.state(_LastText), list[_Part](), 0, 0
    while place < len(text):
        found.append(_part(text, place, crc, last))
        place, crc = found[-1].end, found[-1].crc
    last.text, last.parts = text, {_first_line(text, each.begin): each for each in found}
    end = struct.pack("<LL", crc, sum(each.size for each in found))
    return b"".join([_HEADER, *(each.deflated for each in found), _LAST, end])


def _first_line(text: str, begin: int) -> str:
    return text[begin : text.find("\n", begin) + 1]


def _part(text: str, begin: int, crc: int, last: _LastText) -> _Part:
    """The part of *text* from *begin* on, after parts with this *crc*; mostly the *last* text has it."""
    if (part := last.part_at(text, begin)) is not None:
        if part.before == crc:
            return part
        return replace(part, before=crc, crc=zlib.crc32(text[begin : part.end].encode(), crc))
    end = text.find(_NEXT, begin + _PART) + 1 or len(text)
    content = text[begin:end].encode()
    deflate = zlib.compressobj(_FASTEST, wbits=_DEFLATE)
    deflated = deflate.compress(content) + deflate.flush(zlib.Z_FULL_FLUSH)
    return _Part(begin, end, deflated, len(content), crc, zlib.crc32(content, crc))


@recent(most=2)  # plans need it until all nodes have switched to that text
def compressed(text: str) -> bytes:
    """A small gzip of *text*, without the time: it has to fit beside another text."""
    return gzip.compress(text.encode(), _SMALL, mtime=0)


def unpack(text: str) -> str | Unreadable:
    """The text that :func:`pack` was given; *text* as it is if it is not in the notation."""
    if not is_packed(text):
        return text
    try:
        content = base64.b64decode(text[len(MARKER) :].replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        return Unreadable("what follows its first line is no base64")
    return decompressed(content)


def decompressed(content: bytes) -> str | Unreadable:
    """The text of the gzip *content*."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        found = unpacker.decompress(content, MOST_UNPACKED + 1)
        if len(found) > MOST_UNPACKED:
            return Unreadable(f"unpacked it has more than {MOST_UNPACKED:,} bytes")
        if not unpacker.eof or unpacker.unused_data:
            return Unreadable("its gzip has no end, or more follows")
        return found.decode()
    except zlib.error:
        return Unreadable("its base64 holds no gzip")
    except UnicodeDecodeError:
        return Unreadable("unpacked it is not UTF-8")


def is_packed(text: str) -> bool:
    """Whether *text* is in the notation."""
    return text.startswith(MARKER)


def unpacked(text: str) -> str:
    """*text* unpacked; it is returned as it is if it is not in the notation, or cannot be read."""
    if not is_packed(text):
        return text
    if (content := _UNPACKED.get(text)) is None:
        found = unpack(text)
        content = _UNPACKED.keep(text, text if isinstance(found, Unreadable) else found)
    return content


@recent(most=2)  # an agent reads the same text again and again
def expand(text: str) -> str | Unreadable:
    """*text* in full, whichever notations it is in."""
    found = unpack(text)
    return found if isinstance(found, Unreadable) else compact.expand(found)


def in_full(text: str) -> str:
    """The same; *text* as it is if it cannot be read."""
    found = expand(text)
    return text if isinstance(found, Unreadable) else found
