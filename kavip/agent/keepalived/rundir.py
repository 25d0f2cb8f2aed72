"""
The run directory: the configuration that keepalived reads, the last good one, and the record of VIPs.

The directory outlives containers, not the pod. Everything is replaced by rename, so that a reader sees the old or the
new content. Nothing is synced to disk: what matters is lost with the page cache anyway, when the node goes down, and a
node that comes up has no VIP.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from kavip.agent.config.localize import recalled
from kavip.agent.config.model import Localized
from kavip.api.address import read_address
from kavip.vrrp.virtualips import VirtualIP

CONFIG: Final = "keepalived.conf"
GOOD: Final = "good.conf"  # the last configuration that the daemon was seen to run
CANDIDATE: Final = "candidate.conf"
RECORD: Final = "vips.json"
TRACKS: Final = "track"
_MODE: Final = 0o644  # keepalived ignores files with an x bit


class Recorded(msgspec.Struct, frozen=True):
    """One line of the record."""

    address: str
    prefix: int
    interface: str


class RunDirectory:
    """The files that agent and daemon share."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / CONFIG
        self.tracks = path / TRACKS

    def claim(self) -> bool:
        """
        Be the only agent of this directory until the process ends; False while another one is.

        Two would take each other's candidates away, and leave out what was never judged. Where there are no locks,
        nobody else is looked for.
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

    def load(self) -> Localized | None:
        """The configuration that keepalived reads at its start; None when there is none, or none of ours."""
        return _recalled(self.config)

    def load_good(self) -> Localized | None:
        """The last configuration that the daemon was seen to run."""
        return _recalled(self.path / GOOD)

    def install(self, localized: Localized) -> None:
        """Make keepalived read *localized* from now on."""
        replace_file(self.config, localized.text.encode())

    def keep_good(self, localized: Localized) -> None:
        """Remember *localized* as the one to fall back to."""
        replace_file(self.path / GOOD, localized.text.encode())

    def write_candidate(self, text: str) -> Path:
        """Put *text* where it can be checked."""
        path = self.path / CANDIDATE
        replace_file(path, text.encode())
        return path

    def drop_candidate(self) -> None:
        """Remove what was checked: it may hold the password."""
        (self.path / CANDIDATE).unlink(missing_ok=True)

    def load_record(self) -> frozenset[VirtualIP]:
        """Every VIP that a daemon of this pod may have put on an interface; a damaged record holds none."""
        try:
            entries = msgspec.json.decode((self.path / RECORD).read_bytes(), type=list[Recorded])
        except (OSError, msgspec.DecodeError):
            return frozenset()
        found = ((read_address(each.address), each) for each in entries)
        return frozenset(VirtualIP(address, each.prefix, each.interface) for address, each in found if address)

    def save_record(self, virtual_ips: Iterable[VirtualIP]) -> None:
        """Write the record."""
        entries = [Recorded(str(each.address), each.prefix, each.interface) for each in sorted(virtual_ips)]
        replace_file(self.path / RECORD, msgspec.json.encode(entries))


def replace_file(path: Path, content: bytes) -> None:
    """Give *path* new content in one step."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), _MODE)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _recalled(path: Path) -> Localized | None:
    try:
        return recalled(path.read_text())
    except (OSError, UnicodeDecodeError):
        return None
