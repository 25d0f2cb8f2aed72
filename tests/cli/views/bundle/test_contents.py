"""The files of a bundle: names that lead nowhere else, sizes, and the index."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.cli.views.bundle import contents
from kavip.cli.views.bundle.contents import INDEX, Bundle, Missing


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=300), min_size=2, max_size=2, unique=True))
def test_names_lead_nowhere_else(parts: list[str]) -> None:
    """Each name is one part of a path, and different names stay different."""
    bundle = Bundle()
    for part in (*parts, "..", ".", "", "../../etc/passwd", "a\\b", "C:"):
        bundle.add("logs", part, content=b"")
    assert len(bundle.files) == len({*parts, "..", ".", "", "../../etc/passwd", "a\\b", "C:"})
    for name in bundle.files:
        folder, _, rest = name.partition("/")
        assert folder == "logs"
        assert rest not in ("", ".", "..")
        assert not set(rest) & set("/\\:\0")
        assert rest.isascii() and rest.isprintable() and len(rest) < 240


def test_what_does_not_fit_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is too large, one too many, and one beyond the sum are left out, and the index names them."""
    monkeypatch.setattr(contents, "LARGEST", 10)
    monkeypatch.setattr(contents, "MOST_BYTES", 15)
    monkeypatch.setattr(contents, "MOST_FILES", 3)
    bundle = Bundle()
    for name, size in (("large", 11), ("a", 10), ("b", 6), ("c", 5), ("d", 0), ("e", 0)):
        bundle.add(name, content=b"x" * size)
    assert sorted(bundle.files) == ["a", "c", "d"]
    assert [each.what for each in bundle.missing] == ["large", "b", "e"]


def test_objects_that_do_not_fit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first objects stay, as a JSON list, and the number of the others is known."""
    monkeypatch.setattr(contents, "LARGEST", 100)
    bundle = Bundle()
    bundle.add_objects("objects", "x.json", objects=({"n": number, "text": "x" * 20} for number in range(9)))
    assert [each["n"] for each in json.loads(bundle.files["objects/x.json"])] == [0, 1]
    assert bundle.missing == [Missing("objects/x.json", "7 objects are left out: the file would be too large")]


def test_a_reason_is_cut_behind_its_secrets() -> None:
    """Half of a key is not recognised."""
    bundle = Bundle()
    bundle.miss("x", "." * 470 + " AAAAB3NzaC1yc2EAAAADAQABAAABgQC7vbqajDhA")
    assert "AAAA" not in bundle.missing[0].why


def test_the_index_lists_all_files_and_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and reasons are sorted, whichever answer came first; reasons are short lines, and not too many."""
    monkeypatch.setattr(contents, "MOST_FILES", 3)
    bundle = Bundle()
    bundle.add("b", content=b"2")
    bundle.add("a", content=b"1")
    for what in ("z", "y\n\x1b[2J", "x", "w", "v"):
        bundle.miss(what, "why " * 1000)
    files = bundle.complete({"at": "2026-06-01T12:00:00Z"})
    index = json.loads(files[INDEX])
    assert list(files) == [INDEX, "a", "b"]
    assert (index["at"], [each["name"] for each in index["files"]]) == ("2026-06-01T12:00:00Z", ["a", "b"])
    assert [each["what"] for each in index["missing"]] == ["more", "x", "y \\x1b[2J", "z"]
    assert max(len(each["why"]) for each in index["missing"]) == 500
