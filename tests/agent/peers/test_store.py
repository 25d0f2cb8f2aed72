"""The last nodes on disk."""

from pathlib import Path

import pytest

from kavip.agent.peers import store
from kavip.agent.peers.membership import Record
from kavip.api.address import parse_address

ONE, TWO = parse_address("192.0.2.11"), parse_address("2001:db8::11")


def test_a_record_outlives_the_agent(tmp_path: Path) -> None:
    """Everything comes back as it was saved, and the same record gives the same bytes."""
    record = Record({"n1": (ONE, TWO)}, frozenset({"n1"}), frozenset({"n2"}), True, {"n1": frozenset({ONE, TWO})})
    store.save(tmp_path, record)
    content = (tmp_path / store.FILE).read_bytes()
    assert store.load(tmp_path) == record
    store.save(tmp_path, store.load(tmp_path))
    assert (tmp_path / store.FILE).read_bytes() == content


@pytest.mark.parametrize("content", [b"", b"{", b'{"nodes": 1}', b"\xff", b"[" * 100_000])
def test_a_damaged_record_is_empty(tmp_path: Path, content: bytes) -> None:
    """The agent starts without it; so it does without a file."""
    assert store.load(tmp_path) == Record()
    (tmp_path / store.FILE).write_bytes(content)
    assert store.load(tmp_path) == Record()


def test_a_text_that_is_no_address_is_left_out(tmp_path: Path) -> None:
    """Nothing else gets from the file into a configuration."""
    (tmp_path / store.FILE).write_text('{"accepted": {"n1": ["192.0.2.11", "x } y"]}}')
    assert store.load(tmp_path).accepted == {"n1": {ONE}}
