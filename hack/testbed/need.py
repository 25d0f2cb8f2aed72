"""Checks that this machine can make namespaces; one message names everything that is missing."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hack.testbed import cache, debian
from hack.testbed.errors import TestbedError

SEGMENT = ("iproute2",)
CLUSTER = ("iproute2", "containerd", "runc", "containernetworking-plugins", "nftables", "conntrack")
SYSTEMD = ("systemd", "dbus")
IMAGES = ("buildah", "debootstrap", "debian-archive-keyring", "gcc", "libc6-dev")
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # bits, from capability.h


def namespaces(purpose: str, packages: Sequence[str]) -> None:
    """Raise TestbedError unless machines can be made here; `purpose` begins the message."""
    absent = [*_rights(), *(f"package {package}" for package in debian.missing(packages))]
    absent = absent or _namespaces()
    if absent:
        raise TestbedError(
            f"{purpose} needs what is missing here: {', '.join(absent)}. "
            "`python -m hack.testbed programs`, run as root, installs packages; a control plane alone needs none of it."
        )


def packages(purpose: str, names: Sequence[str]) -> None:
    """Raise TestbedError unless we are root and these packages are installed."""
    absent = [*_rights(), *(f"package {package}" for package in debian.missing(names))]
    if absent:
        raise TestbedError(f"{purpose} needs what is missing here: {', '.join(absent)}")


def _rights() -> list[str]:
    if os.geteuid() != 0:
        return ["root"]
    status = Path("/proc/self/status").read_text()
    effective = int(next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), 16)
    return [name for name, bit in _CAPABILITIES.items() if not effective >> bit & 1]


def _namespaces() -> list[str]:
    """
    What fails when namespaces and overlay mounts are tried: the kernel, or a container around us, may forbid them.
    """
    isolate = ["unshare", "--fork", "--pid", "--mount", "--net", "--uts", "--mount-proc"]
    done = subprocess.run([*isolate, "true"], capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"permission to make namespaces ({done.stderr.strip()})"]
    with tempfile.TemporaryDirectory(dir=cache.root()) as folder:
        for name in ("lower", "upper", "work"):
            Path(folder, name).mkdir()
        layers = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
        stack = [*isolate, "mount", "-t", "overlay", "-o", layers, "overlay", f"{folder}/lower"]
        done = subprocess.run(stack, capture_output=True, text=True, check=False)
    if done.returncode:
        return [f"overlay mounts in {cache.root()} ({done.stderr.strip()}; KAVIP_CACHE can name another file system)"]
    return []
