"""The config test: only a program that distinguishes right from wrong is trusted; its output is not passed on."""

from pathlib import Path

import pytest

from kavip.agent.config.localize import empty
from kavip.agent.keepalived import configtest as configtest
from kavip.agent.keepalived.bisect import located
from kavip.agent.keepalived.configtest import ConfigTest, Program, version_problem
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.api.agent import ProblemCode
from tests.vrrp.livedaemons import installed_version

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


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is too slow: a busy machine may stop one for seconds."""
    monkeypatch.setattr(configtest, "TIMEOUT", 60.0)


def config_test(program: str, folder: Path) -> ConfigTest:
    """A config test in *folder*."""
    return ConfigTest(program, RunDirectory(folder), node="n1")


def script(path: Path, text: str) -> str:
    """A shell script in place of keepalived."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def fault_of(program: str, folder: Path, text: str) -> str:
    """The messages for *text*, with instances if there are any; "" if it passes."""
    found = config_test(program, folder).check(text)
    if found is None:
        return ""
    places = [f"{name}: {fault.message}" for name, fault in located(text, found).items()]
    return "; ".join(places) or found.problem.message


@pytest.mark.parametrize("program", ["/bin/true", "/bin/false", "/bin/cat", "/nonexistent/keepalived"])
def test_a_program_that_does_not_test_is_not_trusted(tmp_path: Path, program: str) -> None:
    """One that accepts or refuses everything, or does not exist."""
    assert "does not distinguish a right configuration from a wrong one" in fault_of(
        program, tmp_path, empty("n1").text
    )


def test_a_program_that_hangs_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With all processes that it started."""
    monkeypatch.setattr(configtest, "TIMEOUT", 0.1)
    program = script(tmp_path / "slow", "sleep 600 & wait")
    assert fault_of(program, tmp_path, empty("n1").text) != ""
    assert config_test(program, tmp_path).program().version == ""


@pytest.mark.slow
def test_a_slow_program_is_reported_as_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses the wrong text, and is too late with the right one."""
    monkeypatch.setattr(configtest, "TIMEOUT", 10.0)
    candidate = tmp_path / "candidate.conf"
    late = f"grep -q kavip_no_such {candidate} && {{ echo '(x: Line 2) x' >&2; exit 5; }}; sleep 600"
    program = script(tmp_path / "late", late)
    assert fault_of(program, tmp_path, empty("n1").text) == "keepalived --config-test did not end within 10 s"


def test_a_crash_and_a_remark_are_refusals(tmp_path: Path) -> None:
    """Exit status 0 with output on stderr is not enough; a signal is named."""
    body = 'case "$*" in *use-file*) grep -q kavip_no_such {file} && {{ echo "(Line 2) x" >&2; exit 5; }};; esac\n'
    begin = (
        body.format(file=tmp_path / "candidate.conf")
        + f"grep -q 'router_id n1' {tmp_path / 'candidate.conf'} && exit 0\n"
    )
    for end, expected in (
        ("echo remark >&2", "keepalived --config-test: exit status 0"),
        ("kill -SEGV $$", "keepalived --config-test: signal 11"),
        (
            "echo '(candidate.conf: Line 5) secret' >&2; exit 5",
            "shop/web: keepalived --config-test: exit status 5, line 1 of the instance",
        ),
    ):
        fault = fault_of(script(tmp_path / "program", begin + end), tmp_path, INSTANCE)
        assert expected in fault
        assert "remark" not in fault and "secret" not in fault


def test_the_tested_file_is_removed(tmp_path: Path) -> None:
    """It may hold the password."""
    config_test("/bin/false", tmp_path).check(INSTANCE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("version", "known"),
    [("2.2.7", True), ("2.2.8", True), ("2.3", True), ("2.3.4", True), ("2.2.6", False), ("2.4.0", False), ("", False)],
)
def test_an_untested_version_is_a_problem(version: str, known: bool) -> None:
    """Other versions of keepalived read configurations differently."""
    problem = version_problem(version)
    assert (problem is None) is known
    assert problem is None or (problem.code is ProblemCode.KEEPALIVED_UNTESTED and version in problem.message)


@pytest.mark.netns
def test_keepalived_reports_its_version_and_dump_signal(tmp_path: Path) -> None:
    """The real one."""
    assert config_test(KEEPALIVED, tmp_path).program() == Program(version=installed_version(), json_signal=36)


@pytest.mark.netns
@pytest.mark.parametrize(
    ("old", "new", "expected"),
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
def test_keepalived_tests_configurations(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """The messages name line and instance, and quote nothing."""
    fault = fault_of(KEEPALIVED, tmp_path, INSTANCE.replace(old, new, 1))
    assert (expected in fault) if expected else (fault == "")
    assert "no_such_keyword" not in fault and "UP" not in fault
