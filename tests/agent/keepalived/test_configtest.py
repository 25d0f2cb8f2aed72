"""Asking keepalived: only a program that tells right from wrong is believed; what it prints is not passed on."""

from pathlib import Path

import pytest

from kavip.agent.config.localize import empty
from kavip.agent.keepalived import configtest as trials
from kavip.agent.keepalived.bisect import located
from kavip.agent.keepalived.configtest import Program, Trial, stranger
from kavip.agent.keepalived.rundir import RunDirectory

KEEPALIVED = "/usr/sbin/keepalived"
INSTANCE = """\
global_defs {
    router_id edge
    dynamic_interfaces
}
vrrp_instance shop/web {
    interface eth0
    virtual_router_id 7
    virtual_ipaddress {
        192.0.2.130/32 dev eth0
    }
}
"""


def trial_of(program: str, folder: Path) -> Trial:
    """A trial in *folder*."""
    return Trial(program, RunDirectory(folder), node="n1")


def script(path: Path, text: str) -> str:
    """A program of our own in the place of keepalived."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def fault_of(program: str, folder: Path, text: str) -> str:
    """What the state would say of *text*: how it was refused, and where, in words; "" where it was not."""
    found = trial_of(program, folder).judge(text)
    if found is None:
        return ""
    places = [f"{name}: {fault.reason}" for name, fault in located(text, found).items()]
    return "; ".join(places) or found.reason


@pytest.mark.parametrize("program", ["/bin/true", "/bin/false", "/bin/cat", "/nonexistent/keepalived"])
def test_a_program_that_does_not_check_is_not_believed(tmp_path: Path, program: str) -> None:
    """One that accepts or refuses everything, or is not there, cannot let a configuration pass."""
    assert "does not tell a right one from a wrong one" in fault_of(program, tmp_path, empty("n1").text)


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything that it started."""
    monkeypatch.setattr(trials, "TIMEOUT", 0.1)
    program = script(tmp_path / "slow", "sleep 600 & wait")
    assert fault_of(program, tmp_path, empty("n1").text) != ""
    assert trial_of(program, tmp_path).program().version == ""


@pytest.mark.slow
def test_a_busy_node_is_no_bad_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that refuses what is wrong, and is late with what is right, was late; that is said, and not believed."""
    monkeypatch.setattr(trials, "TIMEOUT", 4.0)
    candidate = tmp_path / "candidate.conf"
    late = f"grep -q kavip_no_such {candidate} && {{ echo '(x: Line 2) x' >&2; exit 5; }}; sleep 600"
    program = script(tmp_path / "late", late)
    assert fault_of(program, tmp_path, empty("n1").text) == "keepalived --config-test did not end in 4 s"


def test_a_crash_and_a_remark_are_refusals(tmp_path: Path) -> None:
    """Exit status 0 with a word on stderr is not enough; a signal is named."""
    told = 'case "$*" in *use-file*) grep -q kavip_no_such {file} && {{ echo "(Line 2) x" >&2; exit 5; }};; esac\n'
    begin = (
        told.format(file=tmp_path / "candidate.conf")
        + f"grep -q 'router_id n1' {tmp_path / 'candidate.conf'} && exit 0\n"
    )
    for end, said in (
        ("echo remark >&2", "keepalived --config-test: exit status 0"),
        ("kill -SEGV $$", "keepalived --config-test: signal 11"),
        (
            "echo '(candidate.conf: Line 5) secret' >&2; exit 5",
            "shop/web: keepalived --config-test: exit status 5, line 1 of the instance",
        ),
    ):
        fault = fault_of(script(tmp_path / "program", begin + end), tmp_path, INSTANCE)
        assert said in fault
        assert "remark" not in fault and "secret" not in fault


def test_nothing_is_left_of_a_trial(tmp_path: Path) -> None:
    """What was checked may hold the password."""
    trial_of("/bin/false", tmp_path).judge(INSTANCE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "known"),
    [("2.2.7", True), ("2.2.8", True), ("2.3", True), ("2.3.4", True), ("2.2.6", False), ("2.4.0", False), ("", False)],
)
def test_a_version_that_was_not_tried_is_named(version: str, known: bool) -> None:
    """Other keepaliveds read configurations otherwise."""
    assert (stranger(version) == "") is known
    assert version in stranger(version) or known


@pytest.mark.netns
def test_keepalived_says_who_it_is(tmp_path: Path) -> None:
    """Its version, and the signal by which it dumps JSON."""
    assert trial_of(KEEPALIVED, tmp_path).program() == Program(version="2.2.7", json_signal=36)


@pytest.mark.netns
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("virtual_router_id 7", "virtual_router_id 7", ""),
        ("virtual_router_id 7", "virtual_router_id", "exit status 2"),
        (
            "virtual_router_id 7",
            "virtual_router_id 7\n    no_such_keyword",
            "shop/web: keepalived --config-test: exit status 5, line 4 of the instance",
        ),
        ("interface eth0", "interface eth0\n    state UP", "exit status 5"),
        ("router_id edge", "\\!", "signal "),
    ],
)
def test_keepalived_judges(tmp_path: Path, old: str, new: str, said: str) -> None:
    """The line and its instance are named, its words are not."""
    fault = fault_of(KEEPALIVED, tmp_path, INSTANCE.replace(old, new, 1))
    assert (said in fault) if said else (fault == "")
    assert "no_such_keyword" not in fault and "UP" not in fault
