"""
The difference of two pictures, as the page receives it: by section, rows to set, and the ids of rows that are gone.
"""

from typing import Any, Final

import msgspec

from kavip.cli.views.picture.picture import Picture
from kavip.cli.views.picture.rows import Row

SECTIONS: Final = Picture.__struct_fields__

_EMPTY: Final = Picture()


def changes(before: Picture | None, after: Picture) -> bytes:
    """
    What turns *before* into *after*, as JSON; None: the page has nothing yet. b"" if they are equal.

    ``{"SECTION": {"set": [ROW, ...], "drop": [ID, ...]}}``, only with sections that differ.
    """
    found = {section: _difference(_rows(before or _EMPTY, section), _rows(after, section)) for section in SECTIONS}
    differing = {section: each for section, each in found.items() if each is not None}
    return msgspec.json.encode(differing) if differing else b""


def _rows(picture: Picture, section: str) -> dict[str, Row]:
    rows: tuple[Row, ...] = getattr(picture, section)
    return {row.id: row for row in rows}


def _difference(before: dict[str, Row], after: dict[str, Row]) -> dict[str, Any] | None:
    changed = [row for key, row in after.items() if before.get(key) != row]
    gone = sorted(before.keys() - after.keys())
    return {"set": changed, "drop": gone} if changed or gone else None
