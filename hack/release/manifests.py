"""install.yaml: config/default with the image of the release by digest, for `kubectl apply --server-side -f`."""

from pathlib import Path

from hack.release.source import Source, replace_once
from hack.testbed import programs
from hack.testbed.place import run


def write(source: Source, out: Path, *, repository: str, digest: str) -> None:
    """Write all objects, as kustomize renders them."""
    folder = source.tree / "config" / "default"
    kustomization = folder / "kustomization.yaml"
    replace_once(kustomization, r"^    newName: localhost/kavip$", f"    newName: {repository}")
    replace_once(kustomization, r"^    newTag: .*$", f"    digest: {digest}")
    kubectl = programs.ensure(("kubectl",))["kubectl"]
    out.write_text(run([kubectl, "kustomize", str(folder)]).stdout)
