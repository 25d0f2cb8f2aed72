"""
Abstract sockets, unix(7), as signs between the agents of one node: pods share its network, but no file.

The kernel closes them with their process, however it ends. So a name that is bound means an agent that lives.
"""

import socket
from pathlib import Path
from typing import Final

_LIST: Final = Path("/proc/thread-self/net/unix")  # /proc/net is that of the first thread
_AGENT: Final = "kavip/agent/"
_LOCK: Final = "kavip/return-routes"


class NodeSign:
    """A name that one process of the node has at a time."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._socket: socket.socket | None = None

    @classmethod
    def of_agent(cls, group: str) -> "NodeSign":
        """The sign of the agent of *group*."""
        return cls(f"{_AGENT}{group}")

    @classmethod
    def lock(cls) -> "NodeSign":
        """The sign of the agent that changes what the agents of the node share."""
        return cls(_LOCK)

    @property
    def is_held(self) -> bool:
        """Whether this process has it."""
        return self._socket is not None

    def take(self) -> bool:
        """Take it; False if another process has it."""
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                made.bind(f"\0{self._name}")
            except OSError:
                made.close()
                return False
            self._socket = made
        return True

    def release(self) -> None:
        """Release it."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None


def groups_with_agents() -> frozenset[str]:
    """The groups of which an agent lives on this node; raises OSError."""
    names = (line.rpartition(" @")[2] for line in _LIST.read_text().splitlines() if " @" in line)
    return frozenset(name.removeprefix(_AGENT) for name in names if name.startswith(_AGENT))
