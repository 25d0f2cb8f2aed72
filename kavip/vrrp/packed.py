"""
The packed notation of a group's text, for a group with thousands of VIPs: its gzip, as base64.

Each VIP is a line. With 20,000 of them on 200 nodes a text has 1,041 KB in full and 710 KB in the compact notation,
which the API server, etcd and every kubelet get again with each change. Packed it has 114 KB (``python -m
bench.render``), and a ConfigMap holds twice as many VIPs as a compact one. A text is packed only where it is long,
because people read shorter ones with ``kubectl``. The first line of a packed text says how to read the rest.

What is packed may be in the compact notation (:mod:`kavip.vrrp.compact`). Agents read both before anything else, byte
for byte: hashes, and what keepalived reads, do not depend on the notation.
"""

import base64
import binascii
import gzip
import zlib
from functools import lru_cache
from typing import Final

from kavip.vrrp import compact
from kavip.vrrp.compact import Unreadable

MARKER: Final = "# kavip: packed; to read it: sed 1d | base64 -d | gunzip\n"
"""The first line of a text in this notation."""

MOST_UNPACKED: Final = 2_000_000
"""Bytes of the largest text that is packed or unpacked: it has fewer VIPs than the controller reads of an agent."""

_FASTEST: Final = 1  # 2 ms for 20,000 VIPs; the smallest takes 35 ms and saves a sixth
_GZIP: Final = 31  # zlib's wbits for a gzip header and no other


@lru_cache(maxsize=8)  # the text that a group has now, and the next one: a plan packs each of them again
def pack(text: str) -> str:
    """*text* in the notation: the same bytes for the same text and version of zlib."""
    content = gzip.compress(text.encode(), _FASTEST, mtime=0)
    return f"{MARKER}{base64.encodebytes(content).decode()}"


def compressed(text: str) -> bytes:
    """The smallest gzip of *text*, without the time: it has to fit beside another text."""
    return gzip.compress(text.encode(), mtime=0)


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
    return _unpacked(text) if is_packed(text) else text  # no cache has to hash a text in full


@lru_cache(maxsize=8)
def _unpacked(text: str) -> str:
    found = unpack(text)
    return text if isinstance(found, Unreadable) else found


@lru_cache(maxsize=2)  # an agent reads the same text again and again
def expand(text: str) -> str | Unreadable:
    """*text* in full, whichever notations it is in."""
    found = unpack(text)
    return found if isinstance(found, Unreadable) else compact.expand(found)


def in_full(text: str) -> str:
    """The same; *text* as it is if it cannot be read."""
    found = expand(text)
    return text if isinstance(found, Unreadable) else found
