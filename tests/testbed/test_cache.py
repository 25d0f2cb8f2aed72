"""Cache entries are complete or absent, and are built once."""

import os
import threading
import time
from pathlib import Path

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
    assert not (own_cache / "programs/x").exists()
    assert cache.entry("programs/x", complete).read_text() == "whole"


def test_an_entry_is_built_once() -> None:
    """What is there is not built again."""
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
    """Another content, or the same bytes cut elsewhere, is another key; the path of a file does not matter."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("same")
    two.write_text("same")
    assert cache.key(one) == cache.key(two) == cache.key("same") == cache.key(b"same")
    assert cache.key("a", "bc") != cache.key("ab", "c")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KAVIP_CACHE first, then XDG_CACHE_HOME, then the home directory."""
    monkeypatch.delenv("KAVIP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.root() == tmp_path / "xdg/kavip"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.root() == tmp_path / "home/.cache/kavip"


def test_only_the_latest_entries_are_kept(own_cache: Path) -> None:
    """Older ones of the same kind make room; others stay."""
    for age, name in enumerate(["a-3", "a-2", "a-1", "b-1"]):
        path = cache.entry(name, lambda draft: draft.touch())
        os.utime(path, (age, age))
    cache.prune("a-*", keep=2)
    assert sorted(path.name for path in own_cache.glob("*-*")) == ["a-1", "a-2", "b-1"]
