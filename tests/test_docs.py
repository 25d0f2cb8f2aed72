"""The documentation agrees with the code, and stays easy to read."""

import ast
import re
import shlex
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from hack import reference
from hack.alerts import ALERTS
from hack.tutorial.pages import shown
from kavip import names
from kavip.api.agent import ProblemCode
from kavip.cli.main import cli
from kavip.controller.prober import SILENCE
from kavip.names import ConditionType, Reason
from kavip.reconcile.service import throttle

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = (*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")))
PACKAGE = ROOT / "kavip"
WIDTH = 100
SCREEN = 25
"""Lines of prose between two headings, at most."""
SCREENSHOTS = tuple(f"ui-{view}-{scheme}.png" for view in ("overview", "pools") for scheme in ("light", "dark"))
"""The pictures of ``kavip ui``, which `make screenshots` writes below docs/pictures."""
QUOTES = {
    "howto/check.md": ("all nodes change at one instant",),
    "howto/switch.md": ("password changed",),
    "howto/troubleshoot.md": ("taking over from keepalived-operator",),
}
"""Texts of kavip that pages quote outside tables."""


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The lines of *page* with their numbers, without blank lines, code blocks and tables."""
    in_code = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif line.strip() and not in_code and not line.lstrip().startswith("|"):
            yield number, line


@pytest.mark.slow
def test_the_generated_pages_are_those_of_this_code() -> None:
    """`make reference` has written the generated pages from this code."""
    for path, text in reference.pages().items():
        assert path.read_text() == text, f"{path.name} is stale: run `make reference`"


def test_every_condition_and_reason_is_explained() -> None:
    """The page of conditions names each condition and reason that kavip can write, and no other."""
    page = (DOCS / "reference" / "conditions.md").read_text()
    for each in (*ConditionType, *Reason):
        assert re.search(rf"`{re.escape(each)}`|## .*{re.escape(each)}", page), each
    known = {str(each).rpartition("/")[2] for each in (*ConditionType, *Reason)}
    named = set(re.findall(r"`([A-Z][A-Za-z]+)`", page)) - {"Unknown"}
    assert named <= known, named - known


def test_the_reasons_of_advertised_are_complete() -> None:
    """Their table has each reason; those with which a VIP does not answer each have an alert."""
    page = (DOCS / "reference" / "conditions.md").read_text()
    section = page.split("## Services: kavip.io/Advertised")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| \w+ \| `(\w+)` \|", section, re.MULTILINE)) == names.ADVERTISED_REASONS
    alerting = [each for each in names.ADVERTISED_REASONS if any(f'reason="{each}"' in alert.expr for alert in ALERTS)]
    assert alerting == [each for each in names.ADVERTISED_REASONS if f"| True | `{each}` |" not in section]


def test_durations_of_advertised_are_those_of_the_code() -> None:
    """After how many seconds a reason is reported: the words of the page."""
    words = {10: "ten", 15: "fifteen"}
    lasting, silence = words[round(throttle.UNKNOWN_AFTER)], words[round(throttle.UNKNOWN_AFTER + SILENCE)]
    page = " ".join((DOCS / "reference" / "conditions.md").read_text().split())
    for sentence in (
        f"for {lasting} seconds no node has had a ready endpoint",
        f"For {lasting} seconds no node of the group has run an instance",
        f"have not answered for {silence} seconds",
    ):
        assert sentence in page


def test_alerts_read_metrics_that_exist() -> None:
    """The expressions name metrics of kavip, or of its agents."""
    known = (DOCS / "reference" / "metrics.md").read_text()
    for page in PAGES:
        for block in re.findall(r"```promql\n(.*?)```", page.read_text(), re.DOTALL):
            named = re.findall(r"\bk(?:avip|eepalived)_\w+", block)
            assert named, f"{page.name}: {block}"
            assert [each for each in named if f"`{each.removesuffix('_bucket')}`" not in known] == [], page.name


def test_each_alert_has_a_runbook() -> None:
    """The page has a section for each alert, in their order: the meaning, commands that look, and what to do."""
    page = (DOCS / "howto" / "runbooks.md").read_text()
    _, *parts = re.split(r"^### (\w+)\n", page, flags=re.MULTILINE)
    assert parts[::2] == [alert.name for alert in ALERTS]
    for name, section in zip(parts[::2], parts[1::2], strict=True):
        pattern = r"```promql\n.*\n```\n\n\*\*Meaning\.\*\*.*\*\*Look at\*\*.*:\n\n```sh\n.*```\n\n\*\*Do\b"
        assert re.search(pattern, section, re.DOTALL), name


def test_every_code_of_an_agent_is_explained() -> None:
    """The page of the agent names each code that `/state` can hold."""
    page = (DOCS / "reference" / "agent.md").read_text()
    assert [each for each in ProblemCode if each and f"`{each}`" not in page] == []


def test_no_link_between_our_pages_is_broken() -> None:
    """Every relative link leads to a file, and its anchor to a heading of that file."""
    for page in PAGES:
        for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text()):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
            assert not anchor or anchor in anchors(target), f"{page.relative_to(ROOT)}: {link}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of *page*."""
    headings = (line.lstrip("#").strip() for _, line in prose(page) if line.startswith("#"))
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


def test_the_readme_leads_to_every_page() -> None:
    """README links to every page below docs."""
    linked = set(re.findall(r"\]\((docs/[^)#]+)", (ROOT / "README.md").read_text()))
    assert {str(page.relative_to(ROOT)) for page in DOCS.rglob("*.md")} == linked


def test_the_pictures_of_the_page_are_shown() -> None:
    """Each is a PNG, stands in the how-to with a text for who does not see it, and all are small."""
    page, folder = (DOCS / "howto" / "ui.md").read_text(), DOCS / "pictures"
    shown = dict(re.findall(r"!\[([^\]]+)\]\(\.\./pictures/(ui-[a-z-]+\.png)\)", page))
    assert sorted(shown.values()) == sorted(SCREENSHOTS) == sorted(each.name for each in folder.glob("*.png"))
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in SCREENSHOTS)
    assert sum((folder / name).stat().st_size for name in SCREENSHOTS) < 300_000


def test_every_annotation_is_documented() -> None:
    """The pages name every annotation and label that users write or find on objects."""
    pages = "\n".join(page.read_text() for page in (ROOT / "README.md", *DOCS.rglob("*.md")))
    known = {value for name, value in vars(names).items() if name.endswith(("_ANNOTATION", "_LABEL")) and "/" in value}
    assert [each for each in sorted(known) if each not in pages] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_wraps_at_100_columns(page: Path) -> None:
    """No line of prose is longer than 100 columns; tables and code may be."""
    assert [f"{number}: {line}" for number, line in prose(page) if len(line) > WIDTH] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_screen_has_a_heading(page: Path) -> None:
    """At most 25 lines of prose stand between two headings."""
    heading, lines = "the beginning", 0
    for _, line in prose(page):
        heading, lines = (line, 0) if line.startswith("#") else (heading, lines + 1)
        assert lines <= SCREEN, f"more than {SCREEN} lines of prose below {heading!r}"


def test_architecture_names_modules_that_exist() -> None:
    """Each path in the page of the architecture is a module or package of kavip, and every package is there."""
    page = (DOCS / "explanation" / "architecture.md").read_text()
    packages = {each.parent.name for each in PACKAGE.glob("*/__init__.py")}
    found = re.findall(r"(?<![\w/.-])([a-z]+(?:/[a-z_]+)+)(?![\w/.])", page)
    paths = {each for each in found if each.partition("/")[0] in packages}
    assert len(paths) > 30
    assert sorted(each for each in paths if not exists(each)) == []
    assert sorted(each for each in packages if f"`{each}`" not in page) == []


def exists(path: str) -> bool:
    """Whether *path* is a module or a package below kavip."""
    return (PACKAGE / f"{path}.py").exists() or (PACKAGE / path / "__init__.py").exists()


def test_paths_and_commands_exist() -> None:
    """The files, `make` targets and `python -m` modules that pages name are in the repository."""
    targets = set(re.findall(r"^([a-z\d-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text, name = page.read_text(), page.relative_to(ROOT)
        for path in re.findall(r"`((?:tests|hack|kavip|bench|fuzz|config|charts|docs)/[a-z\d_./-]+)`", text):
            assert (ROOT / path).exists(), f"{name}: {path}"
        for target in re.findall(r"`make ([a-z\d-]+)`", text):
            assert target in targets, f"{name}: make {target}"
        for module in re.findall(r"python -m ((?:bench|fuzz|hack|tests)[a-z_.]*)", text):
            path = ROOT / module.replace(".", "/")
            assert path.with_suffix(".py").exists() or path.is_dir(), f"{name}: python -m {module}"


def test_commands_of_kavip_are_accepted() -> None:
    """Each command line of kavip in a block of code has a command, options and values that the program knows."""
    found = {page: list(command_lines(page)) for page in PAGES}
    assert sum(map(len, found.values())) > 50
    for page, lines in found.items():
        for words in lines:
            try:
                parse(words)
            except click.UsageError as error:
                raise AssertionError(f"{page.relative_to(ROOT)}: kavip {' '.join(words)}: {error.message}") from None


def command_lines(page: Path) -> Iterator[list[str]]:
    """The words after ``kavip`` or ``kubectl kavip`` of each command in the blocks of code of *page*."""
    text = page.read_text()
    commands = [each.command for each in shown(text)]
    for block in (*commands, *re.findall(r"```sh\n(.*?)```", text, re.DOTALL)):
        for part in re.split(r"\n|\|\|?|&&|[;<>()]", block.replace("\\\n", " ")):
            if found := re.match(r"(?:kubectl |.* -- )?kavip (.*)", part.strip()):
                yield shlex.split(found[1], comments=True)


def parse(words: list[str]) -> None:
    """Parse a command line as the program does, without running it."""
    command: click.Command = cli
    context = click.Context(cli, info_name="kavip")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, command_found, words = command.resolve_command(context, words)
        assert command_found is not None
        command, context = command_found, click.Context(command_found, info_name=name, parent=context)
    if not isinstance(command, click.Group):
        command.make_context(command.name, list(words), parent=context)


def test_quoted_messages_are_those_of_the_code() -> None:
    """Each message that a page explains is a text of kavip, except for names, addresses and what `...` stands for."""
    rows = {str(page.relative_to(DOCS)): list(messages(page)) for page in sorted(DOCS.rglob("*.md"))}
    assert sum(map(len, rows.values())) > 10
    for page in {*rows, *QUOTES}:
        for quote in (*rows[page], *QUOTES.get(page, ())):
            parts = re.split(r"\.\.\.|\bn\d\b|\beth\d\b|\bshop/web\b|\b192\.0\.2\.\d+\b", quote)
            fragments = [part.strip(" ,():") for part in parts]
            assert [each for each in fragments if len(each) > 4 and each not in texts()] == [], f"{page}: {quote}"
    assert set(QUOTES) <= set(rows)


def messages(page: Path) -> Iterator[str]:
    """The quotes in the first cells of the tables of *page* whose first header is "the message says"."""
    in_table = False
    for line in page.read_text().splitlines():
        in_table = line.startswith("| the message says |") or (in_table and line.startswith("|"))
        if in_table:
            yield from re.findall(r"`([^`]+)`", line.split(" | ")[0])


@cache
def texts() -> str:
    """The string literals of kavip, with a null character for each value in an f-string."""
    found = []
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append(
                    "".join(str(each.value) if isinstance(each, ast.Constant) else "\0" for each in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_the_first_example_is_the_same_in_the_readme_and_the_notes() -> None:
    """The YAML below "Install" equals that which `helm install` prints."""
    readme = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    notes = (ROOT / "charts" / "kavip" / "templates" / "NOTES.txt").read_text()
    printed = re.findall(r"^  apiVersion: v1\n.*?(?=\n\n)", notes, re.DOTALL | re.MULTILINE)[0]
    example = textwrap.dedent(printed.replace("{{ $home }}", "lb"))
    assert list(yaml.safe_load_all(readme)) == list(yaml.safe_load_all(example))


def test_the_threat_model_names_tests_that_exist() -> None:
    """Each remedy in the tables of the threat model is proved by a test."""
    lines = (DOCS / "explanation" / "threat-model.md").read_text().splitlines()
    rows = [line for line in lines if line.count(" | ") > 1 and "::" in line]
    assert len(rows) > 15
    for row in rows:
        for path, name in re.findall(r"`([a-z_/]+)::(test_\w+)`", row):
            assert f"def {name}(" in (ROOT / "tests" / f"{path}.py").read_text(), f"tests/{path}.py has no {name}"
