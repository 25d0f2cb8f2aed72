"""Reloads that fail: what is installed again, and when the configuration is tried again."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
import structlog

from kavip.agent import main, network, preparation
from kavip.agent import reconciler as reconcilers
from kavip.agent.config.localize import localize
from kavip.agent.keepalived import monitor, reload
from kavip.agent.keepalived.configtest import ConfigTest, Program
from kavip.agent.keepalived.rundir import RunDirectory
from kavip.agent.mount import PasswordFiles
from kavip.agent.network import Interface, Reading
from kavip.agent.newpassword import PAUSE
from kavip.agent.reconciler import Reconciler
from kavip.agent.report.state import AgentStatus
from kavip.agent.watch import Watcher
from kavip.api.address import Address
from tests.agent import mounts

pytestmark = pytest.mark.slow

# A stand-in for keepalived that misbehaves on demand. On SIGHUP it reads its file: with "deaf" in the file it changes
# nothing, with "lethal" it exits.
_DAEMON = """
import asyncio, json, os, signal, sys, tempfile
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
loop = asyncio.new_event_loop()  # a plain handler of Python that is called before time.sleep() runs only after it
loop.add_signal_handler(signal.SIGHUP, load, False)
loop.add_signal_handler(signal.SIGUSR1, dump, "keepalived_parent.data", "x")
loop.add_signal_handler(36, lambda: dump("keepalived.json", json.dumps(shown)))
print("up", flush=True)
loop.run_forever()
"""

_PROGRAM = """#!/bin/sh
for each; do
  case "$each" in --use-file=*) grep -q kavip_no_such "${each#*=}" && { echo "(x: Line 2) x" >&2; exit 5; } ;; esac
done
exit 0
"""

ONE = mounts.rendered({"shop/web": "198.18.0.1"}, nodes=1, interface="lo", unicast_enabled=False)
TWO = mounts.rendered(
    {"shop/web": "198.18.0.1", "shop/b": "198.18.0.2"}, nodes=1, interface="lo", unicast_enabled=False
)

PATIENT, SHORT = 30.0, 0.3
"""Seconds until a reload counts as failed: however busy the machine is; and for a daemon that will never confirm it."""


def spawn(command: list[str]) -> subprocess.Popen[str]:
    """Start a Python under another name, and return when it is up."""
    started = subprocess.Popen(
        command, executable=sys.executable, env=mounts.python_environment(), stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    assert started.stdout.readline() == "up\n"
    return started


@dataclass
class Node:
    """A reconciler beside a stand-in for keepalived."""

    folder: Path
    reconciler: Reconciler
    mount: mounts.Mount
    daemon: subprocess.Popen[str] | None = None

    async def start_daemon(self) -> None:
        """Start the stand-in on the installed configuration."""
        config = f"--use-file={self.folder}/keepalived.conf"
        command = ["keepalived", "-c", _DAEMON, str(self.folder), config]
        self.daemon = await asyncio.to_thread(spawn, command)

    async def stop_daemon(self) -> None:
        """Stop the stand-in unless it has exited."""
        if self.daemon:
            self.daemon.kill()
            await asyncio.to_thread(self.daemon.communicate)
            self.daemon = None

    async def until(self, what: Callable[[], bool]) -> None:
        """Step until *what* is true."""
        async with asyncio.timeout(60):
            while not what():
                await self.reconciler.step()
                await asyncio.sleep(0.01)

    def installed(self) -> str:
        """The configuration that keepalived reads next."""
        return (self.folder / "keepalived.conf").read_text()


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """A node on which nothing runs yet."""
    monkeypatch.setattr(monitor, "CONFIRM", PATIENT)
    monkeypatch.setattr(reconcilers, "RETRY", 0.05)
    monkeypatch.setattr(reload, "RETRY", 0.05)
    program = tmp_path / "program"
    program.write_text(_PROGRAM)
    program.chmod(0o755)
    (folder := tmp_path / "run").mkdir()
    files, place = RunDirectory(folder), mounts.Mount(tmp_path / "config")
    made = Node(
        folder,
        Reconciler(
            node="n1",
            node_ip=None,
            config_dir=place.path,
            passwords=PasswordFiles(tmp_path / "passwords"),
            run_directory=files,
            config_test=ConfigTest(str(program), files, node="n1"),
        ),
        place,
    )
    yield made
    await made.stop_daemon()


def refusal(status: AgentStatus) -> str:
    """The message of the refusal, or ""."""
    return status.refused.message if status.refused else ""


def notes(node: Node) -> list[str]:
    """The messages of all notes."""
    return [each.message for each in node.reconciler.status.notes]


async def begun(node: Node, text: str) -> Node:
    """*node*, when its daemon runs *text*."""
    config_hash = node.mount.write(text)
    await node.reconciler.prepare()
    await node.start_daemon()
    await node.until(lambda: node.reconciler.status.config_hash == config_hash)
    return node


def marked(text: str, word: str) -> str:
    """*text* with an order for the stand-in."""
    return text.replace("router_id edge", f"router_id {word}")


async def test_a_change_that_is_not_confirmed_is_taken_back(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last good configuration runs on; the other one waits for its back-off."""
    await begun(node, ONE)
    monkeypatch.setattr(monitor, "CONFIRM", SHORT)
    wanted = node.mount.write(marked(TWO, "deaf"))
    await node.until(lambda: node.reconciler.status.failed_reloads > 0)
    monkeypatch.setattr(monitor, "CONFIRM", PATIENT)
    await node.until(lambda: node.reconciler.status.config_hash == mounts.hash_of(ONE))
    status = node.reconciler.status
    assert "did not confirm" in refusal(status) and status.wanted_hash == wanted
    assert not status.current
    assert "deaf" not in node.installed()
    for _ in range(5):
        await node.reconciler.step()
    assert node.reconciler.status.failed_reloads == status.failed_reloads
    node.mount.write(ONE)
    await node.until(lambda: node.reconciler.status.current)


async def test_a_change_that_failed_is_tried_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a back-off: keepalived may have been slow."""
    monkeypatch.setattr(reload, "BACKOFF", (0.0,))
    await begun(node, ONE)
    monkeypatch.setattr(monitor, "CONFIRM", SHORT)
    node.mount.write(marked(TWO, "deaf"))
    await node.until(lambda: node.reconciler.status.failed_reloads >= 2)
    await node.stop_daemon()
    await node.until(lambda: "deaf" in node.installed())
    monkeypatch.setattr(monitor, "CONFIRM", PATIENT)
    await node.start_daemon()  # at its start it reads every file
    await node.until(lambda: node.reconciler.status.current)


async def test_a_killed_keepalived_gets_the_configuration_once_more(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It left its pid file, so it did not exit by itself; if it does not come back, the last good one is installed."""
    monkeypatch.setattr(reload, "GRACE", 1.0)
    monkeypatch.setattr(monitor, "CONFIRM", 30.0)  # a busy machine may take a while to end a daemon
    await begun(node, ONE)
    assert node.daemon
    (node.folder / "keepalived.pid").write_text(f"{node.daemon.pid}\n")
    node.mount.write(marked(TWO, "lethal"))
    await node.until(lambda: "lethal" in node.installed())
    assert node.reconciler.status.failed_reloads == 0
    await node.until(lambda: "lethal" not in node.installed())
    await node.until(lambda: "has not come back" in refusal(node.reconciler.status))


async def test_a_first_configuration_that_is_not_confirmed_stays(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no good one, and an empty one would remove what may run."""
    monkeypatch.setattr(monitor, "CONFIRM", SHORT)
    node.mount.write(marked(ONE, "deaf"))
    await node.reconciler.prepare()
    installed = node.installed()
    (node.folder / "keepalived.conf").write_text("global_defs {\n}\n")
    await node.start_daemon()
    (node.folder / "keepalived.conf").write_text(installed)
    await node.until(lambda: node.reconciler.status.failed_reloads > 1)
    assert "did not confirm" in refusal(node.reconciler.status)
    assert node.reconciler.status.config_hash == ""
    assert node.installed() == installed


async def test_a_first_configuration_that_ends_keepalived_is_replaced_by_an_empty_one(node: Node) -> None:
    """keepalived can start again, and the next good configuration runs."""
    await begun(node, mounts.rendered({}))
    (node.folder / "good.conf").unlink()
    node.reconciler._reloader.good = None
    node.mount.write(marked(ONE, "lethal"))
    await node.until(lambda: "exited" in refusal(node.reconciler.status))
    assert "vrrp_instance" not in node.installed()
    await node.stop_daemon()
    await node.start_daemon()
    node.mount.write(ONE)
    await node.until(lambda: node.reconciler.status.current)


async def test_a_step_without_changes_does_nothing(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """No reload, no netlink, no config test."""
    await begun(node, ONE)
    await node.reconciler.step()
    reloads = node.reconciler.status.reloads
    reading, testing = AsyncMock(wraps=network.read), Mock(wraps=node.reconciler._config_test.check)
    monkeypatch.setattr(network, "read", reading)
    monkeypatch.setattr(node.reconciler._config_test, "check", testing)
    for _ in range(20):
        await node.reconciler.step()
    assert node.reconciler.status.reloads == reloads
    assert (reading.await_count, testing.call_count) == (0, 0)


async def test_a_joining_pod_examines_dumps_often(node: Node) -> None:
    """From the first dump of its configuration on, before it can be master."""
    (secret := node.folder.parent / "passwords" / "vrrp").mkdir(parents=True)
    (secret / "one").write_text(mounts.PASSWORD)
    spec = {**mounts.WITH_PASSWORD, "advert_interval_milliseconds": 1000, "unicast_enabled": False, "interface": "lo"}
    text = mounts.rendered({"shop/web": "198.18.0.1"}, **spec)
    config_hash = node.mount.write(text, authentication=True, password="vrrp/one")
    await node.reconciler.prepare()
    await node.start_daemon()
    pause = 0.0
    async with asyncio.timeout(60):
        while node.reconciler.status.config_hash != config_hash:
            pause = await node.reconciler.step()
    assert pause <= PAUSE


async def test_an_unchanged_node_is_not_localised_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a change of the mount or of the node is."""
    there: tuple[Interface, ...] = (Interface("lo", 1),)

    async def look(_: Address | None = None) -> Reading:
        return Reading(there, ())

    localizing = Mock(wraps=localize)
    monkeypatch.setattr(network, "read", look)
    monkeypatch.setattr(preparation, "localize", localizing)

    async def looks() -> int:
        before = localizing.call_count
        node.reconciler.network_changed()
        await node.reconciler.step()
        return localizing.call_count - before

    await begun(node, ONE)
    await looks()  # the last good one is known now
    assert [await looks() for _ in range(3)] == [0, 0, 0]
    there = (Interface("lo", 1), Interface("eth7", 7))
    assert [await looks() for _ in range(2)] == [1, 0]
    changed = node.mount.write(TWO)
    await node.until(lambda: node.reconciler.status.config_hash == changed)


async def test_a_restarted_agent_reads_the_installed_configuration(node: Node) -> None:
    """It reloads once, and refuses a bad mount without losing the hash of the good configuration."""
    await begun(node, ONE)
    again = Reconciler(
        node="n1",
        node_ip=None,
        config_dir=node.mount.path,
        passwords=PasswordFiles(),
        run_directory=RunDirectory(node.folder),
        config_test=node.reconciler._config_test,
    )
    node.mount.write(ONE.replace("interface lo", "interface nosuch0"))
    await again.start()
    async with asyncio.timeout(60):
        while again.status.config_hash != mounts.hash_of(ONE):
            await again.step()
    assert "nosuch0" in refusal(again.status)


async def test_a_password_that_changes_is_logged_and_not_shown(node: Node, tmp_path: Path) -> None:
    """Once, when keepalived runs with it; not for the first password or another configuration."""
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
        mounts.rendered(each, **more, **mounts.WITH_PASSWORD)
        for each in (services, {**services, "shop/b": "198.18.0.2"})
    )
    with structlog.testing.capture_logs() as logged:
        for wanted, key in ((text, "one"), (other, "one"), (other, "two")):
            config_hash = node.mount.write(wanted, authentication=True, password=f"vrrp/{key}")
            if node.daemon is None:
                await node.reconciler.prepare()
                await node.start_daemon()

            def has_reloaded(before: int = node.reconciler.status.reloads) -> bool:
                return node.reconciler.status.reloads > before

            await node.until(has_reloaded)
            assert node.reconciler.status.config_hash == config_hash
    events = [each["event"] for each in logged if each["event"] in ("configuration runs", "password changed")]
    assert events == ["configuration runs"] * 3 + ["password changed"]
    assert "s3cret" not in str(logged)


async def test_a_failed_step_is_noted_until_one_succeeds(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """keepalived runs on, and the state reports the failure."""

    async def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    await begun(node, ONE)
    with monkeypatch.context() as broken:
        broken.setattr(reconcilers.Reconciler, "_apply", fail)
        node.mount.write(TWO)
        task = asyncio.create_task(main._reconcile(node.reconciler, silent(node.folder), asyncio.Lock(), longest=0.01))
        async with asyncio.timeout(60):
            while "the agent failed" not in "".join(notes(node)):
                await asyncio.sleep(0.01)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    await node.until(lambda: node.reconciler.status.config_hash == mounts.hash_of(TWO))
    assert notes(node) == ["keepalived does not report its version"]
    node.reconciler.record_failed_step()
    await node.reconciler.step()  # nothing has changed for it
    assert notes(node) == ["keepalived does not report its version"]


async def test_a_version_that_could_not_be_read_is_requested_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is busy when the agent starts does not keep the note."""
    await begun(node, ONE)
    assert notes(node) == ["keepalived does not report its version"]
    monkeypatch.setattr(node.reconciler._config_test, "program", lambda: Program("2.2.7", 36))
    node.mount.write(TWO)
    await node.until(lambda: node.reconciler.status.config_hash == mounts.hash_of(TWO))
    assert (notes(node), node.reconciler.status.version) == ([], "2.2.7")


def silent(folder: Path) -> Watcher:
    """A watcher that watches nothing."""
    return Watcher([], folder, observe=lambda _: None, is_relevant=lambda _: False, network_changed=lambda: None)
