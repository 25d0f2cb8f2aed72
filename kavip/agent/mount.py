"""
What kubelet mounts: the group's ConfigMap, and its Secret where the group has a password.

kubelet swaps the symbolic link ``..data`` to a new folder; both files are read from one folder, so they always belong
together.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from kavip import names
from kavip.agent.configuration import Refused
from kavip.agent.localize import Mounted
from kavip.api.group import Check

LONGEST_WAIT: Final = 900.0
"""Seconds that an announced switch may lie ahead; a later one is not waited for."""

_LARGEST: Final = 1 << 20  # no ConfigMap is larger
_LARGEST_PASSWORD: Final = 64


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """The key ``agent.json``: what the agent must know beside keepalived's own text."""

    config_hash: str
    group: str = ""
    interface_from_ip: str = msgspec.field(name="interfaceFromIP", default="")
    authentication: bool = False
    switch_at: str = ""
    checks: tuple[Check, ...] = ()


def read(config_dir: Path, password_file: Path | None) -> Mounted | Refused:
    """Read both mounts as they are now."""
    try:
        text, meta = _config(config_dir)
    except OSError as error:
        return Refused(f"the ConfigMap is not mounted, or lacks a key: {os.strerror(error.errno or 0)}")
    except UnicodeDecodeError:
        return Refused("the ConfigMap holds bytes that are not UTF-8")
    except msgspec.DecodeError:
        return Refused(f"{names.AGENT_KEY} in the ConfigMap is not what this version of kavip writes")
    return Mounted(
        text=text,
        config_hash=meta.config_hash,
        group=meta.group,
        interface_from_ip=meta.interface_from_ip,
        authentication=meta.authentication,
        switch_at=meta.switch_at,
        checks=meta.checks,
        password=_password(password_file) if meta.authentication else None,
    )


def wait(mounted: Mounted, *, now: float) -> float:
    """Seconds until the announced moment at which all nodes switch; 0 when there is none to wait for."""
    try:
        moment = datetime.fromisoformat(mounted.switch_at)
    except ValueError:
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ahead = moment.timestamp() - now
    return ahead if 0 < ahead <= LONGEST_WAIT else 0.0


def _config(config_dir: Path) -> tuple[str, Meta]:
    swapped = config_dir / "..data"
    folder = os.open(swapped if swapped.is_dir() else config_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        text = _text(folder)
        return text, msgspec.json.decode(_content(names.AGENT_KEY, folder=folder, limit=_LARGEST), type=Meta)
    finally:
        os.close(folder)


def _text(folder: int) -> str:
    """kavip's text: while keepalived-operator's pods run elsewhere, they have the other key to themselves."""
    try:
        return _content(names.TAKE_OVER_KEY, folder=folder, limit=_LARGEST).decode()
    except FileNotFoundError:
        return _content(names.CONFIG_KEY, folder=folder, limit=_LARGEST).decode()


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
