"""Long steps report what they do, how far they are and how they end."""

import re
import time

import pytest

from hack.testbed import progress


def test_a_step_says_why_how_far_and_how_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line at the beginning, at each heartbeat and at the end."""
    monkeypatch.setattr(progress, "HEARTBEAT", 0.02)
    text = ""
    with progress.step("Build x", "because", done=2, of=3):
        while "so far" not in text:
            text += capsys.readouterr().err
            time.sleep(0.01)
    lines = (text + capsys.readouterr().err).splitlines()
    assert lines[0] == "[2/3] Build x: because"
    assert re.fullmatch(r"  \.\.\. \[2/3] Build x: \d+\.\d s so far", lines[1])
    assert re.fullmatch(r"\[2/3] Build x: done in \d+\.\d s", lines[-1])


def test_a_step_that_fails_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The error is raised again, and the line shows the time."""
    with pytest.raises(ValueError, match="no"), progress.step("Try"):
        raise ValueError("no")
    assert re.search(r"Try: FAILED after \d+\.\d s", capsys.readouterr().err)


def test_a_step_shows_what_is_left() -> None:
    """The estimate assumes that the rest takes as long as what is done; there is none before a tenth is done."""
    running = progress.Step("Build x", begun=time.monotonic() - 100)
    assert re.fullmatch(r"1 min 40 s so far", running.state())
    running.advance(9, 100, "packages")
    assert running.state() == "1 min 40 s so far, 9 of 100 packages"
    running.advance(25, 100, "packages")
    assert running.state() == "1 min 40 s so far, 25 of 100 packages, about 5 min 0 s left"
