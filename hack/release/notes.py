"""The notes of a release: its section of the changelog."""

import re

_SECTION = re.compile(r"^## \[(?P<name>[^\]]+)\][^\n]*\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")


def of(changelog: str, version: str) -> str:
    """The section of *version*, or what is unreleased, with the headings and without links into the repository."""
    sections = {found["name"]: found["text"].strip() for found in _SECTION.finditer(changelog)}
    text = sections.get(version) or sections.get("Unreleased", "")
    return f"# kavip {version}\n\n" + _LINK.sub(r"\1", text) + "\n"
