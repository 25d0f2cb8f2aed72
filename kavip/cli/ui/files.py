"""
The files of the page, read once. The browser loads nothing else.

``preact.mjs`` is Preact 11.2.0 (https://preactjs.com, MIT), ``dist/preact.mjs`` of its npm package, unchanged. It keeps
the page as the state says, and leaves the focus and the fields of the reader alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "page"
SCRIPTS: Final = ("app.js", "overview.js", "parts.js", "pools.js", "service.js", "store.js", "timeline.js", "vips.js")
_FILES: Final = {
    "/": ("index.html", "text/html"),
    **{f"/{name}": (name, "text/javascript") for name in SCRIPTS},
    "/preact.mjs": ("preact.mjs", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, and its type."""

    body: bytes
    content_type: str


def load() -> dict[str, PageFile]:
    """The files, by path."""
    return {path: PageFile((FOLDER / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}
