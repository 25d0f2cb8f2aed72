"""The commands refuse what they cannot understand, with status 2 and the name of the culprit."""

import subprocess
import sys
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


UI = """
from contextlib import contextmanager
from hack.testbed import __main__ as testbed

@contextmanager
def served(cluster, *, messages):
    yield "http://127.0.0.1:1/"
    print("all is ended", flush=True)

testbed.Cluster.attach = lambda *_: None
testbed.programs.ensure = lambda: None
testbed.livepage.served = served
testbed.main(["ui"])
"""


def test_ui_ends_what_it_started_when_it_is_terminated() -> None:
    """SIGTERM ends it as Ctrl-C does."""
    with subprocess.Popen([sys.executable, "-c", UI], stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        assert page.stdout.readline() == "Open http://127.0.0.1:1/\n"
        page.terminate()
        assert page.communicate(timeout=60)[0] == "all is ended\n"
        assert page.returncode == 0
