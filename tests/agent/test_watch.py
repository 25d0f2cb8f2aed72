"""What wakes the agent, and what does not."""

import asyncio
import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kavip.agent import inotify, rtnetlink
from kavip.agent.keepalived.process import PID_FILE, Daemon
from kavip.agent.rtnetlink import Change
from kavip.agent.watch import Alarm
from tests.agent.scene import Mount

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


def alarm(run_dir: Path, *mounts: Path) -> Alarm:
    """One that the network cannot ring."""
    return Alarm(mounts, run_dir, matters=lambda _: False, moved=lambda: None)


async def woke(given: Alarm, *, within: float = LONG) -> bool:
    """Whether it rings before the time is up."""
    began = asyncio.get_running_loop().time()
    await given.wait(within)
    return asyncio.get_running_loop().time() - began < within


async def test_a_swapped_mount_wakes(mount: Mount, run_dir: Path) -> None:
    """kubelet's rename is heard, once and again, and silence is none."""
    with alarm(run_dir, mount.path) as given:
        for number in range(3):
            mount.write(f"text {number}")
            assert await woke(given)
            assert not await woke(given, within=SHORT)


async def test_a_mount_that_was_replaced_is_watched_again(mount: Mount, run_dir: Path, tmp_path: Path) -> None:
    """Its end wakes, while it is not there it is looked at often, and the new one is heard as the old one was."""
    with alarm(run_dir, mount.path) as given:
        mount.path.rename(tmp_path / "gone")
        assert await woke(given, within=1.0)
        mount.write("another")
        await given.wait(SHORT)
        assert not await woke(given, within=SHORT)
        mount.write("once more")
        assert await woke(given)


async def test_of_the_run_directory_only_the_pid_file_wakes(mount: Mount, run_dir: Path) -> None:
    """keepalived puts every dump there, and the agent its own files."""
    with alarm(run_dir, mount.path) as given:
        (run_dir / "keepalived.json").write_text("[]")
        assert not await woke(given, within=SHORT)
        with (run_dir / PID_FILE).open("w") as held:
            assert await woke(given)
            held.write("1")
            held.flush()  # keepalived keeps it open
            assert await woke(given)


async def test_a_dump_is_heard_of_once(mount: Mount, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """keepalived writes 255 instances in sixty pieces, every second; none of them is read from the kernel."""
    heard: list[int] = []
    happened = inotify.Folders._happened

    def hear(folders: inotify.Folders) -> None:
        happened(folders)
        heard.append(1)

    monkeypatch.setattr(inotify.Folders, "_happened", hear)
    with alarm(run_dir, mount.path) as given:
        with (run_dir / "keepalived.json").open("w") as dump:
            for _ in range(60):
                dump.write("[]")
                dump.flush()
                await asyncio.sleep(0.001)
        assert not await woke(given, within=SHORT)
    assert len(heard) == 1


async def test_a_pid_file_that_stays_is_heard_when_it_is_written(mount: Mount, run_dir: Path) -> None:
    """A daemon that was killed leaves it, and the next one writes into it; also when it was removed meanwhile."""
    (pid_file := run_dir / PID_FILE).write_text("1")
    with alarm(run_dir, mount.path) as given:
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
    """Also while it is a zombie; one that has ended before, and one whose number another has, wake at once."""
    child = await asyncio.to_thread(subprocess.Popen, ["sleep", "60"])
    stat = await asyncio.to_thread(Path(f"/proc/{child.pid}/stat").read_text)
    daemon = Daemon(child.pid, int(stat.rpartition(")")[2].split()[19]))
    with alarm(run_dir, mount.path) as given:
        await given.follow(daemon)
        assert not await woke(given, within=SHORT)
        os.kill(child.pid, 9)
        assert await woke(given)
        await given.follow(daemon)
        assert await woke(given)
    await asyncio.to_thread(child.wait)
    with alarm(run_dir, mount.path) as given:
        await given.follow(Daemon(os.getpid(), 1))
        assert await woke(given)


async def test_a_kernel_that_has_no_handle_left_is_no_fault(
    mount: Mount, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node has a limited number of them: then the mount is looked at more often."""
    monkeypatch.setattr(inotify.Folders, "seeing", property(lambda _: False))
    monkeypatch.setattr("kavip.agent.watch.BLIND", SHORT)
    with alarm(run_dir, mount.path) as given:
        assert await woke(given)


def message(kind: int, body: bytes, *attributes: tuple[int, bytes]) -> bytes:
    """One message of the kernel."""
    for number, value in attributes:
        body += struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)
    return struct.pack("=IHHII", 16 + len(body), kind, 0, 0, 0) + body


def messages() -> Iterator[tuple[bytes, list[Change]]]:
    """Messages, and what they are about."""
    yield message(17, bytes(16), (3, b"eth0\0")), [Change(interface="eth0")]
    yield message(16, bytes(16), (1, b"\2\0\0\0\0\1"), (3, b"ens1f0np0\0")), [Change(interface="ens1f0np0")]
    yield message(21, bytes(8), (1, bytes([192, 0, 2, 99])), (2, bytes([192, 0, 2, 9]))), [Change(address="192.0.2.9")]
    yield message(20, bytes(8), (1, bytes.fromhex("20010db8" + 24 * "0"))), [Change(address="2001:db8::")]
    yield message(20, bytes([10, 64, 0, 253, 0, 0, 0, 0]), (1, bytes(16))), []
    yield message(24, bytes(12)), []
    yield b"\1\0", []
    yield struct.pack("=IHHII", 3, 16, 0, 0, 0), []


@pytest.mark.parametrize(("given", "wanted"), [*messages()])
def test_messages_of_the_kernel_are_read(given: bytes, wanted: list[Change]) -> None:
    """Interfaces by name, addresses that are not link-local; what cannot be read is about nothing."""
    assert list(rtnetlink.changed(given)) == wanted
    assert list(rtnetlink.changed(given + message(17, bytes(16), (3, b"x\0"))))[len(wanted) :] in ([], [Change("x")])
