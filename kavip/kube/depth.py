"""
JSON that is nested too deeply to be decoded.

Decoders recurse, and give up after about a thousand levels. Some fields hold whatever their author likes (a group's
``affinity``), so one such object would make a list of all objects, or a watch, unreadable for good.
"""

import re
from typing import Final

LEVELS: Final = 100
"""No object of Kubernetes is nested half as deeply."""
MARK: Final = b'"nested too deeply"'

_TOKEN: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


def flattened(raw: bytes) -> bytes:
    """Replace what lies deeper than :data:`LEVELS` by :data:`MARK`; in one pass, without recursion."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKEN.finditer(raw):
        match raw[token.start() : token.start() + 1]:
            case b"{" | b"[":
                depth += 1
                if depth == LEVELS + 1:
                    kept += (raw[begin : token.start()], MARK)
            case b"}" | b"]":
                if depth == LEVELS + 1:
                    begin = token.end()
                depth -= 1
    return b"".join((*kept, raw[begin:]))
