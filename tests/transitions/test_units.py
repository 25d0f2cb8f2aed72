"""The units of ``kavip render --static unit`` on machines whose init is systemd."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from hack.testbed import process, runs
from hack.testbed.segment import Host, Segment, numbered
from hack.testbed.systemd import Systemd
from kavip import names
from kavip.cli.main import cli
from tests.agent.pod import PATIENCE, connected
from tests.support import manifests, webserver
from tests.transitions.livegroup import serve_vips
from tests.transitions.recording import Recording, instances, requested, router_ids

pytestmark = pytest.mark.netns

PAGE = manifests.ROOT / "docs" / "howto" / "api-vip.md"
EXAMPLE = PAGE.read_text().partition("```yaml\n")[2].partition("```")[0]
PORT: int = yaml.safe_load(EXAMPLE)["spec"]["metricsPort"]
VIP = "192.0.2.200"
GROUP = "kube-system.api"
UNIT = f"kavip-{GROUP}"
AGENT = f"{UNIT}-agent"
UNITS = "etc/systemd/system"
HOME = "[Service]\nProtectHome=read-only\nEnvironment=PATH={path}:/usr/sbin:/usr/bin:/sbin:/bin\n"
"""The test's Python and kavip may be below /root, which the units hide."""


class Node:
    """A machine with the files of the units; systemd starts them when it boots."""

    def __init__(self, host: Host, tree: Path) -> None:
        self.host, self.status = host, host.home / "status"
        (host.home / "bin").mkdir(parents=True)
        self.status.write_text("200")
        program = host.home / "bin" / "kavip"
        program.write_text(f'#!/bin/sh\nPYTHONPATH={manifests.ROOT} exec {sys.executable} -m kavip "$@"\n')
        program.chmod(0o755)
        root = tree / host.name
        files = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
        for unit in (UNIT, AGENT):
            files[f"{UNITS}/{unit}.service.d/test.conf"] = HOME.format(path=program.parent)
        wanted = [f"[Unit]\nWants={UNIT}.service {AGENT}.service\n"]
        files[f"{UNITS}/multi-user.target.d/test.conf"] = "".join(wanted)
        host.init_system = Systemd(files)

    @property
    def text(self) -> str:
        """The configuration that keepalived runs."""
        return self.host.exec("cat", f"/run/{UNIT}/keepalived.conf").stdout

    def serve(self) -> None:
        """Start what answers on the VIP, and the API server that its check asks."""
        serve_vips(self.host)
        command = (sys.executable, "-P", str(webserver.__file__), str(self.status), "6443")
        self.host.spawn(*command, log=self.host.home / "api.log")

    def has_vip(self) -> bool:
        """Whether the node has the VIP."""
        return self.host.running and f" {VIP}/" in self.host.exec("ip", "-oneline", "address").stdout

    def reported(self) -> tuple[str, int, bool]:
        """
        State and effective priority of the instance, and whether the check passes, as the agent reports them.

        The state is "" while it reports none.
        """
        answer = b""
        try:
            with connected(self.host.netns, self.host.ipv4, PORT) as connection:
                connection.sendall(f"GET {names.STATE_PATH} HTTP/1.1\r\n\r\n".encode())
                while chunk := connection.recv(65536):
                    answer += chunk
        except OSError:
            return "", 0, False
        found = json.loads(answer.partition(b"\r\n\r\n")[2] or b"{}")
        checks = [each["ok"] for each in found.get("checks", ())]
        instances = [(each["state"], each["priority"]) for each in found.get("instances", ())]
        return *next(iter(instances), ("", 0)), bool(checks) and all(checks)


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Segment, dict[str, Node]]]:
    """Two machines on a segment; one is master and one is backup. The parameter is a further flag of the command."""
    text = EXAMPLE.replace("https://$(NODE_IP):6443/readyz", "http://127.0.0.1:6443/readyz")
    text = text.replace("      caFrom: {name: kube-root-ca.crt}\n", "")
    flags = ["--node", "n1=192.0.2.11", "--node", "n2=192.0.2.12", "--output-dir", str(tmp_path)]
    flags += [request.param] if hasattr(request, "param") else []
    found = CliRunner().invoke(cli, ["render", "--filename=-", "--static", "unit", *flags], input=text)
    assert found.exit_code == 0, found.output
    with runs.temporary() as state:
        nodes = {name: Node(Host(name, state / name, number), tmp_path) for number, name in numbered(2)}
        with Segment(state, nodes=0, others=[node.host for node in nodes.values()]) as lan:
            for node in nodes.values():
                node.serve()
            wait_for_rest(nodes)
            yield lan, nodes


def wait_for_rest(nodes: dict[str, Node]) -> None:
    """Wait until the checks pass on both nodes, and the node with the higher priority is master: no VIP moves then."""

    def is_at_rest() -> bool:
        found = sorted((priority, state, is_well) for state, priority, is_well in map(Node.reported, nodes.values()))
        return [each[1:] for each in found] == [("BACKUP", True), ("MASTER", True)]

    process.wait_for("the VIP is where it stays", is_at_rest, timeout=PATIENCE)


def holder(nodes: dict[str, Node]) -> str:
    """The one node that has the VIP, as soon as that is so."""
    found: list[str] = []

    def is_one() -> bool:
        found[:] = [name for name, node in nodes.items() if node.has_vip()]
        return len(found) == 1

    process.wait_for("one node has the VIP", is_one, timeout=PATIENCE)
    return found[0]


def test_a_vip_is_on_a_node_that_is_well(pair: tuple[Segment, dict[str, Node]]) -> None:
    """The VIP is on a node whose API server answers, and moves when it does not."""
    nodes = pair[1]
    first = holder(nodes)
    (second,) = nodes.keys() - {first}
    nodes[first].status.write_text("500")
    process.wait_for(
        "the VIP follows", lambda: nodes[second].has_vip() and not nodes[first].has_vip(), timeout=PATIENCE
    )


@pytest.mark.parametrize(
    ("command", "moves"), [(("poweroff",), 1), (("restart", AGENT), 0)], ids=["poweroff", "agent restart"]
)
def test_systemctl_loses_no_answer(pair: tuple[Segment, dict[str, Node]], command: tuple[str, ...], moves: int) -> None:
    """Before the network stops the VIP moves to the other node; the restart of an agent moves nothing."""
    lan, nodes = pair
    first = holder(nodes)
    text, recorded = nodes[first].text, Recording()
    recorded.router_ids, recorded.instances = router_ids(text), instances(text, [VIP])
    with requested(lan, [VIP], recorded, masters=1):
        nodes[first].host.exec("systemctl", *command)
        if moves:
            process.wait_for("it is off", lambda: not nodes[first].host.running, timeout=PATIENCE)
        else:
            wait_for_rest(nodes)
        assert (holder(nodes) == first) == (not moves)
    assert recorded.moved_cleanly(VIP, moves=moves), recorded.timeline()


@pytest.mark.parametrize("pair", ["--follow-nodes"], indirect=True)
def test_units_follow_nodes(pair: tuple[Segment, dict[str, Node]]) -> None:
    """Without a kubeconfig the nodes of the file count; systemd finds no fault, and both nodes take part."""
    nodes = pair[1]
    found = nodes["n1"].host.exec("systemd-analyze", "verify", f"{UNIT}.service", f"{AGENT}.service")
    assert UNIT not in found.stdout + found.stderr

    def has_list(node: Node) -> bool:
        return node.host.exec("ls", f"/var/lib/{UNIT}").stdout == "nodes.json\n"

    process.wait_for("both have the list", lambda: all(map(has_list, nodes.values())), timeout=PATIENCE)
    holder(nodes)


def test_systemd_finds_no_fault(pair: tuple[Segment, dict[str, Node]]) -> None:
    """``systemd-analyze verify`` prints nothing about the units."""
    found = pair[1]["n1"].host.exec("systemd-analyze", "verify", f"{UNIT}.service", f"{AGENT}.service")
    assert UNIT not in found.stdout + found.stderr
