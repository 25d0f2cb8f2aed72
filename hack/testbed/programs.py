"""The Go programs of the testbed: what is needed, and how it is built from pinned modules into the cache.

`ensure` builds what is not in the cache yet; a second run builds nothing. With KUBEBUILDER_ASSETS set, the programs
that users of controller-runtime keep there (kube-apiserver, etcd, kubectl) are taken from there.

Kubernetes, etcd and helm stand in one go.mod, so that each package they share is compiled once. The helm release is
the one whose k8s.io minor version is that of Kubernetes: with another one Go would keep two versions of everything.
"""

import functools
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from hack.testbed import cache, golang
from hack.testbed.errors import TestbedError
from hack.testbed.progress import step


@dataclass(frozen=True, slots=True)
class Source:
    """Where a program comes from."""

    name: str
    module: str  # the folder under tools/
    package: str


SOURCES = (
    Source("etcd", "kubernetes", "go.etcd.io/etcd/server/v3"),
    Source("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Source("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    Source("kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    Source("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler"),
    Source("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet"),
    Source("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy"),
    Source("helm", "kubernetes", "helm.sh/helm/v4/cmd/helm"),
    Source("metallb", "metallb", "go.universe.tf/metallb/controller"),
    Source("metallb-speaker", "metallb", "go.universe.tf/metallb/speaker"),
    Source("traefik", "traefik", "github.com/traefik/traefik/v3/cmd/traefik"),
    Source("agnhost", "kubernetes", "k8s.io/kubernetes/test/images/agnhost"),
    Source("coredns", "coredns", "testbed/coredns"),
    Source("olm", "olm", "testbed/olm"),
    Source("ignition", "ignition", "testbed/ignition"),
)
CLUSTER = (
    "etcd",
    "kube-apiserver",
    "kubectl",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "helm",
)
"""What a cluster consists of, and what installs a chart on it."""
TESTS = (*CLUSTER, "metallb", "coredns", "olm", "ignition")
"""
What the tests use besides: another controller that assigns addresses, cluster DNS, OLM's checks of a bundle, and
Ignition's of what a MachineConfig holds.
"""
MIGRATION = (*CLUSTER, "metallb", "metallb-speaker", "traefik")
"""What `make test-migration` uses: the load balancer from which Services come, and a Gateway controller."""
_CODE: tuple[ModuleType, ...] = (golang,)


E2E = "loadbalancer"  # the package of Kubernetes' specs below tools/kubernetes


@dataclass(frozen=True, slots=True)
class Programs:
    """The built programs, by name."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> str:
        return str(self.paths[name])


def ensure(names: Sequence[str] = CLUSTER) -> Programs:
    """Have these programs, building those that are neither in KUBEBUILDER_ASSETS nor in the cache."""
    given = _assets(names)
    wanted = [source for source in SOURCES if source.name in names and source.name not in given]
    absent = [source for source in wanted if not _folder(source).exists()]
    for module in dict.fromkeys(source.module for source in absent):
        _build([source for source in absent if source.module == module])
    return Programs(given | {source.name: _folder(source) / source.name for source in wanted})


def _build(sources: Sequence[Source]) -> None:
    """Build programs of one module together, and enter each into the cache."""
    module = sources[0].module
    title, names = f"Build {len(sources)} programs", ", ".join(source.name for source in sources)
    with tempfile.TemporaryDirectory(dir=cache.root(), prefix=".build-") as folder, cache.lock(f"build-{module}"):
        if all(_folder(source).exists() for source in sources):
            return  # another process has built them meanwhile
        with step(
            title, f"{names}, with {golang.description()}; once, then they are kept in {cache.root()}"
        ) as current:
            packages = [source.package for source in sources]
            golang.build(golang.TOOLS / module, packages, _flags(module), Path(folder), progress=current)
        for source in sources:
            name, inputs = _entry(source)
            cache.entry(name, functools.partial(_take, source, Path(folder)), *inputs, code=_CODE)


def _take(source: Source, folder: Path, draft: Path) -> None:
    """Move a program that was just built to its place."""
    draft.mkdir()
    (folder / golang.name_of(source.package)).rename(draft / source.name)


def e2e() -> Path:
    """Kubernetes' own specs of load balancers, as a test binary."""
    module, flags = golang.TOOLS / "kubernetes", _flags("kubernetes")
    sources = (module / "go.mod", module / "go.sum", *sorted((module / E2E).glob("*.go")))
    inputs: tuple[cache.Part, ...] = (*sources, *flags, golang.description())

    def build(draft: Path) -> None:
        with step("Build the specs of Kubernetes", "about a minute where Kubernetes is compiled already"):
            golang.build_test(module, f"./{E2E}", flags, draft)

    return cache.entry("programs/e2e", build, *inputs, code=_CODE)


def _assets(names: Sequence[str]) -> dict[str, Path]:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise TestbedError(f"KUBEBUILDER_ASSETS={folder} is not a directory; unset it and the programs are built")
    return {name: Path(folder, name) for name in names if Path(folder, name).is_file()}


def _entry(source: Source) -> tuple[str, tuple[cache.Part, ...]]:
    """The name of a program's directory in the cache, and everything that goes into its build."""
    module, flags = golang.TOOLS / source.module, _flags(source.module)
    pinned = (module / "go.mod", module / "go.sum", *sorted(module.glob("*.go")))
    inputs: tuple[cache.Part, ...] = (*pinned, source.package, *flags, golang.description())
    return f"programs/{source.name}", inputs


def _folder(source: Source) -> Path:
    name, inputs = _entry(source)
    return cache.place_of(name, _take, *inputs, code=_CODE)


def _flags(module: str) -> list[str]:
    ldflags = ["-s", "-w"]
    if module == "kubernetes":  # else it calls itself v0.0.0-master, and clients believe it
        version = required(module, "k8s.io/kubernetes")
        major, minor, _ = version.removeprefix("v").split(".")
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")  # the latter: the user agent
        ldflags += [f"-X {package}.{name}={value}" for package in packages for name, value in values.items()]
        ldflags.append(f"-X helm.sh/helm/v4/internal/version.version={required(module, 'helm.sh/helm/v4')}")
    tags = ["-tags=containers_image_openpgp"] if module == "olm" else []  # without it, C libraries are needed
    return ["-trimpath", "-buildvcs=false", *tags, f"-ldflags={' '.join(ldflags)}"]


def required(module: str, path: str) -> str:
    """The version of a Go module that the go.mod of *module* requires."""
    requirements = (golang.TOOLS / module / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", requirements, re.MULTILINE)
    if not found:
        raise TestbedError(f"tools/{module}/go.mod does not require {path}")
    return found[1]
