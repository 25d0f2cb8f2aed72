"""Cache entries are complete or absent, and are built once."""

import functools
import importlib.util
import os
import threading
import time
from pathlib import Path
from types import ModuleType

import pytest

from hack.testbed import cache


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache for this test only."""
    monkeypatch.setenv("KAVIP_CACHE", str(tmp_path / "cache"))
    return cache.root()


def test_an_interrupted_build_leaves_nothing_half_valid(own_cache: Path) -> None:
    """The entry is absent, and the next build starts from nothing."""

    def interrupted(draft: Path) -> None:
        draft.mkdir()
        (draft / "half").touch()
        raise KeyboardInterrupt

    def complete(draft: Path) -> None:
        assert not draft.exists()
        draft.write_text("whole")

    with pytest.raises(KeyboardInterrupt):
        cache.entry("programs/x", interrupted)
    assert not list(own_cache.glob("programs/x-*"))
    assert cache.entry("programs/x", complete).read_text() == "whole"


def test_an_entry_is_built_once() -> None:
    """An existing entry is not built again."""
    cache.entry("x", lambda draft: draft.touch())
    cache.entry("x", lambda draft: pytest.fail("built twice"))


def test_two_at_once_build_once() -> None:
    """The second waits for the first and takes its result."""
    built = []

    def slow(draft: Path) -> None:
        built.append(draft)
        time.sleep(0.05)
        draft.touch()

    threads = [threading.Thread(target=cache.entry, args=("x", slow)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1


def test_a_key_names_contents_and_their_borders(tmp_path: Path) -> None:
    """Another content, or another split of the same bytes, gives another key; the path of a file does not matter."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("same")
    two.write_text("same")
    assert cache.key(one) == cache.key(two) == cache.key("same") == cache.key(b"same")
    assert cache.key("a", "bc") != cache.key("ab", "c")


def module(path: Path, source: str) -> ModuleType:
    """A module with a function ``build`` in it."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def test_an_entry_is_named_by_the_code_that_makes_it(tmp_path: Path) -> None:
    """After a change of its module, or of one that it calls, an old entry is not used."""
    text = "def build(draft):\n    draft.write_text({!r})\n"
    maker, helper = module(tmp_path / "maker.py", text.format("old")), module(tmp_path / "helper.py", "")

    def made() -> Path:
        return cache.entry("x", functools.partial(maker.build), "input", code=[helper])

    old = made()
    assert (made(), old.read_text()) == (old, "old")
    module(tmp_path / "helper.py", "# changed")
    other = made()
    assert other != old
    maker = module(tmp_path / "maker.py", text.format("newer"))
    assert made() not in {old, other}
    assert made().read_text() == "newer"


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KAVIP_CACHE first, then XDG_CACHE_HOME, then the home directory."""
    monkeypatch.delenv("KAVIP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "xdg/kavip"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.root() == tmp_path / "home/.cache/kavip"


def test_only_the_latest_entries_are_kept(own_cache: Path) -> None:
    """Older entries that match are removed; others stay."""
    for age, name in enumerate(["a-3", "a-2", "a-1", "b-1"]):
        path = cache.entry(name, lambda draft: draft.touch())
        os.utime(path, (age, age))
    cache.prune("a-*", keep=2)
    assert sorted(path.name[:3] for path in own_cache.glob("*-*")) == ["a-1", "a-2", "b-1"]
