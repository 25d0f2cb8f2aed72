"""
``python -m hack.imagekeepalived COMMAND``: runs a command for which /usr/sbin/keepalived is the one of kavip's image.

The tests start keepalived in machines that share the files of this one. So the image is unpacked, a copy of its
keepalived is told to use the image's own dynamic linker and libraries, and the copy is mounted over the program of this
machine, in a mount namespace of the command's own.
"""

import os
import sys
from pathlib import Path
from typing import Final

from hack.demo.__main__ import image
from hack.testbed import cache, debian, dockerarchive
from hack.testbed.place import run
from hack.testbed.progress import say, step

PROGRAM: Final = Path("usr/sbin/keepalived")
_LIBRARIES: Final = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu")
_MOUNT: Final = 'mount --bind "$1" "/$2" && mount --bind "$3" "/$4" && shift 4 && exec "$@"'
_OPTIONS: Final = Path("etc/keepalived")
"""Debian's keepalived 2.3 does not start without a file that is there."""


def program() -> Path:
    """The image's keepalived, which runs on this machine."""
    archive = image()

    def make(draft: Path) -> None:
        debian.install({"patchelf": "patchelf"})
        with step("Unpack the image", "for its keepalived"):
            dockerarchive.unpack(archive, draft)

    root = cache.entry("keepalived", make, archive.name, code=[dockerarchive])
    cache.prune("keepalived-*", keep=2)
    patched = root / "keepalived"  # the loader's path holds the name of the directory, which is its draft's before
    if not patched.exists():
        libraries = ":".join(str(root / each) for each in _LIBRARIES)
        linker = run(["patchelf", "--print-interpreter", str(root / PROGRAM)]).stdout.strip().lstrip("/")
        # an rpath, not a runpath, so that the libraries of libraries are found there as well
        flags = ["--force-rpath", "--set-rpath", libraries, "--set-interpreter", str(root / linker)]
        draft = root / "keepalived.draft"
        run(["patchelf", *flags, "--output", str(draft), str(root / PROGRAM)])
        draft.rename(patched)
    return patched


def main() -> None:
    """Replace this process by the command."""
    found = program()
    places = str(found), str(PROGRAM), str(found.parent / _OPTIONS), str(_OPTIONS)
    command = ["unshare", "--mount", "sh", "-c", _MOUNT, "sh", *places]
    say(run([*command, f"/{PROGRAM}", "--version"]).stderr.splitlines()[0])
    command += sys.argv[1:]
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
