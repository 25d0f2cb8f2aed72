"""Configurations as the controller renders them, mounted as kubelet mounts them."""

import gzip
import hashlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kavip.agent.config.model import MountedConfig
from kavip.api.address import parse_address
from kavip.api.group import Instances, PasswordAuth, SecretRef
from kavip.vrrp.compact import encode
from kavip.vrrp.config import render
from kavip.vrrp.instances import model_of
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.packed import pack, unpacked
from tests.support.build import group

PASSWORD = "s3cr3t_9"
DIGEST = "digest of the next text"
FAST: dict[str, Any] = {"unicast_enabled": True, "vrrp_version": 3, "advert_interval_milliseconds": 200}
WITH_PASSWORD: dict[str, Any] = {"vrrp_version": 2, "password_auth": PasswordAuth(secret_ref=SecretRef(name="vrrp"))}


def python_environment() -> dict[str, str]:
    """The environment for a Python with another name, which cannot find its standard library by that name."""
    root = str(Path(__file__).parents[2])
    return {**os.environ, "PYTHONHOME": sys.base_prefix, "PYTHONPATH": os.pathsep.join([root, *filter(None, sys.path)])}


def shared(count: int) -> Instances:
    """``spec.instances`` of a group whose VIPs live in *count* instances."""
    return Instances(mode="Shared", count=count)


def peer(number: int) -> Peer:
    """Node n1, n2, ... of the testbed's segment."""
    return Peer(f"n{number}", parse_address(f"192.0.2.{10 + number}"), parse_address(f"2001:db8:2::{10 + number}"))


def rendered(services: dict[str, str], *, nodes: int = 2, **spec: Any) -> str:
    """The text for group lb/edge; *services* maps ``ns/name`` to comma-separated VIPs."""
    owner = group("lb/edge", **{**FAST, **spec})
    members = [
        Member(key=key, addresses=tuple(parse_address(text) for text in vips.split(",")), created=f"2026-01-01T{n:02}")
        for n, (key, vips) in enumerate(services.items())
    ]
    keys = [*(f"group/{slot}" for slot in range(owner.spec.instances.count)), *services]
    router_ids = {key: number for number, key in enumerate(keys, start=10)}
    return render(model_of(owner, members, [peer(number) for number in range(1, nodes + 1)], router_ids)).text


def compact(text: str) -> str:
    """*text*, of several instances, in the compact notation."""
    found = encode([("", text)])
    assert "\n    $priority " in found
    return found


def packed(text: str) -> str:
    """*text*, of several instances, compact and packed."""
    return pack(compact(text))


def hash_of(text: str) -> str:
    """The hash that identifies *text*."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def mounted(text: str, **more: Any) -> MountedConfig:
    """The configuration that the agent reads if *text* is mounted."""
    return MountedConfig(**{"text": text, "config_hash": hash_of(text), "group": "lb/edge", **more})


@dataclass
class Mount:
    """A folder that changes as kubelet changes it: a new folder beside the old one, then one swap of a link."""

    path: Path
    generation: int = field(default=0)

    def write(
        self,
        text: str,
        following: str = "",
        *,
        damage: Callable[[Path], object] | None = None,
        notation: Callable[[str], str] = str,
        **meta: Any,
    ) -> str:
        """
        Mount *text* with ``agent.json`` and the next text if there is one, after some *damage*; returns its hash.

        Both texts are in this *notation*; what is packed of the next one is not packed twice.
        """
        content = {"group": "lb/edge", "configHash": hash_of(text), **meta}
        files = {"keepalived.conf": notation(text).encode()}
        if following:
            files["next.conf.gz"] = gzip.compress(unpacked(notation(following)).encode())
            content = {"next": {"configHash": hash_of(following)}, "nextHash": DIGEST, **content}
        self.swap({**files, "agent.json": json.dumps(content).encode()}, damage=damage)
        return hash_of(text)

    def swap(self, files: dict[str, bytes], *, damage: Callable[[Path], object] | None = None) -> None:
        """Mount these files instead of the present ones, after some *damage*."""
        self.generation += 1
        folder = self.path / f"..{self.generation}"
        folder.mkdir(parents=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        if damage:
            damage(folder)
        link = self.path / "..data_tmp"
        link.symlink_to(folder.name)
        os.replace(link, self.path / "..data")
