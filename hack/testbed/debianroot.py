"""A directory with Debian: the current stable release, with its security updates, by debootstrap.

Two runs give the same files: what the installation writes about itself, or about this machine, is removed. Other
architectures are installed as well, if an emulator runs their programs (:mod:`hack.testbed.foreign`).
"""

import re
from pathlib import Path

from hack.testbed import cache, debian
from hack.testbed.place import build_environment, run

SUITE = "trixie"
PYTHON = "3.13"
"""The Python of that release."""
PACKAGES = ("python3", "python3-pip", "python3-venv", "keepalived", "iproute2", "nftables", "ca-certificates")
KEYRING = debian.PACKAGES["debian-archive-keyring"]  # Debian's own keys, whichever mirror is used
_REMOVED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)
_WRITTEN_BY_THE_INSTALLATION = (
    *("etc/machine-id", "etc/resolv.conf", "etc/hostname", "etc/.pwd.lock", "root/.wget-hsts"),
    *("etc/passwd-", "etc/group-", "etc/shadow-", "etc/gshadow-", "etc/subuid-", "etc/subgid-"),
    *("var/log/*", "var/cache/debconf/*", "var/cache/ldconfig/*", "var/lib/dpkg/*-old", "tmp/*"),
    "dev/*",  # a runtime makes its own; a layer with devices cannot be unpacked without root
)
_EMPTY = ("etc/machine-id", "etc/resolv.conf")
"""A runtime mounts files on these, or expects them."""
_KEPT = ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial", "var/log/apt")
LABELS = ("Debian", "Debian-Security")
"""How apt labels Debian's mirrors, and the archive of security updates."""


def make(root: Path, architecture: str) -> None:
    """Install Debian for *architecture* into *root*, and remove what an image does not need."""
    main, security = mirrors()
    # in a mount namespace of its own, so that nothing stays mounted below it if it is interrupted
    command = ["unshare", "--mount", "debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"]
    command += [
        f"--arch={architecture}",
        f"--keyring={KEYRING}",
        "--force-check-gpg",
    ]  # without keys it would only warn
    run([*command, SUITE, str(root), *main], timeout=3600, env=build_environment(), inherit=False)
    if security:
        _upgrade(root, *main, *security)
    _clean(root)


def mirrors() -> tuple[list[str], list[str]]:
    """
    The URLs from which this machine's own apt gets Debian, and its security updates.

    Each is a list of one; or empty, and then debootstrap has a default, and there are no security updates.
    """
    form = ["--format", "$(REPO_URI)", "Origin: Debian", "Component: main", "Identifier: Packages"]
    found = [run(["apt-get", "indextargets", *form, f"Label: {label}"], check=False) for label in LABELS]
    main, security = (done.stdout.split()[:1] for done in found)
    return main, security


def _upgrade(root: Path, main: str, security: str) -> None:
    """Install the security updates, and keep their archive in the list of sources."""
    sources = root / "etc" / "apt" / "sources.list"
    sources.write_text(f"deb {main} {SUITE} main\ndeb {security} {SUITE}-security main\n")
    for command in (["update"], ["--yes", "--no-install-recommends", "dist-upgrade"]):
        chroot = ["unshare", "--mount", "chroot", str(root), "apt-get", "-qq", *command]
        run(chroot, timeout=3600, env=build_environment(), inherit=False)


def _clean(root: Path) -> None:
    """Remove documentation and caches, and what differs from run to run."""
    for pattern in (*_REMOVED, *_WRITTEN_BY_THE_INSTALLATION):
        for path in root.glob(pattern):
            cache.discard(path)
    for name in _EMPTY:
        (root / name).touch()
    for name in _KEPT:
        (root / name).mkdir(parents=True)
    shadow = root / "etc" / "shadow"  # the third field is the day on which the account was made
    shadow.write_text(re.sub(r"^([^:]*:[^:]*):\d+:", r"\1::", shadow.read_text(), flags=re.MULTILINE))
