"""Programs for releases, built from their Go modules into the cache: a registry, cosign, syft.

Their modules are not beside those of the testbed, because they need a newer Go than Kubernetes does.
"""

from pathlib import Path
from typing import Final

from hack.testbed import cache, golang
from hack.testbed.progress import step

_MODULES: Final = Path(__file__).parent / "tools"
_PACKAGES: Final = {
    "registry": "github.com/distribution/distribution/v3/cmd/registry",
    "cosign": "github.com/sigstore/cosign/v3/cmd/cosign",
    "syft": "github.com/anchore/syft/cmd/syft",
}
_FLAGS: Final = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w")


def program(name: str) -> str:
    """The path of one of them."""
    module, package = _MODULES / name, _PACKAGES[name]

    def build(draft: Path) -> None:
        with step(f"Build {name}", f"with {golang.description()}; once, then it is kept in {cache.root()}") as progress:
            golang.build(module, [package], _FLAGS, draft, progress=progress)

    inputs = (module / "go.mod", module / "go.sum", package, *_FLAGS, golang.description())
    return str(cache.entry(f"programs/{name}", build, *inputs, code=[golang]) / name)
