"""A release of this checkout in a registry of the cluster, from which the nodes pull its image."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.release import build, publish, source
from hack.release.registry import Registry
from hack.testbed import cache, debian, foreign
from hack.testbed.cluster import Cluster
from hack.testbed.node import REGISTRIES
from hack.testbed.progress import step

_VERSION: Final = "1.0.0"


@dataclass(frozen=True, slots=True)
class Release:
    """What a release gives to a cluster, in the folder *dist*, for *registry*."""

    dist: Path
    registry: Registry
    _cluster: Cluster

    @classmethod
    def for_cluster(cls, cluster: Cluster) -> "Release":
        """Make it; the cluster need not run. It stays in the cache for the next run on the same commit."""
        registry, architecture = Registry(cluster), foreign.native()

        def make(draft: Path) -> None:
            draft.mkdir()
            build.installed_parts(found, draft, registry=registry.address, architectures=[architecture], locked=False)

        with source.export(_VERSION, source.worktree()) as found:
            dist = cache.entry("releases/upgrade", make, found.commit, registry.address)
        cache.prune("releases/upgrade-*", keep=1)
        return cls(dist, registry, cluster)

    def publish(self) -> None:
        """
        Start the registry, push image and chart to it, and let every node pull the image.

        The nodes share the CPUs of one machine: unpacking on all of them would delay what is measured.
        """
        debian.install(publish.SKOPEO)
        self.registry.start()
        self.registry.publish(self.dist)
        with step("Pull the image", f"on each node, from {self.registry.address}"):
            for node in self._cluster.nodes:
                pull = ("ctr", "--namespace=k8s.io", "images", "pull", f"--hosts-dir={node.home / REGISTRIES}")
                node.exec(*pull, self.image, timeout=600)

    @property
    def image(self) -> str:
        """The image, by digest."""
        return f"{self.registry.address}/kavip@{self._digests['kavip']}"

    @property
    def chart(self) -> str:
        """The chart, by digest."""
        return f"oci://{self.registry.address}/charts/kavip@{self._digests['charts/kavip']}"

    @property
    def manifests(self) -> Path:
        """install.yaml."""
        return self.dist / build.INSTALL

    @property
    def _digests(self) -> dict[str, str]:
        return {name.partition(":")[0]: digest for digest, name in build.digests(self.dist)}
