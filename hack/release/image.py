"""kavip's image as an OCI index with one image for each architecture, from the testbed's builds of the Dockerfile."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from hack.release import tarball
from hack.release.oci import CONFIG, INDEX, MANIFEST, Document, Layout
from hack.release.source import Source
from hack.testbed import dockerarchive, images, packages
from hack.testbed.errors import TestbedError
from hack.testbed.progress import say, step

_KEPT: Final = ("User", "Env", "Entrypoint", "Cmd", "Labels", "WorkingDir")
"""The configuration of containers. buildah's own has the name of the machine and of the build."""


def build(source: Source, architecture: str, *, locked: bool) -> Path:
    """The image for one architecture as a docker-archive."""
    archive = images.image(
        f"localhost/kavip-release:{architecture}",
        dockerfile=source.tree / "Dockerfile",
        requirements=source.tree / "requirements" / "run.txt",
        architecture=architecture,
    )
    lock = packages.lock_of(architecture)
    drift = packages.drift(source.tree / lock, archive)
    for line in drift:
        say(f"{lock}: {line}")
    if drift and locked:
        raise TestbedError(f"the image for {architecture} is not what {lock} locks: run `make packages` and commit it")
    return archive


def write(source: Source, archives: dict[str, Path], out: Path, folder: Path) -> str:
    """Write the index of all *archives*, by architecture, to *out*, by way of *folder*; return its digest."""
    layout = Layout(folder)
    manifests = [_add(layout, source, name, archive) for name, archive in sorted(archives.items())]
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": annotations(source)}
    found = layout.add_json(INDEX, index)
    layout.finish(found, name=source.version)
    layout.archive(out, epoch=source.epoch)
    digest: str = found["digest"]
    return digest


def annotations(source: Source) -> dict[str, str]:
    """What a registry shows."""
    return {
        "org.opencontainers.image.created": _created(source),
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.revision": source.commit,
        "org.opencontainers.image.title": "kavip",
        "org.opencontainers.image.version": source.version,
    }


def _add(layout: Layout, source: Source, architecture: str, archive: Path) -> Document:
    """Add the image of one architecture; return its descriptor."""
    with step(f"Write the image for {architecture}", "its layers, with the time of the commit"):
        layers = [_add_layer(layout, source, archive, name) for name in dockerarchive.layers(archive)]
    platform = {"architecture": architecture, "os": "linux"}
    config = layout.add_json(CONFIG, {**platform, **_config(source, archive, [diff for _, diff in layers])})
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": [layer for layer, _ in layers],
        "annotations": annotations(source),
    }
    return layout.add_json(MANIFEST, manifest, platform=platform)


def _add_layer(layout: Layout, source: Source, archive: Path, name: str) -> tuple[Document, str]:
    with dockerarchive.opened_layer(archive, name) as layer:
        return layout.add_layer(partial(tarball.copy_layer, layer, epoch=source.epoch))


def _config(source: Source, archive: Path, diffs: Sequence[str]) -> dict[str, Any]:
    built = dockerarchive.config(archive)["config"]
    kept = {key: built[key] for key in _KEPT if built.get(key)}
    kept["Labels"] = {**kept.get("Labels", {}), **annotations(source)}
    kept["Labels"].pop("io.buildah.version", None)
    return {"created": _created(source), "config": kept, "rootfs": {"type": "layers", "diff_ids": list(diffs)}}


def _created(source: Source) -> str:
    return datetime.fromtimestamp(source.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
