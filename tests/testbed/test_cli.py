"""The commands refuse what they cannot understand, with status 2 and the name of the culprit."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from hack.testbed.__main__ import main


@pytest.mark.parametrize(
    ("command", "culprit"),
    [
        (["image", "--tag", "x", "--dockerfile", "absent"], "absent"),
        (["image", "--dockerfile", __file__], "--tag"),
        (["up", "--nodes", "many"], "many"),
        (["load", "absent.tar"], "absent.tar"),
        (["dance"], "dance"),
    ],
)
def test_bad_arguments_are_named(command: list[str], culprit: str) -> None:
    """Nothing is started."""
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert culprit in result.output


def test_down_without_a_run_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as the user wants it already."""
    monkeypatch.setenv("KAVIP_CACHE", str(tmp_path))
    result = CliRunner().invoke(main, ["down"])
    assert result.exit_code == 0
    assert "there is no run named default" in result.output
