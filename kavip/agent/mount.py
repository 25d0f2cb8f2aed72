"""
What kubelet mounts: the group's ConfigMap, and its Secret if the group has a password.

kubelet changes a mount by swapping the symbolic link ``..data`` to a new folder. All keys are read from one folder, so
they always belong together.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kavip import names
from kavip.agent.config.model import ConflictDetection, MountedConfig, NextConfig, RefusedConfig
from kavip.api.agent import ProblemCode
from kavip.api.agentconfig import AgentConfig, decode_config, named_group
from kavip.api.spans import read_spans
from kavip.vrrp import compact, operatorconfig
from kavip.vrrp.compact import Unreadable
from kavip.vrrp.packed import decompressed, expand

_MAX_BYTES: Final = 1 << 20  # of a ConfigMap
_MAX_PASSWORD: Final = 64
_MISMATCH: Final = (
    "password: the Secret holds another one than keepalived-operator's pods run; store their password there, cut after "
    "its 8th character"
)
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,253}")


@dataclass(frozen=True, slots=True)
class PasswordFiles:
    """
    Where passwords are mounted.

    *folder* has a folder for each Secret; ``agent.json`` names the Secret and the key. *file* is the password if
    ``agent.json`` names none.
    """

    folder: Path | None = None
    file: Path | None = None

    def folders(self) -> frozenset[Path]:
        """Every folder at which a Secret is mounted."""
        found = {self.file.parent} if self.file else set()
        if self.folder is not None and self.folder.is_dir():
            found |= {each for each in self.folder.iterdir() if each.is_dir()}
        return frozenset(found)

    def read(self, name: str) -> str | None:
        """The password *name*, ``SECRET/KEY``, or None if there is none."""
        if not name:
            return _password(self.file)
        secret, _, key = name.partition("/")
        is_valid = self.folder is not None and all(_NAME.fullmatch(part) and part.strip(".") for part in (secret, key))
        return _password(self.folder / secret / key) if self.folder is not None and is_valid else None


@dataclass(frozen=True, slots=True)
class _Files:
    """The keys of the mounted ConfigMap; *old* is keepalived-operator's text while its pods run elsewhere."""

    text: str
    old: str
    agent: bytes
    following: bytes | None


def read(config_dir: Path, passwords: PasswordFiles) -> MountedConfig | RefusedConfig:
    """Read all mounts as they are now."""
    try:
        files = _read_files(config_dir)
    except OSError as error:
        message = f"the ConfigMap is not mounted, or lacks a key: {os.strerror(error.errno or 0)}"
        return RefusedConfig(ProblemCode.MOUNT_UNREADABLE, message, group=_group_in(config_dir))
    except UnicodeDecodeError:
        message = "the ConfigMap holds bytes that are not UTF-8"
        return RefusedConfig(ProblemCode.MOUNT_INVALID, message, group=_group_in(config_dir))
    found = _mounted(files, passwords)
    return replace(found, group=named_group(files.agent)) if isinstance(found, RefusedConfig) else found


def _mounted(files: _Files, passwords: PasswordFiles) -> MountedConfig | RefusedConfig:
    config = decode_config(files.agent)
    if config is None:
        message = f"{names.AGENT_KEY} in the ConfigMap is not what this version of kavip writes"
        return RefusedConfig(ProblemCode.MOUNT_INVALID, message)
    text = expand(files.text)
    if isinstance(text, Unreadable):
        message = f"{names.CONFIG_KEY} in the ConfigMap cannot be read: {text.message}"
        return RefusedConfig(ProblemCode.MOUNT_INVALID, message)
    current = MountedConfig(
        text=text,
        config_hash=config.config_hash,
        group=config.group,
        interface_from_ip=config.interface_from_ip,
        authentication=config.authentication,
        is_static=config.static,
        checks=config.checks,
        password=passwords.read(config.password) if config.authentication else None,
        password_name=_password_name(config.password, config.renewals),
        locals=config.locals,
        detection=_detection(config),
        pool_interfaces=frozenset(config.pool_interfaces),
        routes=config.routes,
        follow=config.follow if config.static else None,  # elsewhere the controller keeps the nodes current
        interfaces=frozenset(config.interfaces),
    )
    if current.password is not None and operatorconfig.read_password(files.old) not in (None, current.password):
        # with another password the node does not accept the old pods' adverts, and would be a second master
        return RefusedConfig(ProblemCode.PASSWORD_MISMATCH, _MISMATCH)
    return replace(current, next=_next(current, config, files.following, passwords))


def _detection(config: AgentConfig) -> ConflictDetection | None:
    found = config.conflict_detection
    if found is None or config.static:  # without a controller, another node could look like another machine
        return None
    return ConflictDetection(read_spans(found.probe), read_spans(found.off), frozenset(found.hardware_addresses))


def _next(
    current: MountedConfig, config: AgentConfig, following: bytes | None, passwords: PasswordFiles
) -> NextConfig | None:
    """The next configuration; without a text of its own it is the same text with another password."""
    if config.next is None:
        return None
    text = current.text if following is None else _next_text(following)
    if text is None:
        message = f"{names.NEXT_KEY} in the ConfigMap cannot be read"
        return NextConfig(config.next_hash, RefusedConfig(ProblemCode.MOUNT_INVALID, message))
    mounted = replace(
        current,
        text=text,
        config_hash=config.next.config_hash,
        interface_from_ip=config.next.interface_from_ip,
        authentication=bool(config.next.password),
        password=passwords.read(config.next.password) if config.next.password else None,
        password_name=_password_name(config.next.password, config.next.renewals),
        is_next=True,
        pool_interfaces=frozenset(config.next.pool_interfaces),
        routes=config.next.routes,
    )
    return NextConfig(config.next_hash, mounted, config.switch_at)


def _password_name(path: str, renewals: int) -> str:
    """Identifies a password: its file, and which content of that file."""
    return f"{path} {renewals}" if path else ""


def _next_text(content: bytes) -> str | None:
    found = decompressed(content)
    text = found if isinstance(found, Unreadable) else compact.expand(found)
    return None if isinstance(text, Unreadable) else text


def _group_in(config_dir: Path) -> str:
    """The group of a mount of which something else cannot be read; "" if it is not there either."""
    try:
        with _opened(config_dir) as folder:
            return named_group(_content(names.AGENT_KEY, folder=folder, limit=_MAX_BYTES))
    except OSError:
        return ""


@contextmanager
def _opened(config_dir: Path) -> Iterator[int]:
    """The descriptor of the folder that kubelet swaps."""
    swapped = config_dir / "..data"
    folder = os.open(swapped if swapped.is_dir() else config_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield folder
    finally:
        os.close(folder)


def _read_files(config_dir: Path) -> _Files:
    with _opened(config_dir) as folder:
        text, old = _texts(folder)
        agent = _content(names.AGENT_KEY, folder=folder, limit=_MAX_BYTES)
        try:
            following = _content(names.NEXT_KEY, folder=folder, limit=_MAX_BYTES)
        except FileNotFoundError:
            following = None
        return _Files(text, old, agent, following)


def _texts(folder: int) -> tuple[str, str]:
    """kavip's text, and keepalived-operator's while its pods run elsewhere: that one has its usual key meanwhile."""
    try:
        text = _content(names.TAKE_OVER_KEY, folder=folder, limit=_MAX_BYTES).decode()
    except FileNotFoundError:
        return _content(names.CONFIG_KEY, folder=folder, limit=_MAX_BYTES).decode(), ""
    return text, _content(names.CONFIG_KEY, folder=folder, limit=_MAX_BYTES).decode(errors="replace")


def _password(path: Path | None) -> str | None:
    """The password, or None if there is no file; an invalid one is returned, and refused later."""
    if path is None:
        return None
    try:
        return _content(str(path), limit=_MAX_PASSWORD).decode("ascii", errors="replace")
    except OSError:
        return None


def _content(path: str, *, limit: int, folder: int | None = None) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        return file.read(limit)
