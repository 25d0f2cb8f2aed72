"""Health checks against a real server, with real track files."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kavip.agent.health.checks import HealthChecks
from kavip.agent.keepalived.trackfiles import TrackFiles
from kavip.api.group import Check
from kavip.vrrp.targets import NodeEndpoints
from tests.support.streamserver import stream_server

PATIENCE = 60.0
INTERVAL = 0.05
"""Seconds between two requests; a group cannot set less than 1."""


class Service:
    """
    A server on loopback that answers with *status* and counts the requests; with None it does not answer.

    *answers* are its answers, each with the result of *look* at that moment.
    """

    def __init__(self) -> None:
        self.status: int | None = 200
        self.requests = 0
        self.look: Callable[[], str] = str
        self.answers: list[tuple[int | None, str]] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Service"]:
        """Serve for the duration of the context."""
        async with stream_server(self._serve) as self.port:
            yield self

    def check(self, name: str = "web", **more: Any) -> Check:
        """A check of this server with short times."""
        usual: dict[str, Any] = {
            "fail_after": 2,
            "succeed_after": 2,
            "interval_seconds": INTERVAL,
            "timeout_seconds": PATIENCE,  # a busy machine fails no check
        }
        return Check(name, f"http://127.0.0.1:{self.port}/", **{**usual, **more})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        self.answers.append((self.status, self.look()))
        if self.status is not None:
            writer.write(f"HTTP/1.1 {self.status} x\r\n\r\n".encode())
        await reader.read()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """A healthy server."""
    async with Service().listening() as listening:
        yield listening


@pytest.fixture
async def checks(tmp_path: Path) -> AsyncIterator[HealthChecks]:
    """The checks of one agent."""
    made = new_checks(tmp_path)
    yield made
    await made.close()


def new_checks(folder: Path) -> HealthChecks:
    """The checks of an agent that has just started."""
    return HealthChecks(TrackFiles(folder / "track"), ca_dir=folder / "ca", environment=NodeEndpoints("127.0.0.1"))


async def until(ready: Callable[[], bool]) -> None:
    """Wait until *ready*."""
    async with asyncio.timeout(PATIENCE):
        while not ready():
            await asyncio.sleep(0.01)


def held(folder: Path, name: str = "check-web") -> str:
    """The content of a track file."""
    return (folder / "track" / name).read_text().strip()


async def test_a_check_may_expect_one_status(checks: HealthChecks, service: Service, tmp_path: Path) -> None:
    """A status that passes usually fails the check."""
    service.status = 204
    await checks.run_once([service.check(), service.check("exact", expected_status=200)])
    assert (held(tmp_path), held(tmp_path, "check-exact")) == ("0", "1")


async def test_a_track_file_follows_the_check(checks: HealthChecks, service: Service, tmp_path: Path) -> None:
    """It changes after the number of answers that the check requires; the status has the time and the reason."""
    await checks.configure([service.check()])
    assert held(tmp_path) == "0"
    await until(lambda: checks.statuses[0].since != "")
    assert checks.statuses[0].message == "status 200"
    service.status, service.look = 503, lambda: held(tmp_path)
    await until(lambda: held(tmp_path) == "1")
    assert service.answers.count((503, "0")) == 2
    (failed,) = checks.statuses
    assert (failed.message, failed.health.fails) == ("status 503", True)
    service.status = 200
    await until(lambda: held(tmp_path) == "0")
    assert service.answers.count((200, "1")) == 2
    assert checks.statuses[0].since > failed.since
    assert checks.statuses[0].seconds > 0


async def test_a_check_that_hangs_does_not_delay_another(
    checks: HealthChecks, service: Service, tmp_path: Path
) -> None:
    """Each check runs at its own interval."""
    async with Service().listening() as silent:
        silent.status = None
        await checks.configure([service.check(), silent.check("slow", interval_seconds=30, timeout_seconds=30)])
        await until(lambda: service.requests >= 2)
        assert [each.message for each in checks.statuses] == ["not run yet", "status 200"]
        assert held(tmp_path, "check-slow") == "0"


async def test_checks_are_added_removed_and_changed(checks: HealthChecks, service: Service, tmp_path: Path) -> None:
    """An unchanged check continues, a changed one runs at once, a removed one has no effect."""
    service.status = 500
    await checks.configure([service.check(), service.check("b", interval_seconds=600, fail_after=1)])
    await until(lambda: held(tmp_path, "check-b") == "1")
    count = service.requests
    await checks.configure([service.check("b", interval_seconds=600, fail_after=1)])
    await checks.configure([service.check("b", interval_seconds=600, fail_after=1)])
    assert [each.check.name for each in checks.statuses] == ["b"]
    service.status = 200
    await checks.configure([service.check("b", interval_seconds=INTERVAL)])
    assert held(tmp_path, "check-b") == "1"  # the result of the check is kept
    await until(lambda: held(tmp_path, "check-b") == "0")
    assert service.requests >= count + 2
    await checks.configure([])
    assert checks.statuses == ()


async def test_each_check_runs_once_before_keepalived_starts(service: Service, tmp_path: Path) -> None:
    """A node whose service fails takes no VIP in its first seconds."""
    async with Service().listening() as well:
        service.status = 503
        await new_checks(tmp_path).run_once([service.check(), well.check("well")])
    assert (held(tmp_path), held(tmp_path, "check-well")) == ("1", "0")


async def test_a_restarted_agent_keeps_the_results(service: Service, tmp_path: Path) -> None:
    """A failed check stays failed until it has passed the required number of times."""
    service.status = 503
    await new_checks(tmp_path).run_once([service.check(succeed_after=100)])
    service.status = 200
    again = new_checks(tmp_path)
    await again.configure([service.check(succeed_after=100)])
    assert again.statuses[0].since != ""
    await until(lambda: again.statuses[0].message == "status 200")
    assert held(tmp_path) == "1"
    await again.close()


async def test_no_request_is_sent_to_an_invalid_url(checks: HealthChecks, tmp_path: Path) -> None:
    """Such a check bypassed admission; it removes no VIP."""
    wrong = Check("web", "http://user:hunter2@192.0.2.1/")
    await checks.configure([wrong])
    await until(lambda: checks.statuses[0].message.startswith("not asked: this node cannot ask its url"))
    assert held(tmp_path) == "0"
    assert "hunter2" not in checks.statuses[0].message


@pytest.mark.parametrize("times", [(0, 1), (-5, 1), (10**400, 1), (1, 0), (1, -1)])
async def test_a_check_with_invalid_times_does_not_run(
    checks: HealthChecks, service: Service, tmp_path: Path, times: tuple[int, int]
) -> None:
    """Such a check bypassed admission; no server gets requests without a pause, and no VIP moves."""
    interval, timeout = times
    wrong = service.check("wrong", interval_seconds=interval, timeout_seconds=timeout)
    await checks.configure([wrong, service.check()])
    await until(lambda: service.requests > 0)
    assert [each.check.name for each in checks.statuses] == ["web"]
    assert [path.name for path in (tmp_path / "track").iterdir()] == ["check-web"]


@pytest.mark.parametrize("name", ["", "../web", "a/b", "Web", "web\n", "a.b", "w" * 64])
async def test_a_check_with_an_invalid_name_does_not_run(
    checks: HealthChecks, service: Service, tmp_path: Path, name: str
) -> None:
    """A track file is named after its check."""
    await checks.configure([service.check(name), service.check()])
    await checks.run_once([service.check(name), service.check()])
    assert [each.check.name for each in checks.statuses] == ["web"]
    assert [path.name for path in (tmp_path / "track").iterdir()] == ["check-web"]


async def test_the_api_servers_ca_must_be_mounted(checks: HealthChecks) -> None:
    """The preset always verifies the certificate; the message says what is missing."""
    await checks.configure([Check("api", "kube-apiserver", on_failure="LowerPriority")])
    await until(lambda: checks.statuses[0].blocked != "")
    assert "is not mounted" in checks.statuses[0].message
    assert not checks.statuses[0].health.fails


async def test_a_check_without_its_ca_keeps_its_result(service: Service, tmp_path: Path) -> None:
    """A new check passes, and a failed check stays failed."""
    service.status = 503
    await new_checks(tmp_path).run_once([service.check(), Check("api", "kube-apiserver")])
    assert held(tmp_path, "check-api") == "0"
    again = new_checks(tmp_path)
    await again.configure([Check("web", "kube-apiserver", succeed_after=1)])
    await until(lambda: again.statuses[0].blocked != "")
    assert held(tmp_path) == "1"
    await again.close()


async def test_a_new_check_beside_a_running_keepalived_must_fail_often_enough(
    checks: HealthChecks, service: Service, tmp_path: Path
) -> None:
    """All nodes get it at the same moment, so its first answer decides nothing."""
    service.status, service.look = 503, lambda: held(tmp_path)
    await checks.configure([service.check(fail_after=9)])
    await until(lambda: held(tmp_path) == "1")
    assert service.answers.count((503, "0")) == 9
