"""The programs of other versions of Kubernetes, built from the modules pinned in this directory, into the cache."""

import re
from pathlib import Path
from typing import Final

from hack.testbed import cache, golang
from hack.testbed.programs import Programs
from hack.testbed.progress import step

HERE: Final = Path(__file__).parent
PROGRAMS: Final = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)


def version(minor: str) -> str:
    """The version that is pinned for a minor version such as 1.30."""
    found = re.search(
        r"^\s*(?:require )?k8s\.io/kubernetes (v\S+)", _module(minor).joinpath("go.mod").read_text(), re.M
    )
    assert found is not None, f"{_module(minor)} requires no Kubernetes"
    return found[1]


def programs(minor: str, testbed: Programs) -> Programs:
    """The programs of that version, with etcd and helm of the *testbed*."""
    module, packages = _module(minor), [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS]
    flags = _flags(version(minor))

    def build(draft: Path) -> None:
        title = f"Build Kubernetes {version(minor)}"
        with step(title, f"with {golang.description()}; once, then it is kept in {cache.root()}") as progress:
            golang.build(module, packages, flags, draft, progress=progress)

    inputs: tuple[cache.Part, ...] = (module / "go.mod", module / "go.sum", *flags, golang.description())
    folder = cache.entry(f"programs/kubernetes-{minor}", build, *inputs, code=[golang])
    return Programs(testbed.paths | {name: folder / name for name in PROGRAMS})


def _module(minor: str) -> Path:
    return HERE / f"kubernetes-{minor}"


def _flags(full: str) -> list[str]:
    """As for the testbed's own Kubernetes: without a version it would call itself v0.0.0-master."""
    major, minor, _ = full.removeprefix("v").split(".")
    values = {"gitVersion": full, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = [f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items()]
    return ["-trimpath", "-buildvcs=false", f"-ldflags=-s -w {' '.join(stamps)}"]
