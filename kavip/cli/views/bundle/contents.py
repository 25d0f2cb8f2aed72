"""
The files of a bundle: their names and sizes, what is not among them and why, and the index of both.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote

from kavip import __version__
from kavip.api.text import one_line
from kavip.cli.views.bundle.redaction import redacted

MOST_FILES: Final = 2_000
MOST_BYTES: Final = 64 * 2**20
"""Of all files, before they are compressed."""
LARGEST: Final = 8 * 2**20
"""Bytes of one file."""
INDEX: Final = "index.json"
_LONGEST_PART: Final = 200
_LONGEST_REASON: Final = 500


@dataclass(frozen=True, slots=True, order=True)
class Missing:
    """*what* is not in the bundle, or not wholly, and *why*."""

    what: str
    why: str


@dataclass(slots=True)
class Bundle:
    """The files by path, and what is missing."""

    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[Missing] = field(default_factory=list)
    size: int = 0

    def add(self, *path: str, content: bytes) -> None:
        """Add a file, if there is room."""
        name = "/".join(map(_part, path))
        if len(content) > LARGEST or len(self.files) >= MOST_FILES or self.size + len(content) > MOST_BYTES:
            self.miss(name, "the bundle would be too large")
            return
        self.size += len(content)
        self.files[name] = content

    def add_objects(self, *path: str, objects: Iterable[Mapping[str, Any]]) -> None:
        """Add a file with a JSON list, an object in each line; what does not fit into a file is left out."""
        lines: list[bytes] = []
        size = omitted = 0
        for each in objects:
            line = json.dumps(each, sort_keys=True).encode()
            size += len(line) + 2
            if size > LARGEST - 16:
                omitted += 1
            else:
                lines.append(line)
        self.add(*path, content=b"[\n" + b",\n".join(lines) + b"\n]\n")
        if omitted:
            self.miss("/".join(path), f"{omitted} objects are left out: the file would be too large")

    def add_json(self, *path: str, value: Any) -> None:
        """Add a file with a JSON value."""
        self.add(*path, content=json.dumps(value, indent=1, sort_keys=True).encode() + b"\n")

    def miss(self, what: str, why: str) -> None:
        """Record what is not in the bundle."""
        if len(self.missing) == MOST_FILES:
            what, why = "more", "so many things are missing that they are not listed"
        if len(self.missing) > MOST_FILES:
            return
        self.missing.append(Missing(redacted(one_line(what)), redacted(one_line(why))[:_LONGEST_REASON]))

    def complete(self, about: Mapping[str, Any]) -> dict[str, bytes]:
        """All files, sorted, with the index; *about*: when and how they were read."""
        files = {name: self.files[name] for name in sorted(self.files)}
        index = {
            "kavip": __version__,
            **about,
            "files": [
                {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                for name, content in files.items()
            ],
            "missing": [{"what": each.what, "why": each.why} for each in sorted(self.missing)],
        }
        return {INDEX: json.dumps(index, indent=1, sort_keys=True).encode() + b"\n", **files}


def _part(name: str) -> str:
    """*name* as one part of a path: it leads nowhere else, and different names stay different."""
    safe = quote(name, safe="")
    if safe.strip(".") == "":
        safe = safe.replace(".", "%2E") or "%"
    if len(safe) > _LONGEST_PART:
        safe = f"{safe[:_LONGEST_PART]}~{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:16]}"
    return safe
