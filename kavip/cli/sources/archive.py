"""
A ``.tar.gz`` of files in memory: the same files make the same bytes.
"""

import gzip
import io
import os
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

_MODE: Final = 0o600
_TIME: Final = 315_532_800  # 1980: tar warns of files from 1970


def archive(files: Mapping[str, bytes], *, folder: str) -> bytes:
    """*files* below *folder*, in their order."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size, member.mode, member.mtime = len(content), _MODE, _TIME
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def write(path: Path, content: bytes) -> None:
    """Write *path*, whole or not at all; only its owner can read it. Raises :class:`OSError`."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
