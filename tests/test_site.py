"""The site of the documentation: its order, and the check of what was built."""

from pathlib import Path

import pytest

from hack.site import built, pages

README = """# kavip

## Limits

[other](docs/limits.md)

## Documentation

### Start

- [install.md](docs/howto/install.md), [values.md](docs/howto/values.md): a text with
  [an anchor](docs/howto/install.md#below)

### Background

- [SECURITY.md](SECURITY.md)
"""


def page(body: str) -> str:
    """An HTML page of a site."""
    return f'<html><head><link rel="stylesheet" href="own.css"></head><body>{body}</body></html>'


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two pages without a fault."""
    (tmp_path / "own.css").write_text("a { background: url(own.svg) }")
    (tmp_path / "own.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "b.html").write_text(page('<h1 id="here">b</h1>'))
    (tmp_path / "a.html").write_text(page('<a href="b.html#here"></a><a href="https://kubernetes.io"></a>'))
    return tmp_path


def test_the_order_is_that_of_the_readme() -> None:
    """The headings below "Documentation" are the chapters, and the links below them the pages."""
    assert pages.chapters(README) == [
        pages.Chapter("Start", ("docs/howto/install", "docs/howto/values")),
        pages.Chapter("Background", ("SECURITY",)),
    ]


def test_the_first_page_has_the_navigation() -> None:
    """The text of README stays, and hidden tables of contents with captions follow it."""
    text = pages.with_contents(README)
    assert text.startswith(README)
    assert "```{toctree}\n:hidden:\n:caption: Start\n\ndocs/howto/install\ndocs/howto/values\n```" in text


def test_each_page_is_once_in_the_navigation() -> None:
    """The site has every page of the repository's root and of docs, each once; README is the first page."""
    listed = [each for chapter in pages.chapters(pages.README.read_text()) for each in chapter.pages]
    found = {*pages.ROOT.glob("*.md"), *(pages.ROOT / "docs").rglob("*.md")} - {pages.README}
    assert sorted(listed) == sorted(str(each.relative_to(pages.ROOT).with_suffix("")) for each in found)


def test_a_good_site_has_no_fault(site: Path) -> None:
    """Links between pages, links to other servers, and files of the site are no faults."""
    assert built.faults(site) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "a.html: loads https://cdn.example/x.js"),
        ('<img src="//cdn.example/x.png">', "a.html: loads //cdn.example/x.png"),
        ('<img src="x.png">', "a.html: loads x.png, which is not there"),
        ('<a href="c.html"></a>', "a.html: links to c.html, which is not there"),
        ('<a href="b.html#gone"></a>', "a.html: links to b.html#gone, but the page has no such anchor"),
        ('<a href="#gone"></a>', "a.html: links to #gone, but the page has no such anchor"),
    ],
)
def test_a_fault_of_a_page_is_named(site: Path, body: str, fault: str) -> None:
    """Each request to another server, and each link that leads nowhere, is one line."""
    (site / "a.html").write_text(page(body))
    assert built.faults(site) == [fault]


@pytest.mark.parametrize("style", ['@import "https://f.example/x.css";', "p { background: url( '//f.example/x') }"])
def test_style_sheets_load_nothing_from_elsewhere(site: Path, style: str) -> None:
    """Neither by import nor by URL."""
    (site / "own.css").write_text(style)
    (fault,) = built.faults(site)
    assert fault.startswith("own.css: loads ")
    assert "//f.example/x" in fault


def test_versions_are_listed_newest_first() -> None:
    """The page of versions orders them by number, not by letter."""
    text = built.versions(["0.9.0", "0.10.0", "0.1.0"])
    assert text.index("0.10.0/index.html") < text.index("0.9.0/index.html") < text.index("0.1.0/index.html")
    assert "//" not in text


def test_a_redirect_is_also_a_link() -> None:
    """A browser that follows no refresh shows a link."""
    text = built.redirect("README.html", "kavip 1")
    assert 'content="0; url=README.html"' in text
    assert '<a href="README.html">' in text
