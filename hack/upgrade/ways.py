"""
What a user does on each install path: the install of the older version, the upgrade, and the way back.

helm       ``helm`` with the chart of a checkout
oci        ``helm`` with charts in a registry: the older one packed and pushed, the newer one of a release, by digest
kustomize  ``kubectl apply --kustomize config/default`` of a checkout
manifest   ``kubectl apply`` of the rendered older chart, and then of install.yaml of a release
olm        the older version by kustomize, as it had no bundle, and then a bundle, as OLM carries it out
helm-olm   the same, but the older version by ``helm``
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import yaml

from hack import topology
from hack.bundle import olm
from hack.bundle.olm import Olm
from hack.demo.__main__ import REPOSITORY, TAG
from hack.release.source import ROOT, replace_once
from hack.testbed import programs
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from hack.upgrade.release import Release

OLDER: Final = f"{REPOSITORY}:older"
"""The image of the older version."""
NEWER: Final = f"{REPOSITORY}:{TAG}"
_OWN: Final = "--namespace=kavip"
_PATIENCE: Final = 600.0
_NAMESPACE: Final = "apiVersion: v1\nkind: Namespace\nmetadata: {name: kavip}\n"
_DEFINITIONS: Final = ROOT / "tests" / "support" / "foreign-crds.yaml"

Change = tuple[Callable[[], None], str]
"""What a user does, and the image that runs afterwards."""


class Way(ABC):
    """One install path on one *cluster*, from the source *tree* of the older version."""

    unreviewed = False
    """Whether nothing reviews Services for a while, as the documented order says."""

    def __init__(self, cluster: Cluster, tree: Path) -> None:
        self.cluster, self.tree = cluster, tree
        self.old = topology.of_chart(tree / "charts" / "kavip")
        self.new = topology.of_chart(ROOT / "charts" / "kavip")

    @abstractmethod
    def install(self) -> None:
        """Install the older version."""

    @abstractmethod
    def changes(self) -> Mapping[str, Change]:
        """The upgrade, and the way back if there is one, by the command."""

    @property
    def leaving(self) -> tuple[str, ...]:
        """The Deployments that the newer version does not have."""
        return tuple(each for each in self.old if each not in self.new)

    @property
    def coming(self) -> tuple[str, ...]:
        """The Deployments that the older version does not have."""
        return tuple(each for each in self.new if each not in self.old)


class Helm(Way):
    """The chart of a checkout."""

    def install(self) -> None:
        self._upgrade(self.tree / "charts" / "kavip", OLDER)

    def changes(self) -> Mapping[str, Change]:
        chart = ROOT / "charts" / "kavip"
        upgrade = partial(topology.change, self.cluster, self.leaving, partial(self._upgrade, chart, NEWER))
        return {"helm upgrade": (upgrade, NEWER), "helm rollback": (self._roll_back, OLDER)}

    def _upgrade(self, chart: Path, image: str) -> None:
        self.helm("upgrade", "--install", "--create-namespace", "kavip", str(chart), _values(image))

    def _roll_back(self) -> None:
        topology.change(self.cluster, self.coming, lambda: self.helm("rollback", "kavip"))

    def helm(self, *args: str) -> None:
        """Run helm, and wait until the Deployments are ready."""
        self.cluster.helm(*args, _OWN, "--wait=watcher", "--timeout=10m", timeout=_PATIENCE)


class Oci(Helm):
    """Charts in a registry."""

    def __init__(self, cluster: Cluster, tree: Path, release: Release) -> None:
        """Push the older chart to the registry of *release*."""
        super().__init__(cluster, tree)
        release.publish()
        self._release, self._ca = release, f"--ca-file={release.registry.trust / 'ca.crt'}"
        with TemporaryDirectory() as folder:
            cluster.helm("package", str(tree / "charts" / "kavip"), f"--destination={folder}")
            (package,) = Path(folder).glob("*.tgz")
            cluster.helm("push", str(package), f"oci://{release.registry.address}/charts", self._ca)
            self._version = package.stem.removeprefix("kavip-")

    def install(self) -> None:
        chart = f"oci://{self._release.registry.address}/charts/kavip"
        source = (chart, f"--version={self._version}", self._ca)
        self.helm("install", "--create-namespace", "kavip", *source, _values(OLDER))

    def changes(self) -> Mapping[str, Change]:
        # without --reset-values Helm keeps image.repository of the older release
        command = ("upgrade", "kavip", self._release.chart, self._ca, "--reset-values")
        upgrade = partial(topology.change, self.cluster, self.leaving, partial(self.helm, *command))
        return {"helm upgrade": (upgrade, self._release.image), "helm rollback": (self._roll_back, OLDER)}


class Manifests(Way):
    """``kubectl apply``: Deployments that a version does not have stay until the others are ready."""

    older: tuple[str, ...]
    newer: tuple[str, ...]
    image = NEWER

    def install(self) -> None:
        self._apply(self.older, self.old)

    def changes(self) -> Mapping[str, Change]:
        return {
            "kubectl apply, newer": (lambda: self._replace(self.newer, self.new, self.leaving), self.image),
            "kubectl apply, older": (lambda: self._replace(self.older, self.old, self.coming), OLDER),
        }

    def _apply(self, source: tuple[str, ...], deployments: tuple[str, ...]) -> None:
        self.cluster.kubectl("apply", "--server-side", *source)
        _wait_rolled_out(self.cluster, deployments)

    def _replace(self, source: tuple[str, ...], deployments: tuple[str, ...], gone: tuple[str, ...]) -> None:
        self._apply(source, deployments)
        topology.remove(self.cluster, gone, topology.WITHOUT_HELM)


class Kustomize(Manifests):
    """``config/default`` of a checkout, with the image in its kustomization."""

    def __init__(self, cluster: Cluster, tree: Path) -> None:
        super().__init__(cluster, tree)
        self.older = (f"--kustomize={_kustomization(tree, cluster.state / 'older', OLDER)}",)
        self.newer = (f"--kustomize={_kustomization(ROOT, cluster.state / 'newer', NEWER)}",)


class Rendered(Manifests):
    """The older chart as Helm renders it; install.yaml of a release."""

    def __init__(self, cluster: Cluster, tree: Path, release: Release) -> None:
        super().__init__(cluster, tree)
        release.publish()
        command = ("template", "kavip", str(tree / "charts" / "kavip"), _OWN, "--no-hooks", _values(OLDER))
        text = cluster.state / "older.yaml"
        text.write_text(f"{_NAMESPACE}{cluster.helm(*command).stdout}")
        self.older, self.newer = (f"--filename={text}",), (f"--filename={release.manifests}",)
        self.image = release.image


class Bundle(Kustomize):
    """OLM's way, by its part of :mod:`hack.bundle.olm`; kubelets run its Deployments."""

    unreviewed = True

    def changes(self) -> Mapping[str, Change]:
        return {"a bundle of OLM": (self._remove_and_install, NEWER)}

    def _remove_and_install(self) -> None:
        """As docs/howto/olm.md says: first the webhooks, then the rest but for definitions and the namespace."""
        self.cluster.kubectl("delete", olm.REGISTRATIONS, "kavip")
        for part in ("webhook", "manager", "rbac"):
            self.cluster.kubectl("delete", "--ignore-not-found", f"--kustomize={self.cluster.state / 'older' / part}")
        _install_bundle(self.cluster, self.new)


class BundleAfterHelm(Helm):
    """OLM's way, after ``helm uninstall``."""

    unreviewed = True

    def changes(self) -> Mapping[str, Change]:
        return {"helm uninstall, and a bundle of OLM": (self._uninstall_and_install, NEWER)}

    def _uninstall_and_install(self) -> None:
        self.cluster.helm("uninstall", "kavip", _OWN)
        _install_bundle(self.cluster, self.new)


OF_A_CHECKOUT: Final[Mapping[str, Callable[[Cluster, Path], Way]]] = {
    "helm": Helm,
    "kustomize": Kustomize,
    "olm": Bundle,
    "helm-olm": BundleAfterHelm,
}
OF_A_RELEASE: Final[Mapping[str, Callable[[Cluster, Path, Release], Way]]] = {"oci": Oci, "manifest": Rendered}


def _install_bundle(cluster: Cluster, deployments: tuple[str, ...]) -> None:
    """Play OLM's part until kavip has registered its webhooks."""
    documents = yaml.safe_load_all(_DEFINITIONS.read_text())
    (csvs,) = (each for each in documents if each["metadata"]["name"] == olm.CSVS)
    cluster.kubectl("create", "--filename=-", input=yaml.safe_dump(csvs))
    cluster.plane.wait_established()
    Olm(cluster.plane).install(olm.bundle(programs.ensure(("helm",))["helm"], image=NEWER))
    _wait_rolled_out(cluster, deployments)

    def is_registered() -> bool:
        found = cluster.kubectl("get", olm.REGISTRATIONS, "--output=jsonpath={.items[*].metadata.name}").stdout
        return found.split().count("kavip") == len(olm.REGISTRATIONS.split(","))

    wait_for("kavip registers its webhooks", is_registered, timeout=_PATIENCE, interval=1)


def _wait_rolled_out(cluster: Cluster, deployments: tuple[str, ...]) -> None:
    def is_rolled_out(deployment: str) -> bool:
        command = ("rollout", "status", _OWN, f"deployment/{deployment}", "--timeout=60s")
        return cluster.kubectl(*command, check=False).returncode == 0

    for each in deployments:
        wait_for(f"{each} is rolled out", partial(is_rolled_out, each), timeout=_PATIENCE, interval=1)


def _values(image: str) -> str:
    repository, _, tag = image.rpartition(":")
    return f"--set=image.repository={repository},image.tag={tag},image.pullPolicy=Never"


def _kustomization(tree: Path, copy: Path, image: str) -> Path:
    """``config/default`` in a *copy* of the folder of *tree*, with that *image*."""
    shutil.copytree(tree / "config", copy)
    folder = copy / "default"
    _, _, tag = image.rpartition(":")
    replace_once(folder / "kustomization.yaml", r"^    newTag: .*$", f"    newTag: {tag}")
    return folder
