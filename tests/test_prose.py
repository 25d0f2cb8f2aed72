"""The style of the documentation: what `make lint` finds in prose, and what it leaves alone."""

import subprocess
import sys

import pytest

from hack import prose
from tests.support.manifests import ROOT


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("It is\nused in order to\nstart.", '"in order to": write to'),
        ("Please restart it.", '"Please": write the imperative alone'),
        ("The node is able to hold it.", '"is able to": write can'),
        (f"It {'goes ' * 41}on.", "a sentence of 43 words: part it"),
        (f"First.\n\n- {'word ' * 45}", "a sentence of 46 words: part it"),
    ],
)
def test_a_fault_is_found(text: str, fault: str) -> None:
    """A phrase to avoid, with what to write for it; a sentence that is too long."""
    assert [said for _, said in prose.faults(text)] == [fault]


@pytest.mark.parametrize(
    "text",
    [
        "Run it.\n\n```sh\nplease --simply\n```\n\n| a | very |\n|---|---|\n",
        "The option `--just` and [this](very/simply.md) are names.",
        f"- {'word ' * 30}\n- {'word ' * 30}",
        "Just-in-time and every other word.",
    ],
)
def test_what_is_no_prose_is_left_alone(text: str) -> None:
    """Code, tables, links, other words, and items of lists without full stops."""
    assert list(prose.faults(text)) == []


def test_a_fault_has_its_line() -> None:
    """After a block of code, too."""
    assert [line for line, _ in prose.faults("# A\n\n```\na\nb\n```\n\nIt is\nvery good.")] == [9]


def test_the_pages_have_no_fault() -> None:
    """`make lint` runs the same."""
    done = subprocess.run([sys.executable, "-m", "hack.prose"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
