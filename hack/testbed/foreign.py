"""Programs of another architecture on this machine: QEMU's user emulation, registered with the kernel while needed.

The kernel opens the emulator when it is registered (flag F), so it also runs in a chroot that does not have it. The
registration is that of the whole machine; one that is there already, of this or another program, is used and stays.
"""

import platform
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.testbed import cache, debian
from hack.testbed.errors import TestbedError
from hack.testbed.place import run

PACKAGE: Final = {"qemu-user-static": "qemu-aarch64-static"}
_BINFMT: Final = Path("/proc/sys/fs/binfmt_misc")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A little-endian architecture, its name in wheels and for the kernel, and its number in the header of programs."""

    machine: str
    elf: int


# Other architectures of Debian lack wheels of what requirements/run.txt pins: docs/howto/image.md.
ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "amd64": Architecture("x86_64", 62),
    "arm64": Architecture("aarch64", 183),
}
"""By the name that Debian and OCI have for it."""


def native() -> str:
    """The architecture of this machine."""
    machine = platform.machine()
    found = next((name for name, each in ARCHITECTURES.items() if each.machine == machine), None)
    if found is None:
        raise TestbedError(f"images are built on {', '.join(ARCHITECTURES)}, not on {machine}")
    return found


@contextmanager
def emulated(name: str) -> Iterator[None]:
    """Run programs of the architecture while the block runs."""
    architecture = ARCHITECTURES[name]
    if name == native():
        yield
        return
    debian.install(PACKAGE)
    with cache.lock(f"emulate-{name}"):
        if not (_BINFMT / "register").exists():
            run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)])
        entry = _BINFMT / f"qemu-{architecture.machine}"
        ours = not entry.exists()
        if ours:
            (_BINFMT / "register").write_bytes(_registration(architecture))
        try:
            yield
        finally:
            if ours:
                entry.write_text("-1")


def _registration(architecture: Architecture) -> bytes:
    """The kernel's line for 64-bit programs and libraries of the architecture; flags: as called, and opened now."""
    magic = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 2, architecture.elf)
    mask = b"\xff" * 7 + bytes(9) + struct.pack("<HH", 0xFFFE, 0xFFFF)  # EXEC is 2, DYN 3
    escaped = (b"".join(b"\\x%02x" % byte for byte in each) for each in (magic, mask))
    emulator = f"/usr/bin/qemu-{architecture.machine}-static".encode()
    return b":qemu-%s:M::%s:%s:%s:PF" % (architecture.machine.encode(), *escaped, emulator)
