"""The pages of the site and their order: the list below "Documentation" in README.md, and nothing else."""

import re
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
README: Final = ROOT / "README.md"


class Chapter(NamedTuple):
    """A heading of the list, and the pages below it."""

    title: str
    pages: tuple[str, ...]


def chapters(readme: str) -> list[Chapter]:
    """The chapters of the site, in the order of *readme*."""
    section = re.split(r"^## ", readme, flags=re.MULTILINE)
    (listed,) = [each for each in section if each.startswith("Documentation\n")]
    _, *parts = re.split(r"^### (.+)\n", listed, flags=re.MULTILINE)
    return [
        Chapter(title, tuple(re.findall(r"\]\(((?:docs/)?[\w/-]+)\.md\)", text)))
        for title, text in zip(parts[::2], parts[1::2], strict=True)
    ]


def with_contents(readme: str) -> str:
    """*readme* with the tables of contents that make the navigation of the site; readers of README do not need them."""
    trees = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {chapter.title}", "", *chapter.pages, "```"])
        for chapter in chapters(readme)
    ]
    return "\n\n".join([readme.rstrip("\n"), *trees]) + "\n"


def version() -> str:
    """The version of kavip that the pages describe."""
    project: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return project
