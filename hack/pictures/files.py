"""The pictures: which text becomes which file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from hack.pictures import boxes, sequence

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
_KINDS: Final[Mapping[str, Callable[[str], str]]] = {"boxes": boxes.draw, "sequence": sequence.draw}


def files() -> dict[Path, str]:
    """Each picture, from the text beside it; the text's suffix says what it describes."""
    return {
        path.with_suffix(".svg"): draw(path.read_text())
        for kind, draw in _KINDS.items()
        for path in sorted(FOLDER.glob(f"*.{kind}"))
    }
