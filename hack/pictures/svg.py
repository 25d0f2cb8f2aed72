"""The parts of a picture: texts, boxes and arrows as SVG, in the colours of the reader's scheme."""

import textwrap
from collections.abc import Iterable
from html import escape
from typing import Final

LINE: Final = 16
"""Height of a line of text."""
LETTER: Final = 6.8
"""Width of a letter, at most on average: texts wrap by it, with any font."""
_STYLE: Final = """
  :root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f24; --soft: #57606a; --line: #8c959f;
    --box: #f3f4f6; --own: #ddebff; --edge: #3b73c4; --band: #fff3d6; }
  @media (prefers-color-scheme: dark) { :root { --paper: #16191d; --ink: #e6e9ee; --soft: #a9b1bc; --line: #767f8a;
    --box: #262b32; --own: #1d3557; --edge: #74a7ee; --band: #4a3b12; } }
  text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: var(--ink); text-anchor: middle; }
  .strong { font-weight: 600; }
  .soft { fill: var(--soft); }
  .start { text-anchor: start; }
  .paper { fill: var(--paper); }
  .box { fill: var(--box); stroke: var(--line); }
  .own { fill: var(--own); stroke: var(--edge); }
  .band { fill: var(--band); }
  .frame { fill: none; stroke: var(--line); stroke-dasharray: 5 4; }
  .life { stroke: var(--line); stroke-dasharray: 2 4; }
  .arrow { stroke: var(--soft); stroke-width: 1.4; fill: none; marker-end: url(#head); }
  .both { marker-start: url(#head); }
  .head { fill: var(--soft); }
"""


_HEAD: Final = """<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
  orient="auto-start-reverse"><path class="head" d="M0 0.5 8 4 0 7.5z"/></marker></defs>"""


def picture(width: float, height: float, *, title: str, parts: Iterable[str]) -> str:
    """A whole SVG file of *parts*, named *title* for readers that do not see it."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f"<style>{_STYLE}</style>",
        _HEAD,
        f'<rect class="paper" width="{width:g}" height="{height:g}" rx="6"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def box(x: float, y: float, width: float, height: float, *, kind: str) -> str:
    """A rectangle; *kind* is its class."""
    return f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'


def line(start: tuple[float, float], end: tuple[float, float], *, kind: str) -> str:
    """A straight line; *kind* is its class."""
    return f'<path class="{kind}" d="M{start[0]:g} {start[1]:g} {end[0]:g} {end[1]:g}"/>'


def wrap(text: str, width: float) -> list[str]:
    """The lines of *text* in a place that is *width* wide; ``|`` begins a new line."""
    columns = int(width / LETTER)
    return [each for part in text.split("|") for each in textwrap.wrap(part, columns, break_on_hyphens=False)]


def block(lines: Iterable[str], x: float, top: float, *, kind: str = "") -> list[str]:
    """*lines* below *top*, in the middle around *x*."""
    shown = f' class="{kind}"' if kind else ""
    return [
        f'<text{shown} x="{x:g}" y="{top + LINE * (index + 0.75):g}">{escape(each)}</text>'
        for index, each in enumerate(lines)
    ]


def backed(lines: list[str], x: float, top: float, *, kind: str = "soft") -> list[str]:
    """The same before a rectangle of the colour of the paper, to be read on top of a line."""
    width = max(map(len, lines)) * LETTER + 6
    return [box(x - width / 2, top, width, LINE * len(lines), kind="paper"), *block(lines, x, top, kind=kind)]
