"""``kavip plan`` on files: what goes to which stream, and the exit status."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kavip.cli.commands.plan import plan
from kavip.vrrp import config

GROUP = """\
apiVersion: redhatcop.redhat.io/v1alpha1
kind: KeepalivedGroup
metadata: {name: edge, namespace: lb, labels: {kavip.io/default-group: "true"}}
spec: {interface: eth0}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: kavip.io/v1alpha1
kind: VIPPool
metadata: {name: edge}
spec: {addresses: [192.0.2.0/25]}
"""
NODE = """\
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {addresses: [{type: InternalIP, address: 198.51.100.1}], conditions: [{type: Ready, status: "True"}]}
"""
SERVICE = """\
---
apiVersion: v1
kind: Service
metadata: {name: s%02d, namespace: shop}
spec: {type: LoadBalancer, ports: [{port: 80}]}
"""


def planned(folder: Path, *arguments: str, text: str) -> Result:
    """The result of the command on a file with *text*."""
    (folder / "all.yaml").write_text(text)
    return CliRunner().invoke(plan, ["-f", str(folder), *arguments])


def test_a_group_without_room_for_its_services_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command exits with 1 and prints the numbers to standard error; without that, it exits with 0."""
    text = GROUP + NODE + "".join(SERVICE % number for number in range(40))
    done = planned(tmp_path, text=text)
    assert (done.exit_code, done.stderr) == (0, "")
    monkeypatch.setattr(config, "MOST_BYTES", 3_000)
    done = planned(tmp_path, text=text)
    assert done.exit_code == 1
    assert done.stderr.startswith("KeepalivedGroup lb/edge has no room for the ")
    assert done.stderr.count("\n") == 1
    assert planned(tmp_path, "-o", "json", text=text).exit_code == 1


def test_without_nodes_there_is_no_size(tmp_path: Path) -> None:
    """The configuration of a group depends on its nodes; without any, the command says that it computes no size."""
    done = planned(tmp_path, text=GROUP + SERVICE % 1)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "warning: the files hold no Node: references to them were not checked",
        "warning: the files hold no Node: the size of the configuration of the group was not computed",
    ]
