"""The command line of ``kavip collect``, before a cluster is asked."""

import os
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from kavip.cli.commands.collect import collect
from kavip.cli.sources import bundle
from kavip.cli.views.bundle.contents import Missing
from kavip.errors import SettingsError


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_only_files_are_replaced(tmp_path: Path, name: str) -> None:
    """A pipe or a device, such as /dev/null or /dev/stdout, stays, also behind a symlink."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(SettingsError, match="is no file"):
        CliRunner().invoke(collect, ["--output", str(tmp_path / name), "--kubeconfig", "/none"], catch_exceptions=False)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


def test_a_link_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file behind a symlink is written, and the link stays: root must not lose /dev/stdout."""

    async def read(*_: object, **__: object) -> tuple[dict[str, bytes], list[Missing]]:
        return {"index.json": b"{}"}, []

    monkeypatch.setattr(bundle, "read_bundle", read)
    (tmp_path / "file").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to("file")
    done = CliRunner().invoke(collect, ["--output", str(link)], catch_exceptions=False)
    assert (done.exit_code, done.stdout) == (0, f"{link}\n")
    assert link.is_symlink()
    assert tarfile.is_tarfile(tmp_path / "file")
