"""Daemons that misbehave on a reload: what is put back, and when the configuration is tried again."""

import asyncio
import contextlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import structlog

from kavip.agent import main, netlink
from kavip.agent import reconciler as reloaders
from kavip.agent.config.facts import Held, Route
from kavip.agent.config.localize import localize
from kavip.agent.joining import PAUSE
from kavip.agent.keepalived import monitor, penalty, reload
from kavip.agent.keepalived.configtest import Program, Trial
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.mount import Passwords
from kavip.agent.reconciler import Reloader
from kavip.agent.watch import Alarm
from kavip.api.address import Address
from tests.agent import scene

pytestmark = pytest.mark.slow

# A stand-in for keepalived that can be told to misbehave, which the real one cannot: on SIGHUP it reads its file,
# except that "deaf" makes it ignore what it reads and "lethal" makes it exit.
_DAEMON = """
import json, os, signal, sys, tempfile, time
from kavip.agent.config import validate
folder, config = sys.argv[1], sys.argv[2].partition("=")[2]
shown = []
def load(first):
    global shown
    text = open(config).read()
    if "lethal" in text:
        sys.exit(2)
    if "deaf" in text and not first:
        return
    shown = [
        {"data": {"iname": each.name, "vrid": each.router_id, "state": 1, "base_priority": each.priority,
                  "vips": [f"{vip} dev lo" for vip in each.virtual_ips]}}
        for each in validate.read(text).instances
    ]
def dump(name, content):
    handle, path = tempfile.mkstemp(dir=folder)
    os.write(handle, content.encode())
    os.close(handle)
    os.rename(path, f"{folder}/{name}")
load(True)
signal.signal(signal.SIGHUP, lambda *_: load(False))
signal.signal(signal.SIGUSR1, lambda *_: dump("keepalived_parent.data", "x"))
signal.signal(36, lambda *_: dump("keepalived.json", json.dumps(shown)))
print("up", flush=True)
while True:
    time.sleep(600)
"""

_PROGRAM = """#!/bin/sh
for each; do
  case "$each" in --use-file=*) grep -q kavip_no_such "${each#*=}" && { echo "(x: Line 2) x" >&2; exit 5; } ;; esac
done
exit 0
"""

ONE = scene.rendered({"shop/web": "198.18.0.1"}, nodes=1, interface="lo", unicast_enabled=False)
TWO = scene.rendered({"shop/web": "198.18.0.1", "shop/b": "198.18.0.2"}, nodes=1, interface="lo", unicast_enabled=False)

PATIENT, SHORT = 30.0, 0.3
"""Seconds until a reload counts as failed: however busy the machine is; and for a daemon that will never confirm it."""


def spawn(command: list[str]) -> subprocess.Popen[str]:
    """Start a disguised Python, and return when it says that it is up."""
    started = subprocess.Popen(
        command, executable=sys.executable, env=scene.disguised(), stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "up\n"
    return started


@dataclass
class Node:
    """A reloader beside a stand-in."""

    folder: Path
    reloader: Reloader
    mount: scene.Mount
    daemon: subprocess.Popen[str] | None = None

    async def start_daemon(self) -> None:
        """Start the stand-in on the installed configuration."""
        config = f"--use-file={self.folder}/keepalived.conf"
        command = ["keepalived", "-c", _DAEMON, str(self.folder), config]
        self.daemon = await asyncio.to_thread(spawn, command)

    async def stop_daemon(self) -> None:
        """End the stand-in, if it has not ended itself."""
        if self.daemon:
            self.daemon.kill()
            await asyncio.to_thread(self.daemon.communicate)
            self.daemon = None

    async def until(self, what: Callable[[], bool]) -> None:
        """Step until *what* holds."""
        async with asyncio.timeout(60):
            while not what():
                await self.reloader.step()
                await asyncio.sleep(0.01)

    def installed(self) -> str:
        """What the daemon reads next."""
        return (self.folder / "keepalived.conf").read_text()


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node on which a daemon runs what was mounted first."""
    monkeypatch.setattr(monitor, "CONFIRM", PATIENT)
    monkeypatch.setattr(reloaders, "RETRY", 0.05)
    monkeypatch.setattr(reload, "RETRY", 0.05)
    program = tmp_path / "program"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    (folder := tmp_path / "run").mkdir()
    files, place = RunDirectory(folder), scene.Mount(tmp_path / "config")
    made = Node(
        folder,
        Reloader(
            node="n1",
            node_ip=None,
            config_dir=place.path,
            passwords=Passwords(tmp_path / "passwords"),
            run_directory=files,
            trial=Trial(str(program), files, node="n1"),
        ),
        place,
    )
    yield made
    await made.stop_daemon()


async def begun(node: Node, text: str) -> Node:
    """*node*, when its daemon runs *text*."""
    config_hash = node.mount.write(text)
    await node.reloader.prepare()
    await node.start_daemon()
    await node.until(lambda: node.reloader.status.config_hash == config_hash)
    return node


def marked(text: str, word: str) -> str:
    """*text* with an order for the stand-in."""
    return text.replace("router_id edge", f"router_id {word}")


async def test_a_change_that_is_not_confirmed_is_taken_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last good one runs on and is current again when it is wanted again; the other waits out its penalty."""
    await begun(node, ONE)
    monkeypatch.setattr(monitor, "CONFIRM", SHORT)
    wanted = node.mount.write(marked(TWO, "deaf"))
    await node.until(lambda: node.reloader.status.failed_reloads > 0)
    monkeypatch.setattr(monitor, "CONFIRM", PATIENT)
    await node.until(lambda: node.reloader.status.config_hash == scene.hash_of(ONE))
    status = node.reloader.status
    assert "did not confirm" in status.refused and status.wanted_hash == wanted
    assert not status.current
    assert "deaf" not in node.installed()
    for _ in range(5):
        await node.reloader.step()
    assert node.reloader.status.failed_reloads == status.failed_reloads
    node.mount.write(ONE)
    await node.until(lambda: node.reloader.status.current)


async def test_a_change_that_failed_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause: the daemon may have been slow, not the configuration bad."""
    monkeypatch.setattr(penalty, "PENALTY", (0.0,))
    await begun(node, ONE)
    monkeypatch.setattr(monitor, "CONFIRM", SHORT)
    node.mount.write(marked(TWO, "deaf"))
    await node.until(lambda: node.reloader.status.failed_reloads >= 2)
    await node.stop_daemon()
    await node.until(lambda: "deaf" in node.installed())
    monkeypatch.setattr(monitor, "CONFIRM", PATIENT)
    await node.start_daemon()  # a deaf one reads at its start
    await node.until(lambda: node.reloader.status.current)


async def test_a_daemon_that_was_killed_has_one_more_try(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """It left its pid file, so it did not give up; where it does not come back the last good one is installed."""
    monkeypatch.setattr(reload, "PARDON", 1.0)
    monkeypatch.setattr(monitor, "CONFIRM", 30.0)  # a busy machine may take a while to end a daemon
    await begun(node, ONE)
    assert node.daemon
    (node.folder / "keepalived.pid").write_text(f"{node.daemon.pid}\n")
    node.mount.write(marked(TWO, "lethal"))
    await node.until(lambda: "lethal" in node.installed())
    assert node.reloader.status.failed_reloads == 0
    await node.until(lambda: "lethal" not in node.installed())
    await node.until(lambda: "has not come back" in node.reloader.status.refused)


async def test_a_first_configuration_that_is_not_confirmed_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to go back to, and an empty one would take away what may well run."""
    monkeypatch.setattr(monitor, "CONFIRM", SHORT)
    node.mount.write(marked(ONE, "deaf"))
    await node.reloader.prepare()
    installed = node.installed()
    (node.folder / "keepalived.conf").write_text("global_defs {\n}\n")
    await node.start_daemon()
    (node.folder / "keepalived.conf").write_text(installed)
    await node.until(lambda: node.reloader.status.failed_reloads > 1)
    assert "did not confirm" in node.reloader.status.refused
    assert node.reloader.status.config_hash == ""
    assert node.installed() == installed


async def test_a_first_configuration_that_kills_gives_way_to_an_empty_one(node: Node) -> None:
    """The daemon can start, and the next good configuration runs."""
    await begun(node, scene.rendered({}))
    (node.folder / "good.conf").unlink()
    node.reloader._runner.good = None
    node.mount.write(marked(ONE, "lethal"))
    await node.until(lambda: "exited" in node.reloader.status.refused)
    assert "vrrp_instance" not in node.installed()
    await node.stop_daemon()
    await node.start_daemon()
    node.mount.write(ONE)
    await node.until(lambda: node.reloader.status.current)


async def test_a_step_without_news_does_nothing(node: Node) -> None:
    """No reload, no netlink, no check."""
    await begun(node, ONE)
    reloads = node.reloader.status.reloads
    began = time.monotonic()
    for _ in range(20):
        await node.reloader.step()
    assert node.reloader.status.reloads == reloads
    assert time.monotonic() - began < 10


async def test_a_pod_that_has_just_started_looks_often_whom_it_hears(node: Node) -> None:
    """From the step on after which its configuration runs: before it could be master."""
    (secret := node.folder.parent / "passwords" / "vrrp").mkdir(parents=True)
    (secret / "one").write_text(scene.PASSWORD)
    spec = {**scene.WITH_PASSWORD, "advert_interval_milliseconds": 1000, "unicast_enabled": False, "interface": "lo"}
    text = scene.rendered({"shop/web": "198.18.0.1"}, **spec)
    config_hash = node.mount.write(text, authentication=True, password="vrrp/one")
    await node.reloader.prepare()
    await node.start_daemon()
    pause = 0.0
    async with asyncio.timeout(60):
        while node.reloader.status.config_hash != config_hash:
            pause = await node.reloader.step()
    assert pause <= PAUSE


async def test_a_node_that_is_as_it_was_costs_one_look(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its configuration is localised again only where the mount, or the node, is another."""
    there = frozenset({"lo"})

    async def look(_: Address | None = None) -> tuple[frozenset[str], tuple[Held, ...], Route | None]:
        return there, (), None

    localizing = Mock(wraps=localize)
    monkeypatch.setattr(netlink, "look", look)
    monkeypatch.setattr(reloaders, "localize", localizing)

    async def looks() -> int:
        before = localizing.call_count
        node.reloader.look_again()
        await node.reloader.step()
        return localizing.call_count - before

    await begun(node, ONE)
    await looks()  # it knows its last good one now
    assert [await looks() for _ in range(3)] == [0, 0, 0]
    there = frozenset({"lo", "eth7"})
    assert [await looks() for _ in range(2)] == [1, 0]
    changed = node.mount.write(TWO)
    await node.until(lambda: node.reloader.status.config_hash == changed)


async def test_an_agent_that_starts_again_knows_what_is_installed(node: Node) -> None:
    """It reloads once, to be sure, and refuses a bad mount without losing the hash of the good one."""
    await begun(node, ONE)
    again = Reloader(
        node="n1",
        node_ip=None,
        config_dir=node.mount.path,
        passwords=Passwords(),
        run_directory=RunDirectory(node.folder),
        trial=node.reloader._trial,
    )
    node.mount.write(ONE.replace("interface lo", "interface nosuch0"))
    await again.start()
    async with asyncio.timeout(60):
        while again.status.config_hash != scene.hash_of(ONE):
            await again.step()
    assert "nosuch0" in again.status.refused


async def test_a_password_that_changes_is_logged_and_not_shown(node: Node, tmp_path: Path) -> None:
    """Once, when the daemon runs with it; neither the first one nor another configuration is a change of it."""
    (secret := tmp_path / "passwords" / "vrrp").mkdir(parents=True)
    for key, password in (("one", "s3cret_1"), ("two", "s3cret_2")):
        (secret / key).write_text(password)
    services = {"shop/web": "198.18.0.1"}
    more: dict[str, Any] = {
        "nodes": 1,
        "interface": "lo",
        "unicast_enabled": False,
        "advert_interval_milliseconds": 1000,
    }
    text, other = (
        scene.rendered(each, **more, **scene.WITH_PASSWORD) for each in (services, {**services, "shop/b": "198.18.0.2"})
    )
    with structlog.testing.capture_logs() as logged:
        for wanted, key in ((text, "one"), (other, "one"), (other, "two")):
            config_hash = node.mount.write(wanted, authentication=True, password=f"vrrp/{key}")
            if node.daemon is None:
                await node.reloader.prepare()
                await node.start_daemon()

            def has_reloaded(before: int = node.reloader.status.reloads) -> bool:
                return node.reloader.status.reloads > before

            await node.until(has_reloaded)
            assert node.reloader.status.config_hash == config_hash
    events = [each["event"] for each in logged if each["event"] in ("configuration runs", "password changed")]
    assert events == ["configuration runs"] * 3 + ["password changed"]
    assert "s3cret" not in str(logged)


async def test_a_step_that_fails_is_told_until_one_succeeds(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever went wrong: what runs runs on, and the state does not say that all is well."""

    async def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    await begun(node, ONE)
    with monkeypatch.context() as broken:
        broken.setattr(reloaders.Reloader, "_settle", fail)
        node.mount.write(TWO)
        task = asyncio.create_task(main._follow(node.reloader, silent(node.folder), longest=0.01))
        async with asyncio.timeout(60):
            while "the agent failed" not in node.reloader.status.note:
                await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await node.until(lambda: node.reloader.status.config_hash == scene.hash_of(TWO))
    assert node.reloader.status.note == "keepalived does not say its version"


async def test_a_program_that_was_too_slow_to_say_its_version_is_asked_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that is busy when the agent starts does not leave it with a note for ever."""
    await begun(node, ONE)
    assert node.reloader.status.note == "keepalived does not say its version"
    monkeypatch.setattr(node.reloader._trial, "program", lambda: Program("2.2.7", 36))
    node.mount.write(TWO)
    await node.until(lambda: node.reloader.status.config_hash == scene.hash_of(TWO))
    assert (node.reloader.status.note, node.reloader.status.version) == ("", "2.2.7")


def silent(folder: Path) -> Alarm:
    """An alarm that nothing rings."""
    return Alarm([], folder, matters=lambda _: False, moved=lambda: None)
