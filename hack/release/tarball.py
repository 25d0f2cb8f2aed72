"""Archives that are equal in each build: order, owners and times do not depend on the machine or the day."""

import gzip
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final

_LEVEL: Final = 6
_MODULE: Final = re.compile(r"(\./)?usr/lib/python3[^/]*/.+\.py")
_KEPT: Final = "SCHILY.xattr."
"""The pax headers of extended attributes; the others hold times and names."""


def compressed(out: IO[bytes]) -> gzip.GzipFile:
    """A gzip stream without name and time."""
    return gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=out, mtime=0)


def copy_layer(layer: tarfile.TarFile, out: IO[bytes], *, epoch: int) -> None:
    """
    Copy a layer: every file has the time *epoch*, and owners have numbers only. The order stays: links need it.

    Modules of Debian's Python keep the time that they have in their package, because their bytecode names it.
    """
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as copy:
        for member in layer:
            member.mtime = min(int(member.mtime), epoch) if _MODULE.fullmatch(member.name) else epoch
            member.uname = member.gname = ""
            member.pax_headers = {key: text for key, text in member.pax_headers.items() if key.startswith(_KEPT)}
            copy.addfile(member, layer.extractfile(member) if member.isreg() else None)


def write(out: IO[bytes] | gzip.GzipFile, files: Mapping[str, Path], *, epoch: int) -> None:
    """A tar of *files* by their name in it, with the owner root."""
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = path.stat().st_size, epoch
            member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                archive.addfile(member, content)


def write_compressed(path: Path, files: Mapping[str, Path], *, epoch: int) -> None:
    """The same as a .tar.gz at *path*."""
    with path.open("wb") as out, compressed(out) as stream:
        write(stream, files, epoch=epoch)


def files_below(folder: Path, prefix: str = "") -> dict[str, Path]:
    """The files of a directory, by their path from there."""
    return {f"{prefix}{path.relative_to(folder)}": path for path in folder.rglob("*") if path.is_file()}
