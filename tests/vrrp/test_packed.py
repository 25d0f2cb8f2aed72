"""A packed text is read back byte for byte, and nothing that is unpacked grows beyond its bound."""

import base64
import gzip
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.memo import Memory, Recent
from kavip.vrrp import packed
from kavip.vrrp.compact import Unreadable
from kavip.vrrp.config import LONG, Notations, Target, Use, render
from kavip.vrrp.packed import MARKER, MOST_UNPACKED, expand, in_full, is_packed, pack, unpack, unpacked
from tests.support import build
from tests.support.examples import examples
from tests.vrrp.samples import NEW, annotated, model, nodes, shared

PACKED = Target(notations=Notations(packed=Use.IF_LARGE))
TEXT = "vrrp_instance group/0 {\n    state BACKUP\n}\n"


PARTS = ("vrrp_instance a {\n", "vrrp_instance b {\n", "    state BACKUP\n", "}\n", "\n", "vrrp_", "\u00e9")


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
@given(st.lists(st.lists(st.sampled_from(PARTS), max_size=12).map("".join), min_size=2, max_size=5), st.integers(1, 40))
def test_the_text_before_changes_no_byte(texts: Sequence[str], size: int) -> None:
    """Wherever a part ends, and with whatever follows it."""
    memory = Memory()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "_PART", size)
        for text in texts:
            with forgotten():
                after = pack(text, memory)
            with forgotten():
                assert pack(text) == after
            assert unpack(after) == text
            assert gzip.decompress(base64.b64decode(after.removeprefix(MARKER))).decode() == text


def test_only_the_part_that_differs_is_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A VIP more or less among thousands."""
    memory, calls, deflate = Memory(), list[int](), zlib.compressobj

    def compressobj(level: int, *, wbits: int) -> object:
        calls.append(level)
        return deflate(level, wbits=wbits)

    monkeypatch.setattr(zlib, "compressobj", compressobj)
    many = [annotated(f"a/s{n:03}", *(f"198.18.{n}.{k}" for k in range(32))) for n in range(200)]
    group, peers, found = build.group(**NEW, instances=shared(4)), nodes(2), list[int]()
    for some in (many, many[1:], many):
        text = render(model(group, some, peers)).text
        with forgotten():
            pack(text, memory)
        found.append(len(calls))
    assert found == [4, 5, 6]


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
