"""The command line of ``kavip collect``, before a cluster is asked."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from kavip.cli.commands.collect import collect
from kavip.errors import SettingsError


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_only_files_are_replaced(tmp_path: Path, name: str) -> None:
    """A pipe or a device, such as /dev/null or /dev/stdout, stays, also behind a symlink."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(SettingsError, match="is no file"):
        CliRunner().invoke(collect, ["--output", str(tmp_path / name), "--kubeconfig", "/none"], catch_exceptions=False)
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()
