"""What is in the image: a CycloneDX document for each architecture, by syft from the files of the image."""

import json
import uuid
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hack.release import tools
from hack.release.source import Source
from hack.testbed import dockerarchive
from hack.testbed.place import run
from hack.testbed.progress import step


def write(source: Source, architecture: str, archive: Path, out: Path) -> None:
    """Write the document of the image in *archive*."""
    syft = tools.program("syft")
    with (
        step(f"List what is in the image for {architecture}", "syft"),
        TemporaryDirectory() as folder,
    ):
        root = Path(folder) / "root"
        dockerarchive.unpack(archive, root)
        named = ("--source-name=kavip", f"--source-version={source.version}")
        done = run(
            [syft, "scan", f"dir:{root}", f"--base-path={root}", "--output=cyclonedx-json", *named], timeout=1800
        )
    document = normalised(json.loads(done.stdout), seed=f"{source.commit} {source.version} {architecture}")
    out.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


def normalised(document: dict[str, Any], *, seed: str) -> dict[str, Any]:
    """The document without time and place of the scan; its number is made from *seed*, and its lists are sorted."""
    metadata = {name: value for name, value in document["metadata"].items() if name != "timestamp"}
    metadata["component"] = {**metadata["component"], "bom-ref": seed}  # syft's depends on the directory
    for name in ("components", "dependencies"):
        document[name] = sorted(document.get(name, ()), key=lambda each: json.dumps(each, sort_keys=True))
    number = uuid.uuid5(uuid.NAMESPACE_URL, f"kavip {seed}")
    return {**document, "metadata": metadata, "serialNumber": f"urn:uuid:{number}"}
