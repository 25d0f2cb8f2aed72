"""
CPU time and memory of the agent's watches of the network and of files, compared with libraries. It needs root.

Network: a child process in a network namespace watches while 500 VIPs are added and removed, as in a fail-over of a
Shared group, and 100 interfaces, as when pods start and end. Files: a dump of 255 instances is written 100 times in 60
pieces, into the folder whose pid file is watched. ``asyncinotify`` is measured too if it is installed.
"""

import asyncio
import gc
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

from bench.timing import plain, resident
from hack.testbed import runs
from hack.testbed.segment import Segment

VIPS: Final = 500
INTERFACES: Final = 100
DUMPS: Final = 100
PIECES: Final = 60
QUIET: Final = 1.0  # seconds without a change, after which all have been seen
GROUPS: Final = 0x1 | 0x10 | 0x100  # links, IPv4 addresses, IPv6 addresses
NETWORK: Final = ("own reader", "pyroute2's parser", "pyroute2's AsyncIPRoute")
FILES: Final = ("own watch", "pyroute2's Inotify", "asyncinotify")


class Count:
    """The number of wake-ups of the event loop (or of the library's thread), and the time of the last one."""

    def __init__(self) -> None:
        self.wakeups = 0
        self.last = time.monotonic()

    def add(self) -> None:
        """Count one."""
        self.wakeups += 1
        self.last = time.monotonic()


class ReadByTask:
    """A library whose events a task reads with *follow* during the block."""

    def __init__(self, follow: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._follow = follow
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._follow())

    def __exit__(self, *_: object) -> None:
        assert self._task
        self._task.cancel()


async def measured(watch: Callable[[Count], Any], disturb: Callable[[], None]) -> None:
    """Print as JSON the CPU time and memory of *watch* while *disturb* runs in a thread, without child processes."""
    import kavip.agent.main  # noqa: F401 - load what the agent loads in any case

    gc.collect()
    gc.freeze()
    before = resident()
    count = Count()
    with watch(count):
        loaded = resident()
        began = time.process_time()
        await asyncio.to_thread(disturb)
        while time.monotonic() - count.last < QUIET:
            await asyncio.sleep(0.05)
        spent = time.process_time() - began
        grown = resident()
    print(json.dumps({"wakeups": count.wakeups, "cpu": spent, "loaded": loaded - before, "grown": grown - loaded}))


# --- the network ------------------------------------------------------------------------------------------------------
def change_network() -> None:
    """Add and remove VIPs and interfaces."""
    vips = [f"198.18.{number // 250}.{number % 250 + 1}/32 dev eth0" for number in range(VIPS)]
    links = [f"pod{number}" for number in range(INTERFACES)]
    lines = [f"address add {each}" for each in vips] + [f"link add {each} type bridge" for each in links]
    lines += [f"link set {each} up" for each in links] + [f"link del {each}" for each in links]
    lines += [f"address del {each}" for each in vips]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


class Reader:
    """A netlink socket that *read* reads when the loop wakes."""

    def __init__(self, count: Count, read: Callable[[bytes], object]) -> None:
        self._count, self._read = count, read
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)

    def __enter__(self) -> None:
        self._socket.bind((0, GROUPS))
        asyncio.get_running_loop().add_reader(self._socket, self._happened)

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def _happened(self) -> None:
        self._read(self._socket.recv(1 << 16))
        self._count.add()


def own_reader(count: Count) -> Any:
    """The reader of kavip.agent.rtnetlink."""
    from kavip.agent.rtnetlink import changes

    return Reader(count, lambda data: list(changes(data)))


def pyroute2_parser(count: Count) -> Any:
    """The same socket, with pyroute2's message types."""
    from pyroute2.netlink.rtnl.marshal import MarshalRtnl

    parser = MarshalRtnl()

    def read(data: bytes) -> None:
        for message in parser.parse(data):
            message.get("IFLA_IFNAME") or message.get("IFA_LOCAL") or message.get("IFA_ADDRESS")

    return Reader(count, read)


def pyroute2_client(count: Count) -> Any:
    """pyroute2's asynchronous socket, read by a task."""

    async def follow() -> None:
        from pyroute2 import AsyncIPRoute

        async with AsyncIPRoute() as route:
            await route.bind(groups=GROUPS)
            while True:
                async for message in route.get():
                    message.get("IFLA_IFNAME") or message.get("IFA_LOCAL") or message.get("IFA_ADDRESS")
                    count.add()

    return ReadByTask(follow)


# --- files ------------------------------------------------------------------------------------------------------------
def dumper(folder: Path) -> Callable[[], None]:
    """A function that writes dumps as keepalived does: a temporary name, a rename, then pieces; last the pid file."""

    def write() -> None:
        for _ in range(DUMPS):
            with (folder / "keepalived.tmp").open("w") as dump:
                os.rename(folder / "keepalived.tmp", folder / "keepalived.json")
                for _ in range(PIECES):
                    dump.write("x" * 1000)
                    dump.flush()
            time.sleep(0.01)
        (folder / "keepalived.pid").write_text("1")

    return write


def own_watch(count: Count, folder: Path) -> Any:
    """The watch of kavip.agent.inotify."""
    from kavip.agent.inotify import CREATED, File, Folder, FolderWatch

    class Counted(FolderWatch):
        def _happened(self) -> None:
            count.add()
            super()._happened()

    wanted = Folder(folder, CREATED, frozenset({b"keepalived.pid"}))
    return Counted([wanted], [File(folder / "keepalived.pid")], lambda: None)


class Threaded:
    """pyroute2's Inotify, in a thread because it blocks."""

    def __init__(self, count: Count, folder: Path) -> None:
        from pyroute2.inotify.inotify_fd import Inotify

        self._count, self._inotify = count, Inotify(path=[])
        self._folder = folder

    def __enter__(self) -> None:
        self._inotify.bind()
        self._inotify.register_path(str(self._folder), mask=0x100 | 0x80)  # created, moved here
        threading.Thread(target=self._follow, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        pass  # the process ends

    def _follow(self) -> None:
        while True:
            for _ in self._inotify.get():
                self._count.add()


def asyncinotify_watch(count: Count, folder: Path) -> Any:
    """asyncinotify, read by a task."""
    from asyncinotify import Inotify, Mask  # type: ignore[import-not-found,unused-ignore]  # optional

    inotify = Inotify()
    inotify.add_watch(folder, Mask.CREATE | Mask.MOVED_TO)

    async def follow() -> None:
        async for _ in inotify:
            count.add()

    return ReadByTask(follow)


# --- both -------------------------------------------------------------------------------------------------------------
def child(kind: str) -> None:
    """Measure one kind in this process."""
    network = dict(zip(NETWORK, (own_reader, pyroute2_parser, pyroute2_client), strict=True))
    files = dict(zip(FILES, (own_watch, Threaded, asyncinotify_watch), strict=True))
    if kind in network:
        asyncio.run(measured(network[kind], change_network))
        return
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measured(lambda count: files[kind](count, Path(folder)), dumper(Path(folder))))


def main() -> None:
    """Print a table; each row comes from its own process."""
    with runs.in_memory() as state, Segment(state, nodes=1) as lan:
        for kind in (*NETWORK, *FILES):
            if kind == "asyncinotify" and importlib.util.find_spec(kind) is None:
                continue
            if kind in (NETWORK[0], FILES[0]):
                what = f"{VIPS} VIPs and {INTERFACES} interfaces" if kind in NETWORK else f"{DUMPS} dumps"
                plain(f"while these change: {what}", "")
            found = json.loads(lan.node("n1").exec(sys.executable, "-m", "bench.watch", kind).stdout)
            plain(f"  {kind}: processor", f"{found['cpu'] * 1000:.0f} ms")
            plain("    wake-ups", f"{found['wakeups']}")
            plain("    memory after loading, and its growth", f"{found['loaded']:.1f} + {found['grown']:.1f} MiB")


if __name__ == "__main__":
    child(sys.argv[1]) if len(sys.argv) > 1 else main()
