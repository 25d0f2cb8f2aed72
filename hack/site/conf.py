"""Sphinx's configuration. Sphinx executes this file; its source folder is the root of the repository."""

from typing import Any

from hack.site import pages

project = "kavip"
version = release = pages.version()
html_title = f"kavip {version}"
extensions = ["myst_parser"]
root_doc = "README"
include_patterns = ["*.md", "docs/**"]
templates_path = ["templates"]

# every reference that leads nowhere is an error: `make docs` turns warnings into errors
nitpicky = True
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
suppress_warnings = ["misc.highlighting_failure"]  # Pygments does not know all of PromQL, such as [1h:]

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["kavip.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_search_summary = False  # it fetches pages, which a browser refuses to pages that are files
html_domain_indices = html_use_index = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "version.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}


def setup(app: Any) -> None:
    """Give README the tables of contents."""
    app.connect("source-read", _add_contents)


def _add_contents(_app: Any, name: str, source: list[str]) -> None:
    if name == root_doc:
        source[0] = pages.with_contents(source[0])
