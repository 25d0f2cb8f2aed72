"""A registry in a cluster of the testbed: the only one that the nodes reach."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hack.release import tools
from hack.release.source import ROOT
from hack.testbed.certs import Authority
from hack.testbed.cluster import Cluster
from hack.testbed.node import REGISTRIES
from hack.testbed.place import run
from hack.testbed.process import wait_for

PORT: Final = 5000
_READY: Final = 120.0
_PUSHED: Final = 1800.0


class Registry:
    """Runs on the machine of the control plane. *address*: host and port. *trust*: a directory with its CA, ca.crt."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._folder = cluster.state / "registry"
        self.address = f"{cluster.control.ipv4}:{PORT}"
        self.trust = self._folder / "trust"

    def start(self) -> None:
        """Start it, and let every node trust it."""
        authority = Authority(self._folder / "authority")
        self.trust.mkdir()
        (self.trust / "ca.crt").write_bytes(
            authority.pem
        )  # without the key beside it, which clients would take for theirs
        pair = authority.issue("registry", hosts=[self._cluster.control.ipv4])
        certificate, key = pair.write(self._folder, "server")
        config = self._folder / "config.json"  # JSON is YAML
        http = {"addr": f":{PORT}", "tls": {"certificate": str(certificate), "key": str(key)}}
        storage = {"filesystem": {"rootdirectory": str(self._folder / "data")}}
        config.write_text(json.dumps({"version": 0.1, "storage": storage, "http": http}))
        control = self._cluster.control
        control.spawn(tools.program("registry"), "serve", str(config), log=self._folder / "registry.log")
        ca = str(self.trust / "ca.crt")
        probe = control.command("curl", "--silent", "--fail", "--cacert", ca, f"https://{self.address}/v2/")
        wait_for("the registry answers", lambda: run(probe, check=False).returncode == 0, timeout=_READY)
        self.mirror(self.address)

    def publish(self, dist: Path, *options: str, team: str = "", env: Mapping[str, str] | None = None) -> None:
        """Run `hack.release publish` for the release in *dist*, from a machine of the cluster's network."""
        target = f"{self.address}/{team}" if team else self.address
        command = [sys.executable, "-m", "hack.release", "publish", target, f"--dist={dist}", f"--ca={self.trust}"]
        run(self._cluster.control.command(*command, *options), cwd=ROOT, env=env, timeout=_PUSHED)

    def mirror(self, host: str) -> None:
        """Let every node pull the images of *host* from here."""
        for node in self._cluster.nodes:
            folder = node.home / REGISTRIES / host
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "hosts.toml").write_text(
                f'server = "https://{self.address}"\n'
                f'[host."https://{self.address}"]\n'
                f'capabilities = ["pull", "resolve"]\nca = "{self.trust / "ca.crt"}"\n'
            )
