"""
The run directory: the configuration that keepalived reads, the last good one, and what a later agent has to know.

The directory outlives containers, not the pod. Files are replaced by rename, so that a reader sees the old or the new
content. Nothing is synced to disk: the content matters only until the node goes down, and a node that boots has no VIP.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from kavip.agent.config.localize import read_localized
from kavip.agent.config.model import LocalizedConfig
from kavip.api.address import read_address
from kavip.vrrp.virtualips import VirtualIP

CONFIG: Final = "keepalived.conf"
GOOD: Final = "good.conf"  # the last configuration that a dump has shown
CANDIDATE: Final = "candidate.conf"
RECORD: Final = "vips.json"
JOINING: Final = "joining"  # there until it is known that the other nodes accept this one's password
TRACKS: Final = "track"
_MODE: Final = 0o644  # keepalived ignores files with an x bit


class Recorded(msgspec.Struct, frozen=True):
    """One VIP of the record."""

    address: str
    prefix: int
    interface: str


class RunDirectory:
    """The files that the agent shares with keepalived."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / CONFIG
        self.tracks = path / TRACKS

    def claim(self) -> bool:
        """
        Lock this directory until the process ends; False while another agent has it.

        Two agents would remove each other's candidates, and exclude instances that were never tested. On a file system
        without locks every agent succeeds.
        """
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:
            os.close(handle)
        return True

    def load(self) -> LocalizedConfig | None:
        """The configuration that keepalived reads when it starts; None if kavip has not written one."""
        return _read(self.config)

    def load_good(self) -> LocalizedConfig | None:
        """The last good configuration."""
        return _read(self.path / GOOD)

    def install(self, localized: LocalizedConfig) -> None:
        """Replace the configuration that keepalived reads by *localized*."""
        replace_file(self.config, localized.text.encode())

    def keep_good(self, localized: LocalizedConfig) -> None:
        """Save *localized* as the last good configuration."""
        replace_file(self.path / GOOD, localized.text.encode())

    def write_candidate(self, text: str) -> Path:
        """Write *text* to the file that is tested."""
        path = self.path / CANDIDATE
        replace_file(path, text.encode())
        return path

    def drop_candidate(self) -> None:
        """Remove the file that was tested: it may hold the password."""
        (self.path / CANDIDATE).unlink(missing_ok=True)

    def load_record(self) -> frozenset[VirtualIP]:
        """Every VIP that a keepalived of this pod may have added to an interface; a damaged record is empty."""
        try:
            entries = msgspec.json.decode((self.path / RECORD).read_bytes(), type=list[Recorded])
        except (OSError, msgspec.DecodeError):
            return frozenset()
        found = ((read_address(each.address), each) for each in entries)
        return frozenset(VirtualIP(address, each.prefix, each.interface) for address, each in found if address)

    def save_record(self, virtual_ips: Iterable[VirtualIP]) -> None:
        """Replace the record."""
        entries = [Recorded(str(each.address), each.prefix, each.interface) for each in sorted(virtual_ips)]
        replace_file(self.path / RECORD, msgspec.json.encode(entries))

    def is_joining(self) -> bool:
        """Whether an earlier agent of this pod ended before it knew that the others accept the password."""
        return (self.path / JOINING).exists()

    def record_joining(self, is_joining: bool) -> None:
        """Record for the next agent of this pod whether that is still unknown."""
        if is_joining:
            (self.path / JOINING).touch(_MODE)
        else:
            (self.path / JOINING).unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of *path* in one step."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), _MODE)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _read(path: Path) -> LocalizedConfig | None:
    try:
        return read_localized(path.read_text())
    except (OSError, UnicodeDecodeError):
        return None
