"""kavip outside a cluster, with the variables of kubectl."""

import json
import os
from pathlib import Path

import pytest

from tests.app.conftest import Installation

pytestmark = pytest.mark.apiserver


@pytest.mark.parametrize("webhook", [True, False], ids=["run", "controller"])
def test_kavip_finds_its_cluster_as_kubectl_does(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, webhook: bool
) -> None:
    """A list of files in KUBECONFIG is merged: the context is in one file, the cluster and the user in another."""
    whole = json.loads(installation.plane.kubeconfig.read_text())
    own = {key: whole.pop(key) for key in ("contexts", "current-context")}
    parts = (tmp_path / "missing", tmp_path / "contexts", tmp_path / "clusters")
    for path, content in zip(parts[1:], (own, whole), strict=True):
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **content}))
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join(map(str, parts)))
    replica = installation.start("--kubeconfig=", webhook=webhook)
    installation.leader()
    (started,) = (line for line in replica.log.read_text().splitlines() if '"started"' in line)
    assert json.loads(started)["server"] == installation.plane.server
