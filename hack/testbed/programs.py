"""The Go programs of the testbed: what is needed, and its build from pinned modules into the cache.

`ensure` builds what is not in the cache yet; a second run builds nothing. With KUBEBUILDER_ASSETS set, the programs
that users of controller-runtime keep there (kube-apiserver, etcd, kubectl) are taken from there.
"""

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hack.testbed import cache, golang
from hack.testbed.errors import TestbedError
from hack.testbed.progress import say, step


@dataclass(frozen=True, slots=True)
class Source:
    """Where a program comes from and why it is needed."""

    name: str
    module: str  # the folder under tools/
    package: str
    why: str


SOURCES = (
    Source("etcd", "etcd", "go.etcd.io/etcd/server/v3", "the API server's storage (20 s on 4 cores)"),
    Source("kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", "the Kubernetes API (100 s)"),
    Source("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", "what users type (10 s)"),
    Source(
        "kube-controller-manager",
        "kubernetes",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "runs DaemonSets, Deployments, EndpointSlices (20 s)",
    ),
    Source("kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", "places pods on nodes (5 s)"),
    Source("kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", "runs the pods of a node (15 s)"),
    Source("kube-proxy", "kubernetes", "k8s.io/kubernetes/cmd/kube-proxy", "carries Service traffic to pods (5 s)"),
    Source("helm", "helm", "helm.sh/helm/v4/cmd/helm", "installs the chart (70 s)"),
    Source("metallb", "metallb", "go.universe.tf/metallb/controller", "the neighbour that also assigns (60 s)"),
)
ALL = tuple(source.name for source in SOURCES)


@dataclass(frozen=True, slots=True)
class Programs:
    """The built programs, by name."""

    paths: dict[str, Path]

    def __getitem__(self, name: str) -> str:
        return str(self.paths[name])


def ensure(names: Sequence[str] = ALL) -> Programs:
    """Have these programs, building those that are neither in KUBEBUILDER_ASSETS nor in the cache."""
    given = _assets(names)
    wanted = [source for source in SOURCES if source.name in names and source.name not in given]
    paths = {source.name: _folder(source) / source.name for source in wanted}
    absent = [source for source in wanted if not paths[source.name].exists()]
    if absent:
        say(f"{len(absent)} programs to build with {golang.description()}; once, then they are kept in {cache.root()}")
    for number, source in enumerate(absent, start=1):
        with step(f"Build {source.name}", source.why, done=number, of=len(absent)):
            cache.entry(*_entry(source))
    return Programs(given | paths)


def _assets(names: Sequence[str]) -> dict[str, Path]:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return {}
    if not Path(folder).is_dir():
        raise TestbedError(f"KUBEBUILDER_ASSETS={folder} is not a directory; unset it and the programs are built")
    return {name: Path(folder, name) for name in names if Path(folder, name).is_file()}


def _entry(source: Source) -> tuple[Any, ...]:
    """What :func:`cache.entry` takes: a directory for the program, and everything that goes into its build."""
    module, flags = golang.TOOLS / source.module, _flags(source)
    build = functools.partial(golang.build, module, source.package, source.name, flags)
    inputs = (module / "go.mod", module / "go.sum", source.package, *flags, golang.description())
    return f"programs/{source.name}", build, *inputs


def _folder(source: Source) -> Path:
    return cache.place_of(*_entry(source))


def _flags(source: Source) -> list[str]:
    ldflags = ["-s", "-w"]
    if source.module == "kubernetes":  # else it calls itself v0.0.0-master, and clients believe it
        version = _required(source.module, "k8s.io/kubernetes")
        major, minor, _ = version.removeprefix("v").split(".")
        values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
        packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")  # the latter: the user agent
        ldflags += [f"-X {package}.{name}={value}" for package in packages for name, value in values.items()]
    return ["-trimpath", "-buildvcs=false", f"-ldflags={' '.join(ldflags)}"]


def _required(module: str, path: str) -> str:
    requirements = (golang.TOOLS / module / "go.mod").read_text()
    found = re.search(rf"^\s*(?:require )?{re.escape(path)} (v\S+)", requirements, re.MULTILINE)
    if not found:
        raise TestbedError(f"tools/{module}/go.mod does not require {path}")
    return found[1]
