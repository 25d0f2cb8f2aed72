"""
Runs a program without privileges: no capabilities, no way to gain them, bounded time, memory and files.

Executed as a program, by path, with the standard library alone: ``python -I -S sandbox.py PROGRAM ARG...``. Without
capabilities and with ``no_new_privs``, root is an ordinary user that cannot change the network.
"""

import ctypes
import os
import resource
import sys
from typing import Final

CPU_SECONDS: Final = 5
MEMORY: Final = 512 << 20
FILE_SIZE: Final = 8 << 20
OPEN_FILES: Final = 64

_CAPBSET_DROP: Final = 24  # prctl(2)
_SET_NO_NEW_PRIVS: Final = 38
_CAP_AMBIENT: Final = 47
_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION: Final = 0x20080522  # capset(2): two words for each set
_LAST_CAPABILITY: Final = 63


def drop_privileges() -> None:
    """Drop every privilege that a process can drop; raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    for limit, value in (
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (bound, bound))
    _must(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    libc.prctl(_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)  # needs CAP_SETPCAP; no_new_privs holds without it
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _must(libc.capset(header, nothing), "capset")


def _must(result: int, what: str) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    try:
        drop_privileges()
        os.execv(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"sandbox: {error}")
