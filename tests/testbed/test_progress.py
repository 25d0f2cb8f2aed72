"""Long steps say what they do and that they are still at it."""

import time

import pytest

from hack.testbed import progress


def test_a_step_says_why_how_far_and_how_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins, beats and ends with a line each."""
    monkeypatch.setattr(progress, "HEARTBEAT", 0.02)
    with progress.step("Build x", "because", done=2, of=3):
        time.sleep(0.05)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "[2/3] Build x: because"
    assert said[1] == "  ... [2/3] Build x: 0.0 s so far"
    assert said[-1].startswith("[2/3] Build x: done in 0.")


def test_a_step_that_fails_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """The error goes on, and the line tells after how long."""
    with pytest.raises(ValueError, match="no"), progress.step("Try"):
        raise ValueError("no")
    assert "Try: FAILED after 0.0 s" in capsys.readouterr().err
