"""The command line of ``kavip ui``: what it prints."""

import io
import sys

import pytest

from kavip.cli.commands.ui import _announcer


class Closed(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, _: str) -> int:
        """Fail as a pipe does."""
        raise BrokenPipeError


def test_the_page_stays_open_if_nobody_reads_its_messages(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A link that cannot be printed is no error of the request that has used the one before."""
    announce = _announcer()
    announce("http://first")
    assert capsys.readouterr().out == "Open http://first\n"
    monkeypatch.setattr(sys, "stderr", Closed())
    announce("http://second")
