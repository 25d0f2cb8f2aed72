"""
The page in a real Chromium (``make test-ui``): the roles and texts of its views, and that hostile values stay text.

``KAVIP_SCREENSHOTS=FOLDER`` keeps pictures of the views, in both colour schemes and two widths.
"""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kavip.cli.ui.board import Moment
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.picture import picture_of
from tests.cli.ui.serving import NOW, Reader, moment, serving
from tests.support import build
from tests.support.browser import Page, browsing
from tests.support.pictureexample import service

pytestmark = pytest.mark.browser

VIEWS: Final = {
    "overview": "#/overview",
    "vips": "#/vips",
    "pools": "#/pools",
    "timeline": "#/timeline",
    "service": "#/service/search/lab",
}


@dataclass
class Opened:
    """A tab that shows the page of *reader*."""

    page: Page
    reader: Reader

    async def view(self, name: str) -> None:
        """Go to a view."""
        await self.page.evaluate(f"location.hash = {VIEWS[name]!r}")
        await self.page.wait("document.querySelector('main h1') && !document.body.innerText.includes('Loading')")

    async def text(self, selector: str = "main") -> str:
        """The text of the first element that *selector* finds."""
        found: str = await self.page.evaluate(f"document.querySelector({selector!r}).innerText")
        return found

    async def tree(self) -> list[tuple[str, str]]:
        """The role and the name of each element, as assistive technology gets them."""
        answer = await self.page.call("Accessibility.getFullAXTree")
        shown = (each for each in answer["nodes"] if not each["ignored"])
        return [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in shown]

    def publish(self, moved: str, *, error: str = "") -> None:
        """The next picture of the example."""
        self.reader.board.publish(moment(self.reader.board.latest.number + 1, moved, error=error))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    """A browser that followed the link; in the end nothing was wrong in its console, and it asked no other server."""
    async with serving() as reader, browsing(tmp_path) as page:
        await page.show()
        await page.navigate(reader.links[-1])
        await page.wait("document.querySelectorAll('.chip').length")
        yield Opened(page, reader)
        assert page.errors == []
        assert {url.split("?")[0].rpartition("/")[0] for url in page.requested} <= {reader.base}


async def test_the_overview_says_first_what_is_wrong(opened: Opened) -> None:
    """A heading, a table with a row for each problem, then groups, their nodes and their VIPs."""
    tree = await opened.tree()
    headings = [name for role, name in tree if role == "heading"]
    assert headings[0] == "7 things are wrong"
    assert headings[1:3] == [
        "Groups, nodes and their VIPs",
        "well lb/dmz vlan20 · PerService · 2 of 2 pods ready · 2 with the newest configuration",
    ]
    assert ("table", "What is wrong, the most urgent first") in tree
    assert len([role for role, _ in tree if role == "row"]) == 8
    assert ("cell", "Service intranet/mail") in tree and ("cell", "NoMaster") in tree
    assert ("button", "copy: kubectl kavip explain -n intranet mail") in tree


async def test_hostile_values_stay_text(opened: Opened) -> None:
    """The page shows the markup, and no element is made of it."""
    for name in ("overview", "vips", "service"):
        await opened.view(name)
        await opened.page.wait("document.body.innerText.includes('<script>alert(2)</script>')")
        assert await opened.page.evaluate("document.querySelectorAll('main img, main script, [onerror]').length") == 0
    assert "\u202e" not in await opened.text()


async def test_a_move_is_marked_and_announced(opened: Opened) -> None:
    """Without a new load; the announcement is polite."""
    opened.publish("node-a2")
    await opened.page.wait("document.querySelector('.chip.moved')")
    assert "192.0.2.130" in await opened.text(".chip.moved")
    said = await opened.page.evaluate("document.querySelector('[aria-live=polite]').textContent")
    assert said == "192.0.2.130 of billing/api moved from node-a1 to node-a2"


async def test_an_outage_is_said_with_its_age(opened: Opened) -> None:
    """The picture stays."""
    opened.publish("", error="Unavailable")
    await opened.page.wait("document.querySelector('.currency').innerText.includes('API server away')")
    assert await opened.page.evaluate("document.querySelectorAll('.chip').length") > 10
    opened.publish("")
    await opened.page.wait("document.querySelector('.currency .badge').innerText === 'live'")


async def test_what_if_a_node_fails(opened: Opened) -> None:
    """Its VIPs say where they would go."""
    await opened.page.evaluate(
        "(select => { select.value = 'node-a1'; select.dispatchEvent(new Event('change')); })"
        "(document.querySelector('select'))"
    )
    await opened.page.wait("document.querySelector('.successor')")
    assert await opened.text(".successor") == "→ node-a2"


async def test_vips_are_filtered(opened: Opened) -> None:
    """By words, and by what is not well; the field keeps the focus while pictures arrive."""
    await opened.view("vips")
    await opened.page.evaluate(
        "(field => { field.focus(); field.value = 'node-a1 media'; field.dispatchEvent(new Event('input')); })"
        "(document.querySelector('[type=search]'))"
    )
    await opened.page.wait("document.querySelectorAll('tbody tr').length === 2")
    opened.publish("node-a2")
    opened.publish("node-b1")
    await opened.page.wait("document.querySelector('output').innerText === '2 of 28'")
    assert await opened.page.evaluate("document.activeElement.type") == "search"


async def test_a_pool_is_a_map_of_addresses(opened: Opened) -> None:
    """A small pool has a cell for each address, with a text for who does not see them; a /64 has a bar."""
    await opened.view("pools")
    tree = await opened.tree()
    assert ("image", "Addresses of pool edge: 24 assigned, 1 cooling, 1 reserved, 13 excluded, 25 free") in tree
    assert await opened.page.evaluate("document.querySelectorAll('.cells')[0].children.length") == 64
    assert ("image", "Addresses of pool v6: 1.84e+19 free") in tree


async def test_a_service_is_explained(opened: Opened) -> None:
    """By a link of the overview, with the keyboard; the heading gets the focus."""
    await opened.page.evaluate("document.querySelector('tbody a').focus()")
    await opened.page.press("Enter")
    await opened.page.wait("document.querySelectorAll('.steps li').length === 5")
    assert await opened.page.evaluate("document.activeElement.innerText") == "Service intranet/mail"
    assert "NoMaster" in await opened.text(".steps")


async def test_a_link_that_was_used_says_so(opened: Opened) -> None:
    """Another tab needs the link that was printed last. The refusal is in the console, as every one."""
    await opened.page.evaluate("sessionStorage.clear()")
    await opened.page.navigate(f"{opened.reader.base}/?again#{'x' * 43}")
    await opened.page.wait("document.body && document.body.innerText.includes('This page is not connected')")
    assert "the one that kavip ui printed last" in await opened.text()
    assert [error for error in opened.page.errors if "403" not in error] == []
    opened.page.errors.clear()


async def test_five_thousand_services_are_usable(opened: Opened) -> None:
    """The lists show the first rows, and a button for more."""
    many = [service(f"team-{number % 50}/s{number}", f"10.0.{number >> 8}.{number & 255}") for number in range(5000)]
    found = Listing((build.group("lb/edge"), build.pool("edge", "10.0.0.0/16"), *many))
    opened.reader.board.publish(Moment(2, NOW, picture_of(found, now=NOW), found))
    await opened.view("vips")
    await opened.page.wait("document.querySelector('output').innerText === '5000 of 5000'")
    assert await opened.page.evaluate("document.querySelectorAll('tbody tr').length") == 100
    await opened.page.evaluate("document.querySelector('.more button').click()")
    await opened.page.wait("document.querySelectorAll('tbody tr').length === 200")


@pytest.mark.parametrize("width", [1280, 400])
async def test_no_view_is_wider_than_the_window(opened: Opened, width: int) -> None:
    """On a 13-inch screen and a narrow window."""
    await opened.page.show(width=width)
    for name in VIEWS:
        await opened.view(name)
        assert await opened.page.evaluate("document.documentElement.scrollWidth") <= width, name
        if folder := os.environ.get("KAVIP_SCREENSHOTS"):
            for scheme in ("light", "dark"):
                await opened.page.show(width=width, is_dark=scheme == "dark")
                picture = await opened.page.screenshot()
                Path(folder, f"{name}-{scheme}-{width}.png").write_bytes(picture)  # noqa: ASYNC240 - a test


@pytest.mark.parametrize("is_dark", [False, True])
async def test_texts_have_contrast(opened: Opened, is_dark: bool) -> None:
    """At least 4.5 to 1 (WCAG AA), in both schemes."""
    await opened.page.show(is_dark=is_dark)
    for name in VIEWS:
        await opened.view(name)
        assert await opened.page.evaluate(CONTRAST) == [], name


CONTRAST = """
(() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (color) => {
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = color.slice(0, 3).map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const color = parse(getComputedStyle(each).backgroundColor);
      if (color.length >= 3 && (color.length < 4 || color[3] === 1)) return color;
    }
    return [255, 255, 255];
  };
  const poor = new Set();
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !element.checkVisibility() || element.closest(".hidden, .moved, noscript")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.add(`${element.className || element.tagName} ${ratio.toFixed(2)}`);
  }
  return [...poor];
})()
"""
