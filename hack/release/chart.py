"""The chart, which names the image of the release by digest: as a package, and as an OCI artifact."""

import json
from pathlib import Path
from typing import Any, Final

import yaml

from hack.release import tarball
from hack.release.image import annotations
from hack.release.oci import MANIFEST, Layout
from hack.release.source import Source, replace_once

CONFIG: Final = "application/vnd.cncf.helm.config.v1+json"
CONTENT: Final = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_IMAGES: Final = "artifacthub.io/images"


def package(source: Source, out: Path, *, repository: str, digest: str) -> None:
    """Write the chart as a package, as `helm package` does, but equal in each build."""
    chart = source.tree / "charts" / "kavip"
    values = chart / "values.yaml"
    replace_once(values, r"^  repository: localhost/kavip( +#.*)?$", f"  repository: {repository}")
    replace_once(values, r'^  digest: ""', f"  digest: {digest}")
    listed = "".join(
        f"    - name: {name}\n      image: {image}\n" for name, image in related(repository, digest).items()
    )
    replace_once(chart / "Chart.yaml", r"^annotations:$", f"annotations:\n  {_IMAGES}: |\n{listed.rstrip()}")
    files = tarball.files_below(chart, "kavip/")
    del files["kavip/.helmignore"]
    tarball.write_compressed(out, files, epoch=source.epoch)


def related(repository: str, digest: str) -> dict[str, str]:
    """Every image that a pod of a release may run, by name. A group that names another image adds it itself."""
    return {"kavip": f"{repository}@{digest}"}


def write(source: Source, package: Path, out: Path, folder: Path) -> str:
    """Write the chart as an OCI artifact, which Helm installs from a registry; return its digest."""
    layout = Layout(folder)
    metadata: dict[str, Any] = yaml.safe_load((source.tree / "charts" / "kavip" / "Chart.yaml").read_text())
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.add(CONFIG, json.dumps(metadata, sort_keys=True).encode()),
        "layers": [layout.add(CONTENT, package.read_bytes())],
        "annotations": annotations(source),
    }
    found = layout.add_json(MANIFEST, manifest)
    layout.finish(found, name=source.version)
    layout.archive(out, epoch=source.epoch)
    digest: str = found["digest"]
    return digest
