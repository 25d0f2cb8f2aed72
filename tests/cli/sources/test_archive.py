"""The archive of a bundle: reproducible bytes, and a file that is whole or absent."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from kavip.cli.sources.archive import archive, write

FILES = {"index.json": b"{}\n", "logs/lb/n1.log": b"line\n" * 1000}


def test_the_same_files_make_the_same_bytes() -> None:
    """Order, mode, owner and time of the members do not depend on when and where they are made."""
    packed = archive(FILES, folder="kavip-1")
    assert packed == archive(dict(FILES), folder="kavip-1")
    assert packed[4:8] == b"\0\0\0\0"  # the time in the header of gzip
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        members = tar.getmembers()
        assert [each.name for each in members] == ["kavip-1/index.json", "kavip-1/logs/lb/n1.log"]
        for each in members:
            stream = tar.extractfile(each)
            assert stream is not None and stream.read() == FILES[each.name.partition("/")[2]]
            assert (each.isfile(), each.mode, each.uid, each.gid, each.uname, each.mtime) == (
                *(True, 0o600, 0, 0, ""),
                315_532_800,
            )


def test_only_the_owner_reads_the_file(tmp_path: Path) -> None:
    """The file replaces an older one, and others may not read it."""
    path = tmp_path / "bundle.tar.gz"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)
    assert os.listdir(tmp_path) == ["bundle.tar.gz"]


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    """What cannot be put into its place is removed."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError):
        write(tmp_path / "taken", b"new")
    assert os.listdir(tmp_path) == ["taken"]
