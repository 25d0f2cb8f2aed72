"""``kavip ui`` for a cluster, with a link for a browser on this machine: its server listens in the network of n0."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError

_LOOPBACK = "127.0.0.1"


@contextmanager
def served(cluster: Cluster, *, messages: int | None = subprocess.DEVNULL) -> Iterator[str]:
    """The link to the page, which works once, during the block. *messages*: where further links go; None: here."""
    with socket.create_server((_LOOPBACK, 0)) as listening, ExitStack() as stack:
        port = listening.getsockname()[1]
        # the same port on both ends: the server refuses another one in Host
        page = _started(stack, cluster, "kavip", "ui", "--port", str(port), stdout=subprocess.PIPE, stderr=messages)
        descriptor = listening.fileno()
        _started(stack, cluster, "hack.testbed.relay", str(descriptor), str(port), pass_fds=(descriptor,))
        assert page.stdout is not None
        line = page.stdout.readline().decode().strip()
        if not line.startswith("Open http"):
            raise TestbedError(f"kavip ui does not serve its page: {line or 'it has ended'}")
        yield line.removeprefix("Open ")


def _started(
    stack: ExitStack,
    cluster: Cluster,
    *words: str,
    stdout: int | None = None,
    stderr: int | None = subprocess.DEVNULL,
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """A module of this checkout, in the network of n0, until *stack* ends."""
    process = subprocess.Popen(
        cluster.control.command(sys.executable, "-m", *words),
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        pass_fds=pass_fds,
    )
    stack.callback(_end, process)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
