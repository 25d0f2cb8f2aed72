"""A packed text is read back byte for byte, and nothing that is unpacked grows beyond its bound."""

import base64
import gzip
import hashlib
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.memo import Memory, Recent
from kavip.vrrp import packed
from kavip.vrrp.compact import Unreadable
from kavip.vrrp.config import LONG, Notations, Target, Use, render
from kavip.vrrp.packed import MARKER, MOST_UNPACKED, expand, in_full, is_packed, pack, unpack, unpacked
from kavip.vrrp.sharding import shard_of
from tests.support import build
from tests.support.examples import examples
from tests.vrrp.samples import NEW, annotated, model, nodes, shared

PACKED = Target(notations=Notations(packed=Use.IF_LARGE))
TEXT = "vrrp_instance group/0 {\n    state BACKUP\n}\n"


LINES = ("vrrp_instance a {\n", "vrrp_instance b {\n", "    state BACKUP\n", "}\n", "\n", "vrrp_", "\u00e9")


@contextmanager
def forgotten() -> Iterator[None]:
    """No text has been packed or unpacked before."""
    with pytest.MonkeyPatch.context() as patch:
        for cache in ("_PACKED", "_UNPACKED"):
            patch.setattr(packed, cache, Recent[str](1))
        yield


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_text_is_read_back(text: str) -> None:
    """Whatever it holds, and the same bytes each time; a text that is not packed is returned as it is."""
    short = pack(text)
    assert is_packed(short)
    assert short.isascii()
    assert unpack(short) == unpacked(short) == text
    with forgotten():
        assert pack(text) == short
    assert unpack(f"#{text}") == unpacked(f"#{text}") == f"#{text}"


@examples(200)
@given(
    st.lists(st.sampled_from(LINES), max_size=12),
    st.lists(
        st.tuples(st.integers(0, 14), st.integers(0, 3), st.lists(st.sampled_from(LINES), max_size=3)), max_size=5
    ),
    st.integers(1, 40),
)
def test_the_text_before_changes_no_byte(
    lines: list[str], edits: Sequence[tuple[int, int, list[str]]], size: int
) -> None:
    """Wherever a part ends, and whatever is cut out of the text before or inserted."""
    memory = Memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_PART", size)
        for at, cut, come in [(0, 0, []), *edits]:
            lines[at : at + cut] = come
            text = "".join(lines)
            with forgotten():
                after = pack(text, memory)
            with forgotten():
                assert pack(text) == after
            assert unpack(after) == text
            content = base64.b64decode(after.removeprefix(MARKER))
            assert gzip.decompress(content).decode() == text
            assert after == MARKER + base64.encodebytes(content).decode()


def test_a_part_that_was_the_last_one_may_be_too_short_for_another_place() -> None:
    """The next instance then belongs to it."""
    memory, one, two = Memory(), "vrrp_instance a {\n}\n", "vrrp_instance b {\n}\n"
    with forgotten():
        pack(one, memory)
        after = pack(one + two, memory)
    with forgotten():
        assert pack(one + two) == after


def test_only_what_differs_is_compressed_and_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VIP more or less among thousands: one part of four, and the text from there on."""
    compressed, hashed, deflate, sha256 = list[int](), list[int](), zlib.compressobj, hashlib.sha256

    def compressobj(level: int, *, wbits: int) -> object:
        compressed.append(level)
        return deflate(level, wbits=wbits)

    class Sha256:
        def __init__(self, found: Any = None) -> None:
            self._found = found or sha256()

        def update(self, content: bytes) -> None:
            hashed.append(len(content))
            self._found.update(content)

        def copy(self) -> "Sha256":
            return Sha256(self._found.copy())

        def hexdigest(self) -> str:
            return str(self._found.hexdigest())

    many = [annotated(f"a/s{n:03}", *(f"198.18.{n}.{k}" for k in range(32))) for n in range(200)]
    group, peers, memory = build.group(**NEW, instances=shared(4)), nodes(2), Memory()
    models = [model(group, some, peers) for some in (many, many[1:], many)]
    monkeypatch.setattr(zlib, "compressobj", compressobj)
    monkeypatch.setattr("kavip.vrrp.config.hashlib", SimpleNamespace(sha256=Sha256))
    counts = list[tuple[int, int]]()
    for each in models:
        with forgotten():
            found = render(each, PACKED, memory=memory)
        assert found.hash == sha256(found.text.encode()).hexdigest()[:16]
        counts.append((len(compressed), len(hashed)))
        compressed.clear()
        hashed.clear()
    place = [each.name for each in models[0].instances].index(shard_of("a/s000", 4))
    assert counts == [(4, 5), (1, 4 - place), (1, 4 - place)]


def test_the_first_line_says_how_to_read_it() -> None:
    """The command works."""
    command = MARKER.rpartition("to read it: ")[2]
    done = subprocess.run(["sh", "-c", command], input=pack(TEXT), capture_output=True, text=True, check=True)
    assert done.stdout == TEXT


@pytest.mark.parametrize(
    ("binary", "cause"),
    [
        (b"", "no end"),
        (b"not gzip", "no gzip"),
        (gzip.compress(b"text")[:-5], "no end"),
        (gzip.compress(b"text") + b"more", "more follows"),
        (gzip.compress(b"one") + gzip.compress(b"two"), "more follows"),
        (gzip.compress(b"\xff\xfe"), "not UTF-8"),
        (gzip.compress(b"x" * (MOST_UNPACKED + 1)), "more than 2,000,000 bytes"),
        (gzip.compress(bytes(1 << 24), 9), "more than 2,000,000 bytes"),
    ],
    ids=["empty", "text", "cut", "bytes after it", "two", "no UTF-8", "one byte too much", "mostly zeros"],
)
def test_what_cannot_be_unpacked_has_a_cause(binary: bytes, cause: str) -> None:
    """The agent refuses it with that; the controller and the commands show it as it is."""
    text = MARKER + base64.encodebytes(binary).decode()
    found = unpack(text)
    assert isinstance(found, Unreadable)
    assert cause in found.message
    assert expand(text) == found
    assert unpacked(text) == in_full(text) == text


@pytest.mark.parametrize("body", ["no base64!\n", "AAA\n", "H4sI*\n", "\u00e9\n"])
def test_what_is_no_base64_has_a_cause(body: str) -> None:
    """Nothing of the text is in it."""
    assert unpack(MARKER + body) == Unreadable("what follows its first line is no base64")


def test_the_largest_text_is_unpacked() -> None:
    """One more byte is not."""
    largest = "x" * MOST_UNPACKED
    assert unpack(pack(largest)) == largest
    assert isinstance(unpack(pack(f"{largest}x")), Unreadable)


def test_texts_with_thousands_of_vips_are_packed() -> None:
    """From 128 KiB on, and down to three quarters of that; the hash is that of the text in full."""
    lines = 32
    stays = Target(notations=Notations(packed=Use.UNLESS_SMALL))
    sizes = {}
    for count in (90, 110, 140):
        many = [annotated(f"a/s{n:03}", *(f"198.18.{n}.{k}" for k in range(lines))) for n in range(count)]
        group = model(build.group(**NEW, instances=shared(4)), many, nodes(2))
        full, large, small = render(group), render(group, PACKED), render(group, stays)
        sizes[len(full.text) // 1000] = full.is_packed, large.is_packed, small.is_packed
        assert full.hash == large.hash == small.hash
        assert full.content == large.content == small.content == full.text
        if large.is_packed:
            assert large.size == len(pack(full.text)) < LONG / 4
    assert [*sizes.values()] == [(False, False, False), (False, False, True), (False, True, True)]


def test_what_would_not_be_unpacked_is_oversized(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group reports it in the words of that limit."""
    many = [annotated(f"a/s{n:03}", *(f"198.18.{n}.{k}" for k in range(32))) for n in range(150)]
    group = model(build.group(**NEW, instances=shared(4)), many, nodes(2))
    monkeypatch.setattr(packed, "MOST_UNPACKED", 100_000)
    monkeypatch.setattr("kavip.vrrp.config.MOST_UNPACKED", 100_000)
    found = render(group, PACKED)
    assert found.oversized is not None
    assert f"{len(found.text):,} bytes unpacked, and an agent reads 100,000" in found.oversized.message
