"""The Debian packages of a cluster: what is missing, and its installation by root.

Services that the packages bring are not started, and not enabled either: the testbed starts its own, in its own
namespaces, and the machine stays as it was.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from hack.testbed.place import run
from hack.testbed.progress import say, step

# package: one of its files, so that the check is quick and also right where the program came by another way
PACKAGES: Mapping[str, str] = {
    "keepalived": "keepalived",
    "iproute2": "ip",
    "iputils-arping": "arping",
    "iputils-ping": "ping",
    "tcpdump": "tcpdump",
    "curl": "curl",
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/ptp",
    "nftables": "nft",
    "conntrack": "conntrack",
    "prometheus": "prometheus",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "debian-archive-keyring": "/usr/share/keyrings/debian-archive-keyring.gpg",
    "jq": "jq",
    "systemd": "/usr/lib/systemd/systemd",
    "dbus": "dbus-daemon",
    "gcc": "gcc",
    "libc6-dev": "/usr/include/stdlib.h",
}
BROWSER: Mapping[str, str] = {
    "chromium": "chromium",
    "fonts-dejavu-core": "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
}
SERVICES = ("keepalived", "containerd", "nftables", "conntrackd", "prometheus")
POLICY = Path("/usr/sbin/policy-rc.d")  # Debian's switch: exit status 101 forbids package scripts to start services


def missing(packages: Sequence[str] = tuple(PACKAGES)) -> list[str]:
    """The packages whose program is not on this machine."""
    return absent_of({package: PACKAGES[package] for package in packages})


def absent_of(packages: Mapping[str, str]) -> list[str]:
    """Those of *packages* whose file is not on this machine."""
    return [package for package, program in packages.items() if not _present(program)]


def installable() -> bool:
    """Whether `install` can install anything here."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(packages: Mapping[str, str] = PACKAGES) -> None:
    """Install the packages whose program is missing; without root, print their names."""
    absent = absent_of(packages)
    if not absent:
        return
    if not installable():
        say(f"not installed (needs root on a Debian machine; only `cluster` needs them): {' '.join(absent)}")
        return
    with step("Install Debian packages", " ".join(absent)), _no_services(absent):
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "-q", "update"], env=env, timeout=600)
        run(["apt-get", "-q", "install", "--yes", "--no-install-recommends", *absent], env=env, timeout=1800)


def _present(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else shutil.which(program) is not None


@contextmanager
def _no_services(packages: Sequence[str]) -> Iterator[None]:
    """Keep the packages from starting services now, and from enabling them for the next boot."""
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink()
    brought = [service for service in SERVICES if service in packages]
    if brought and Path("/run/systemd/system").exists():
        subprocess.run(["systemctl", "disable", "--quiet", *brought], check=False)
