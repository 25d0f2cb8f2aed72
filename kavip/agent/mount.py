"""
What kubelet mounts: the group's ConfigMap, and its Secret where the group has a password.

kubelet swaps the symbolic link ``..data`` to a new folder; both files are read from one folder, so they always belong
together.
"""

import os
import re
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kavip import names
from kavip.agent.config.localize import Mounted, Next
from kavip.agent.config.model import Refused
from kavip.api.agent import AgentConfig, decode_config
from kavip.vrrp import operatorconfig

_LARGEST: Final = 1 << 20  # no ConfigMap is larger
_LARGEST_PASSWORD: Final = 64
_ANOTHER: Final = (
    "password: the Secret holds another one than keepalived-operator's pods run; store theirs there, without what is "
    "behind its 8th character"
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")


@dataclass(frozen=True, slots=True)
class Passwords:
    """
    Where passwords are: *folder* has a folder for each Secret, ``agent.json`` says which key of which.

    *file* is the one where it does not say.
    """

    folder: Path | None = None
    file: Path | None = None

    def folders(self) -> frozenset[Path]:
        """Every folder that a Secret is mounted at."""
        found = {self.file.parent} if self.file else set()
        if self.folder is not None and self.folder.is_dir():
            found |= {each for each in self.folder.iterdir() if each.is_dir()}
        return frozenset(found)

    def read(self, name: str) -> str | None:
        """The password *name*, or None where there is none."""
        if not name:
            return _password(self.file)
        secret, _, key = name.partition("/")
        sound = self.folder is not None and all(_NAME.fullmatch(part) and part.strip(".") for part in (secret, key))
        return _password(self.folder / secret / key) if self.folder is not None and sound else None


def read(config_dir: Path, passwords: Passwords) -> Mounted | Refused:
    """Read all mounts as they are now."""
    try:
        text, meta, following, old = _config(config_dir)
    except OSError as error:
        return Refused(f"the ConfigMap is not mounted, or lacks a key: {os.strerror(error.errno or 0)}")
    except UnicodeDecodeError:
        return Refused("the ConfigMap holds bytes that are not UTF-8")
    if meta is None:
        return Refused(f"{names.AGENT_KEY} in the ConfigMap is not what this version of kavip writes")
    current = Mounted(
        text=text,
        config_hash=meta.config_hash,
        group=meta.group,
        interface_from_ip=meta.interface_from_ip,
        authentication=meta.authentication,
        is_static=meta.static,
        checks=meta.checks,
        password=passwords.read(meta.password) if meta.authentication else None,
        password_name=_name(meta.password, meta.renewals),
        locals=meta.locals,
    )
    if current.password is not None and operatorconfig.read_password(old) not in (None, current.password):
        return Refused(_ANOTHER)  # who does not know theirs does not hear them, and would be master beside them
    return replace(current, next=_next(current, meta, following, passwords))


def _next(current: Mounted, meta: AgentConfig, following: bytes | None, passwords: Passwords) -> Next | None:
    """What is to come; without a file of its own it is the same text, with another password."""
    if meta.next is None:
        return None
    found = _unpacked(following) if following is not None else current.text
    if found is None:
        return Next(meta.next_hash, Refused(f"{names.NEXT_KEY} in the ConfigMap cannot be read"))
    mounted = replace(
        current,
        text=found,
        config_hash=meta.next.config_hash,
        interface_from_ip=meta.next.interface_from_ip,
        authentication=bool(meta.next.password),
        password=passwords.read(meta.next.password) if meta.next.password else None,
        password_name=_name(meta.next.password, meta.next.renewals),
        is_next=True,
    )
    return Next(meta.next_hash, mounted, meta.switch_at)


def _name(path: str, renewals: int) -> str:
    """Which password that is: where it is, and which of its contents."""
    return f"{path} {renewals}" if path else ""


def _unpacked(content: bytes) -> str | None:
    try:
        return zlib.decompressobj(wbits=31).decompress(content, _LARGEST).decode()
    except (zlib.error, UnicodeDecodeError):
        return None


def _config(config_dir: Path) -> tuple[str, AgentConfig | None, bytes | None, str]:
    swapped = config_dir / "..data"
    folder = os.open(swapped if swapped.is_dir() else config_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        text, old = _texts(folder)
        meta = decode_config(_content(names.AGENT_KEY, folder=folder, limit=_LARGEST))
        try:
            following = _content(names.NEXT_KEY, folder=folder, limit=_LARGEST)
        except FileNotFoundError:
            following = None
        return text, meta, following, old
    finally:
        os.close(folder)


def _texts(folder: int) -> tuple[str, str]:
    """kavip's text, and that of keepalived-operator's pods as long as they run elsewhere: it has its key then."""
    try:
        text = _content(names.TAKE_OVER_KEY, folder=folder, limit=_LARGEST).decode()
    except FileNotFoundError:
        return _content(names.CONFIG_KEY, folder=folder, limit=_LARGEST).decode(), ""
    return text, _content(names.CONFIG_KEY, folder=folder, limit=_LARGEST).decode(errors="replace")


def _password(path: Path | None) -> str | None:
    """The password, or None where there is none to read; what is too long or no text is handed on to be refused."""
    if path is None:
        return None
    try:
        return _content(str(path), limit=_LARGEST_PASSWORD).decode("ascii", errors="replace")
    except OSError:
        return None


def _content(path: str, *, limit: int, folder: int | None = None) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        return file.read(limit)
