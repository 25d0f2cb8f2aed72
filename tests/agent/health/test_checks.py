"""Health checks as the agent runs them: against a real server, into real track files."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kavip.agent.health.checks import Checks
from kavip.agent.keepalived.trackfiles import Tracks
from kavip.api.group import Check
from kavip.vrrp.targets import NodeEndpoints

PATIENCE = 20.0
PACE = 0.05
"""Seconds between two questions; a group cannot say less than 1."""


class Service:
    """
    A server on loopback that answers with *status* and counts; None says nothing at all.

    *answers* are those that it gave, each with what *look* saw then: how often it is asked later is a matter of pace.
    """

    def __init__(self) -> None:
        self.status: int | None = 200
        self.asked = 0
        self.look: Callable[[], str] = str
        self.answers: list[tuple[int | None, str]] = []
        self.port = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Service"]:
        """Serve as long as the context lasts."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    def check(self, name: str = "web", **more: Any) -> Check:
        """A check of this server, quick to judge."""
        usual: dict[str, Any] = {"fail_after": 2, "succeed_after": 2, "interval_seconds": PACE, "timeout_seconds": 1}
        return Check(name, f"http://127.0.0.1:{self.port}/", **{**usual, **more})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            self.answers.append((self.status, self.look()))
            if self.status is not None:
                writer.write(f"HTTP/1.1 {self.status} x\r\n\r\n".encode())
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    """A server that is well."""
    async with Service().listening() as listening:
        yield listening


@pytest.fixture
async def checks(tmp_path: Path) -> AsyncIterator[Checks]:
    """An agent's checks."""
    made = fresh(tmp_path)
    yield made
    await made.close()


def fresh(folder: Path) -> Checks:
    """The checks of an agent that has just started."""
    return Checks(Tracks(folder / "track"), ca_dir=folder / "ca", here=NodeEndpoints("127.0.0.1"))


async def until(ready: Callable[[], bool]) -> None:
    """Wait until *ready*."""
    async with asyncio.timeout(PATIENCE):
        while not ready():
            await asyncio.sleep(0.01)


def held(folder: Path, name: str = "check-web") -> str:
    """What stands in a track file."""
    return (folder / "track" / name).read_text().strip()


async def test_a_service_that_fails_and_comes_back(checks: Checks, service: Service, tmp_path: Path) -> None:
    """As many answers as the check says, at its interval, then the file; the state says since when and why."""
    await checks.want([service.check()])
    assert held(tmp_path) == "0"
    await until(lambda: checks.asked[0].since != "")
    assert checks.asked[0].message == "status 200"
    service.status, service.look = 503, lambda: held(tmp_path)
    await until(lambda: held(tmp_path) == "1")
    assert service.answers.count((503, "0")) == 2
    (asked,) = checks.asked
    assert (asked.message, asked.health.fails) == ("status 503", True)
    service.status = 200
    await until(lambda: held(tmp_path) == "0")
    assert service.answers.count((200, "1")) == 2
    assert checks.asked[0].since > asked.since
    assert checks.asked[0].seconds > 0


async def test_one_that_hangs_does_not_hold_up_another(checks: Checks, service: Service, tmp_path: Path) -> None:
    """Each check has a pace of its own."""
    async with Service().listening() as silent:
        silent.status = None
        await checks.want([service.check(), silent.check("slow", interval_seconds=30, timeout_seconds=30)])
        await until(lambda: service.asked >= 2)
        assert [each.message for each in checks.asked] == ["not asked yet", "status 200"]
        assert held(tmp_path, "check-slow") == "0"


async def test_checks_come_go_and_change(checks: Checks, service: Service, tmp_path: Path) -> None:
    """What does not change runs on; what changes is asked anew; one that is gone holds nobody down."""
    service.status = 500
    await checks.want([service.check(), service.check("b", interval_seconds=600, fail_after=1)])
    await until(lambda: held(tmp_path, "check-b") == "1")
    count = service.asked
    await checks.want([service.check("b", interval_seconds=600, fail_after=1)])
    await checks.want([service.check("b", interval_seconds=600, fail_after=1)])
    assert [each.check.name for each in checks.asked] == ["b"]
    service.status = 200
    await checks.want([service.check("b", interval_seconds=PACE)])
    assert held(tmp_path, "check-b") == "1"  # it is the same check
    await until(lambda: held(tmp_path, "check-b") == "0")
    assert service.asked >= count + 2
    await checks.want([])
    assert checks.asked == ()


async def test_keepalived_starts_with_what_is_true(service: Service, tmp_path: Path) -> None:
    """Before it is there each check is asked once: a node whose service fails takes no VIP in its first seconds."""
    async with Service().listening() as well:
        service.status = 503
        await fresh(tmp_path).ask_once([service.check(), well.check("well")])
    assert (held(tmp_path), held(tmp_path, "check-well")) == ("1", "0")


async def test_an_agent_that_starts_again_remembers(service: Service, tmp_path: Path) -> None:
    """The check that failed before still does until it has passed as often as it must, and the other way round."""
    service.status = 503
    await fresh(tmp_path).ask_once([service.check(succeed_after=100)])
    service.status = 200
    again = fresh(tmp_path)
    await again.want([service.check(succeed_after=100)])
    assert again.asked[0].since != ""
    await until(lambda: again.asked[0].message == "status 200")
    assert held(tmp_path) == "1"
    await again.close()


async def test_a_url_that_nobody_can_ask(checks: Checks, tmp_path: Path) -> None:
    """It slipped past admission: it is not asked, and takes no VIP away."""
    wrong = Check("web", "http://user:hunter2@192.0.2.1/")
    await checks.want([wrong])
    await until(lambda: checks.asked[0].message.startswith("not asked: its url"))
    assert held(tmp_path) == "0"
    assert "hunter2" not in checks.asked[0].message


@pytest.mark.parametrize("times", [(0, 1), (-5, 1), (10**400, 1), (1, 0), (1, -1)])
async def test_times_that_cannot_be_are_no_check(
    checks: Checks, service: Service, tmp_path: Path, times: tuple[int, int]
) -> None:
    """They slipped past admission: nobody is asked without a pause, and no VIP goes."""
    interval, timeout = times
    wrong = service.check("wrong", interval_seconds=interval, timeout_seconds=timeout)
    await checks.want([wrong, service.check()])
    await until(lambda: service.asked > 0)
    assert [each.check.name for each in checks.asked] == ["web"]
    assert [path.name for path in (tmp_path / "track").iterdir()] == ["check-web"]


@pytest.mark.parametrize("name", ["", "../web", "a/b", "Web", "web\n", "a.b", "w" * 64])
async def test_a_name_becomes_no_path(checks: Checks, service: Service, tmp_path: Path, name: str) -> None:
    """Files are named after checks; one that no definition would have let in is not run."""
    await checks.want([service.check(name), service.check()])
    await checks.ask_once([service.check(name), service.check()])
    assert [each.check.name for each in checks.asked] == ["web"]
    assert [path.name for path in (tmp_path / "track").iterdir()] == ["check-web"]


async def test_the_api_servers_ca_must_be_mounted(checks: Checks) -> None:
    """The preset never does without; the answer says what is missing."""
    await checks.want([Check("api", "kube-apiserver", on_failure="LowerPriority")])
    await until(lambda: checks.asked[0].stuck)
    assert "is not mounted" in checks.asked[0].message
    assert not checks.asked[0].health.fails


async def test_a_ca_that_comes_with_the_next_pod_takes_no_vip(service: Service, tmp_path: Path) -> None:
    """A check that cannot be asked stays what it was: well where it is new, failing where it failed."""
    service.status = 503
    await fresh(tmp_path).ask_once([service.check(), Check("api", "kube-apiserver")])
    assert held(tmp_path, "check-api") == "0"
    again = fresh(tmp_path)
    await again.want([Check("web", "kube-apiserver", succeed_after=1)])
    await until(lambda: again.asked[0].stuck)
    assert held(tmp_path) == "1"
    await again.close()


async def test_a_new_check_beside_a_daemon_has_to_fail_as_often_as_it_must(
    checks: Checks, service: Service, tmp_path: Path
) -> None:
    """All nodes have it at the same moment; its first answer decides nothing."""
    service.status, service.look = 503, lambda: held(tmp_path)
    await checks.want([service.check(fail_after=9)])
    await until(lambda: held(tmp_path) == "1")
    assert service.answers.count((503, "0")) == 9
