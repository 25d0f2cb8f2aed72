"""Reads a docker-archive, the form in which the testbed keeps images: its configuration, its layers, its files."""

import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def config(archive: Path) -> dict[str, Any]:
    """The image's configuration, with architecture, layers and history."""
    with tarfile.open(archive) as image:
        found: dict[str, Any] = json.load(_opened(image, _manifest(image)["Config"]))
    return found


def layers(archive: Path) -> list[str]:
    """The names of the layers in the archive, the lowest first."""
    with tarfile.open(archive) as image:
        found: list[str] = _manifest(image)["Layers"]
    return found


@contextmanager
def opened_layer(archive: Path, layer: str) -> Iterator[tarfile.TarFile]:
    """A layer as a tar file."""
    with tarfile.open(archive) as image, tarfile.open(fileobj=_opened(image, layer)) as files:
        yield files


def unpack(archive: Path, root: Path) -> None:
    """Write the files of the image below *root*. A file that a layer deletes stays: kavip's layers delete none."""
    root.mkdir(parents=True)
    for layer in layers(archive):
        with opened_layer(archive, layer) as files:
            files.extractall(root, filter="tar", numeric_owner=True)


def _manifest(image: tarfile.TarFile) -> dict[str, Any]:
    found: dict[str, Any] = json.load(_opened(image, "manifest.json"))[0]
    return found


def _opened(archive: tarfile.TarFile, member: str | tarfile.TarInfo) -> IO[bytes]:
    file = archive.extractfile(member)
    assert file is not None, f"{member} is a directory"
    return file
