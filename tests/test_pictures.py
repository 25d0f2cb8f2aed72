"""Pictures from texts: well-formed, inside their frame, and readable in light and in dark."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hack.pictures import boxes, sequence
from hack.pictures.files import FOLDER, files
from hack.pictures.svg import LETTER

SVG = "{http://www.w3.org/2000/svg}"
PICTURES = files()
PAGES = (FOLDER.parents[1] / "README.md", *FOLDER.parent.rglob("*.md"))


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_texts_are_inside_the_picture(path: Path) -> None:
    """The picture is XML with a title, and no text leaves its frame, with letters of a usual width."""
    root = ElementTree.fromstring(PICTURES[path])
    width, height = (float(root.attrib[each]) for each in ("width", "height"))
    assert root.findtext(f"{SVG}title")
    texts = list(root.iter(f"{SVG}text"))
    assert texts
    for each in texts:
        half = len(each.text or "") * LETTER / 2
        x = float(each.attrib["x"]) + (half if "start" in each.attrib.get("class", "") else 0)
        assert half <= x <= width - half, each.text
        assert 0 < float(each.attrib["y"]) < height, each.text


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_each_colour_has_a_dark_counterpart(path: Path) -> None:
    """The style names each colour twice, and nothing else has a colour; nothing is loaded."""
    text = PICTURES[path]
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    names = re.findall(r"(--\w+): #", light)
    assert len(names) > 5
    assert re.findall(r"(--\w+): #", dark) == names
    assert not re.search(r"(?:fill|stroke)=\"|href=|<image|@import", text)


def test_each_picture_is_shown_with_a_text() -> None:
    """A page shows each picture, and says in words what it is."""
    text = "\n".join(page.read_text() for page in PAGES)
    shown = re.findall(r"!\[[^\]]{20,}\]\([./]*pictures/(\w+)\.svg\)", text)
    shown += re.findall(r'<img src="docs/pictures/(\w+)\.svg"[^>]* alt="[^"]{20,}">', re.sub(r"\s+", " ", text))
    assert sorted(set(shown)) == sorted(path.stem for path in PICTURES)


def test_a_line_that_cannot_be_read_is_named() -> None:
    """The error quotes the line."""
    with pytest.raises(ValueError, match="'a => b' is no step; want a -> b: text"):
        sequence.draw("title: x\nlanes: a | b\na => b\n")
    with pytest.raises(ValueError, match="'bux a 0 0' is neither a box nor an arrow"):
        boxes.draw("title: x\nsize: 10 10\nbux a 0 0\n")
