"""The Debian packages of kavip's image, and the lock that lists them: `requirements/debian-ARCHITECTURE.txt`.

The image lists its packages in `/usr/share/kavip/packages.txt`: name, version and architecture, one package a line. The
lock is such a list, below a comment. Mirrors drop old versions, so a build installs what the mirror has; the difference
is printed, and a release refuses it.
"""

from pathlib import Path

from hack.testbed import dockerarchive
from hack.testbed.errors import TestbedError

LIST = "usr/share/kavip/packages.txt"
_HEAD = """\
# The Debian packages of kavip's image: name, version, architecture. `make packages` writes this file.
"""


def lock_of(architecture: str) -> Path:
    """The path of the lock, in a checkout, of the image for that architecture."""
    return Path(f"requirements/debian-{architecture}.txt")


def listed(archive: Path) -> list[str]:
    """The packages of the image in a docker-archive."""
    for layer in reversed(dockerarchive.layers(archive)):
        with dockerarchive.opened_layer(archive, layer) as files:
            found = next((member for member in files if member.name.removeprefix("./") == LIST), None)
            if found and (file := files.extractfile(found)):
                return file.read().decode().splitlines()
    raise TestbedError(f"{archive} has no /{LIST}: the Dockerfile of kavip writes it")


def locked(lock: Path) -> list[str]:
    """The packages that a lock lists; none if there is no such file."""
    lines = lock.read_text().splitlines() if lock.exists() else []
    return [line for line in lines if line and not line.startswith("#")]


def write(lock: Path, archive: Path) -> None:
    """Lock the packages of an image."""
    lock.write_text(_HEAD + "".join(f"{package}\n" for package in sorted(listed(archive))))


def drift(lock: Path, archive: Path) -> list[str]:
    """What differs: `- package` is in the lock only, `+ package` in the image only; sorted by package."""
    wanted, found = set(locked(lock)), set(listed(archive))
    signs = {package: "-" if package in wanted else "+" for package in wanted ^ found}
    return [f"{signs[package]} {package}" for package in sorted(signs)]
