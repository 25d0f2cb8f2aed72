"""
The pictures of the page in docs/howto/ui.md, from a real Chromium: `make screenshots` writes them.

``KAVIP_PICTURES=FOLDER`` is where they are written; without it, the test only takes them.
"""

import os
from pathlib import Path

import pytest

from kavip.cli.ui.board import Board, Moment
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.picture import picture_of
from tests.cli.ui.serving import NOW, serving
from tests.support.browser import browsing
from tests.support.pictureexample import agents, objects
from tests.test_docs import SCREENSHOTS

pytestmark = pytest.mark.browser

WIDTH, HEIGHT = 1040, 440


def example() -> Moment:
    """The example without what tests plant in it."""
    found = Listing(tuple(each for each in objects() if each.metadata.key != "search/lab"))
    return Moment(1, NOW, picture_of(found, agents(), now=NOW), found)


@pytest.mark.parametrize("name", SCREENSHOTS)
async def test_a_picture_of_the_docs_is_taken(tmp_path: Path, name: str) -> None:
    """The view has its heading, and no text of the tests."""
    view, scheme = name.removeprefix("ui-").removesuffix(".png").split("-")
    async with serving(Board(example())) as reader, browsing(tmp_path) as page:
        await page.show(width=WIDTH, height=HEIGHT, is_dark=scheme == "dark")
        await page.navigate(reader.links[-1])
        await page.wait("document.querySelectorAll('.chip').length")
        await page.evaluate(f"location.hash = '#/{view}'")
        await page.wait("document.querySelector('main h1') && !document.body.innerText.includes('Loading')")
        assert "script" not in await page.evaluate("document.querySelector('main').innerText")
        picture = await page.window()
        assert page.errors == []
    assert picture.startswith(b"\x89PNG")
    if folder := os.environ.get("KAVIP_PICTURES"):
        Path(folder, name).write_bytes(picture)  # noqa: ASYNC240 - a test
