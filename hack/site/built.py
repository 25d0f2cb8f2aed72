"""The built site: its pages load nothing from other servers, and each link between them leads to something."""

import html
import re
from collections.abc import Iterable, Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote

_LOADS: Final = {"src", "srcset", "data", "poster", "action", "formaction", "background"}
_ELSEWHERE: Final = re.compile(r"(?:[a-z][a-z\d+.-]*:)?//", re.IGNORECASE)
_CSS_LOADS: Final = re.compile(r"(?:@import\s+|url\(\s*)[\"']?((?:[a-z]+:)?//[^\"')\s;]+)", re.IGNORECASE)
_MAILTO: Final = re.compile(r"(?!data:)[a-z]+:", re.IGNORECASE)


class _Page(HTMLParser):
    """What a page loads, where its links lead, and the anchors that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the attributes of an element."""
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in _LOADS or (tag, name) in {("link", "href"), ("image", "href"), ("use", "href")}:
                self.loads.append(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")


def faults(folder: Path) -> list[str]:
    """A line for each request to another server, and for each link that leads nowhere; sorted."""
    found = [f"{each.relative_to(folder)}: {fault}" for each in folder.rglob("*.html") for fault in _faults(each)]
    for each in (*folder.rglob("*.css"), *folder.rglob("*.svg")):
        found += [f"{each.relative_to(folder)}: loads {url}" for url in _CSS_LOADS.findall(each.read_text())]
    return sorted(found)


def _faults(path: Path) -> Iterator[str]:
    page = _parse(path)
    for url in page.loads:
        if _ELSEWHERE.match(url):
            yield f"loads {url}"
        elif not url.startswith("data:") and not _target(path, url).exists():
            yield f"loads {url}, which is not there"
    for link in page.links:
        if _ELSEWHERE.match(link) or _MAILTO.match(link):
            continue
        file, _, anchor = link.partition("#")
        target = _target(path, file) if file else path
        if not target.exists():
            yield f"links to {link}, which is not there"
        elif anchor and target.suffix == ".html" and unquote(anchor) not in _parse(target).anchors:
            yield f"links to {link}, but the page has no such anchor"


def _target(page: Path, url: str) -> Path:
    return page.parent / unquote(url.partition("#")[0].partition("?")[0])


@cache
def _parse(path: Path) -> _Page:
    page = _Page()
    page.feed(path.read_text())
    return page


def redirect(page: str, title: str) -> str:
    """A page that leads to *page*, in a browser without scripts too."""
    return _PAGE.format(
        head=f'<meta http-equiv="refresh" content="0; url={page}">\n<title>{html.escape(title)}</title>',
        body=f'<p><a href="{page}">{html.escape(title)}</a></p>',
    )


def versions(found: Iterable[str]) -> str:
    """The page that lists the folders of versions, the newest first."""
    names = sorted(found, key=_order, reverse=True)
    items = "\n".join(f'<li><a href="{each}/index.html">kavip {html.escape(each)}</a></li>' for each in names)
    body = f"<h1>The documentation of kavip</h1>\n<ul>\n{items}\n</ul>"
    return _PAGE.format(head="<title>kavip: versions</title>", body=body)


def _order(version: str) -> list[tuple[int, str]]:
    return [(int(each), "") if each.isdecimal() else (-1, each) for each in re.split(r"[.-]", version)]


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<style>body {{ font-family: system-ui, sans-serif; margin: 3rem auto; max-width: 40rem; }}</style>
{head}
</head>
<body>
{body}
</body>
</html>
"""
