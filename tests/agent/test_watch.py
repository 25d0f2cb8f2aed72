"""The events that wake the agent, and those that do not."""

import asyncio
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kavip.agent import inotify, rtnetlink
from kavip.agent.keepalived.process import PID_FILE, Daemon
from kavip.agent.rtnetlink import NetworkChange
from kavip.agent.watch import PAUSE_FACTOR, Watcher
from tests.agent.mounts import Mount

LONG = 30.0
SHORT = 0.05


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    """A mount that has been written once."""
    made = Mount(tmp_path / "config")
    made.write("first")
    return made


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The run directory."""
    (made := tmp_path / "run").mkdir()
    return made


def watcher(run_dir: Path, *mounts: Path) -> Watcher:
    """A watcher for which no change of the network is relevant."""
    return Watcher(mounts, run_dir, observe=lambda _: None, is_relevant=lambda _: False, network_changed=lambda: None)


async def woke(given: Watcher, *, within: float = LONG) -> bool:
    """Whether the watcher wakes within so many seconds."""
    began = asyncio.get_running_loop().time()
    await given.wait(within)
    return asyncio.get_running_loop().time() - began < within


async def test_a_swapped_mount_wakes(mount: Mount, run_dir: Path) -> None:
    """Each swap by kubelet wakes the agent once."""
    with watcher(run_dir, mount.path) as given:
        for number in range(3):
            mount.write(f"text {number}")
            assert await woke(given)
            assert not await woke(given, within=SHORT)


async def test_a_mount_that_was_replaced_is_watched_again(mount: Mount, run_dir: Path, tmp_path: Path) -> None:
    """The removal of a mount wakes the agent. Without a mount it polls, and then it watches the new mount."""
    with watcher(run_dir, mount.path) as given:
        mount.path.rename(tmp_path / "gone")
        assert await woke(given)
        mount.write("another")
        await given.wait(SHORT)
        assert not await woke(given, within=SHORT)
        mount.write("once more")
        assert await woke(given)


async def test_only_the_pid_file_of_the_run_directory_wakes(mount: Mount, run_dir: Path) -> None:
    """Dumps of keepalived and files of the agent in that directory do not wake the agent."""
    with watcher(run_dir, mount.path) as given:
        (run_dir / "keepalived.json").write_text("[]")
        assert not await woke(given, within=SHORT)
        with (run_dir / PID_FILE).open("w") as held:
            assert await woke(given)
            held.write("1")
            held.flush()  # keepalived keeps it open
            assert await woke(given)


async def test_a_dump_is_one_event(mount: Mount, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dump of 255 instances, which keepalived writes in sixty pieces, causes one event."""
    events: list[int] = []
    happened = inotify.FolderWatch._happened

    def hear(folders: inotify.FolderWatch) -> None:
        happened(folders)
        events.append(1)

    monkeypatch.setattr(inotify.FolderWatch, "_happened", hear)
    with watcher(run_dir, mount.path) as given:
        with (run_dir / "keepalived.json").open("w") as dump:
            for _ in range(60):
                dump.write("[]")
                dump.flush()
                await asyncio.sleep(0.001)
        assert not await woke(given, within=SHORT)
    assert len(events) == 1


async def test_a_write_to_an_existing_pid_file_wakes(mount: Mount, run_dir: Path) -> None:
    """Each write to a pid file that a killed daemon has left wakes the agent."""
    (pid_file := run_dir / PID_FILE).write_text("1")
    with watcher(run_dir, mount.path) as given:
        for number in (2, 3):
            assert not await woke(given, within=SHORT)
            with pid_file.open("r+") as held:
                held.write(str(number))
            assert await woke(given)
        pid_file.unlink()
        await given.wait(SHORT)
        pid_file.touch()
        assert await woke(given)
        pid_file.write_text("4")
        assert await woke(given)


async def test_the_end_of_the_daemon_wakes(mount: Mount, run_dir: Path) -> None:
    """The agent wakes also if the daemon is a zombie, has already ended, or its pid is in use again."""
    child = await asyncio.to_thread(subprocess.Popen, ["sleep", "60"])
    stat = await asyncio.to_thread(Path(f"/proc/{child.pid}/stat").read_text)
    daemon = Daemon(child.pid, int(stat.rpartition(")")[2].split()[19]))
    with watcher(run_dir, mount.path) as given:
        await given.watch_daemon(daemon)
        assert not await woke(given, within=SHORT)
        os.kill(child.pid, 9)
        assert await woke(given)
        await given.watch_daemon(daemon)
        assert await woke(given)
    await asyncio.to_thread(child.wait)
    with watcher(run_dir, mount.path) as given:
        await given.watch_daemon(Daemon(os.getpid(), 1))
        assert await woke(given)


async def test_without_inotify_the_agent_polls(mount: Mount, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without inotify, whose instances are limited on a node, the agent polls."""
    monkeypatch.setattr(inotify.FolderWatch, "is_complete", property(lambda _: False))
    monkeypatch.setattr("kavip.agent.watch.UNWATCHED", SHORT)
    with watcher(run_dir, mount.path) as given:
        assert await woke(given)


async def test_many_changes_of_the_network_wake_a_few_times(mount: Mount, run_dir: Path) -> None:
    """After a long step they wake together, after a multiple of its time; a short step delays nothing."""
    changed: list[float] = []
    given, loop = watcher(run_dir, mount.path), asyncio.get_running_loop()
    given._network_changed = lambda: changed.append(loop.time())
    with given:
        given._wake_for_network()
        assert await woke(given) and len(changed) == 1
        await asyncio.sleep(SHORT)  # a step
        for _ in range(1000):
            given._wake_for_network()
        ended = loop.time()
        assert await woke(given) and len(changed) == 2
        assert changed[-1] - ended >= 0.9 * PAUSE_FACTOR * SHORT
        assert not await woke(given, within=SHORT)
        await asyncio.sleep(SHORT)  # another step
        given._wake_for_network()
        while len(changed) == 2:  # steps in quick succession delay it no further
            given.wake()
            await given.wait(LONG)
            await asyncio.sleep(0.001)


def message(kind: int, body: bytes, *attributes: tuple[int, bytes]) -> bytes:
    """One netlink message."""
    for number, value in attributes:
        body += struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def messages() -> Iterator[tuple[bytes, list[NetworkChange]]]:
    """Netlink messages, and the changes in them."""
    yield message(17, bytes(16), (3, b"eth0\0")), [NetworkChange(interface="eth0")]
    yield message(16, bytes(16), (1, b"\2\0\0\0\0\1"), (3, b"ens1f0np0\0")), [NetworkChange(interface="ens1f0np0")]
    yield (
        message(21, struct.pack("=4xI", 7), (1, bytes([192, 0, 2, 99])), (2, bytes([192, 0, 2, 9]))),
        [NetworkChange(address="192.0.2.9", index=7, is_gone=True)],
    )
    yield message(20, bytes(8), (1, bytes.fromhex("20010db8" + 24 * "0"))), [NetworkChange(address="2001:db8::")]
    yield message(20, bytes([10, 64, 0, 253, 0, 0, 0, 0]), (1, bytes(16))), []
    yield message(24, bytes(12)), []
    yield b"\1\0", []
    yield struct.pack("=IHHII", 3, 16, 0, 0, 0), []


@pytest.mark.parametrize(("given", "wanted"), [*messages()])
def test_netlink_messages_are_read(given: bytes, wanted: list[NetworkChange]) -> None:
    """Interfaces by name, addresses that are not link-local; malformed messages are skipped."""
    assert list(rtnetlink.changes(given)) == wanted
    assert list(rtnetlink.changes(given + message(17, bytes(16), (3, b"x\0"))))[len(wanted) :] in (
        [],
        [NetworkChange("x")],
    )
