"""What the agent of a static group reports about itself while it joins."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from kavip.agent.config.model import ConfiguredInstance, LocalizedConfig, MountedConfig, ParsedConfig, RefusedConfig
from kavip.agent.peers import follower as following
from kavip.agent.peers.follower import PeerFollower
from kavip.agent.peers.membership import Answer, Contact
from kavip.api.address import Address, parse_address
from kavip.api.agent import Standing
from kavip.api.agentconfig import FollowedNodes
from kavip.cli.main import cli
from kavip.errors import NoAnswer
from tests.kube.conftest import running, until

GROUP = """
apiVersion: redhatcop.redhat.io/v1alpha1
kind: KeepalivedGroup
metadata: {name: api, namespace: kube-system}
spec: {interface: eth0, virtualIPs: [{address: 192.0.2.200}]}
"""
MULTICAST = LocalizedConfig("", "y", ParsedConfig((ConfiguredInstance("kube-system/api", 51, "eth0"),)))


@pytest.fixture
def text() -> str:
    """The text of the group, whose file names one node."""
    found = CliRunner().invoke(cli, ["render", "--filename=-", "--node=n1=192.0.2.11"], input=GROUP)
    assert found.exit_code == 0, found.output
    return found.stdout


async def test_a_node_reports_from_where_it_will_send(text: str, tmp_path: Path) -> None:
    """It does so before keepalived runs that; others would take it for a node that sends from no address."""
    follower = PeerFollower("n1", tmp_path)
    await follower.start(None)
    follower.configure(MountedConfig(text, "x", "kube-system/api", follow=FollowedNodes()), None)
    said = follower.standings(None)
    assert (said.standing, said.sources) == (Standing.JOINED, ("192.0.2.11",))


async def test_it_reports_the_file_once_it_can_follow_it(text: str, tmp_path: Path) -> None:
    """In multicast others take the report for consent to leave it; without unicast nothing waits for the node."""
    follower = PeerFollower("n1", tmp_path, kubeconfig=tmp_path / "absent")
    mounted = MountedConfig(text, "x", "kube-system/api", follow=FollowedNodes(), is_static=True)
    await follower.start(MULTICAST)
    refused = follower.configure(mounted, MULTICAST)
    assert isinstance(refused, RefusedConfig)
    assert refused.problem.message == "leaves multicast later: it waits for a list of the nodes"
    assert follower.standings(MULTICAST).file == ""
    follower._contacts = {"n2": Contact(0.0, Answer(Standing.JOINED, file="x"))}
    assert isinstance(follower.configure(mounted, MULTICAST), MountedConfig)  # the others have left multicast
    assert follower.standings(MULTICAST).file == "x"


async def test_it_reports_the_file_after_the_list(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise no node would ever leave multicast."""

    async def nodes(*_: object, **__: object) -> dict[str, tuple[Address, ...]]:
        return {"n1": (parse_address("192.0.2.11"),), "n2": (parse_address("192.0.2.12"),)}

    async def silence(*_: object, **__: object) -> bytes:
        raise NoAnswer("away")

    monkeypatch.setattr(following, "get", silence)
    monkeypatch.setattr(following, "read_server", lambda _: None)
    monkeypatch.setattr(following, "list_nodes", nodes)
    follower = PeerFollower("n1", tmp_path, kubeconfig=tmp_path / "kubeconfig")
    mounted = MountedConfig(text, "x", "kube-system/api", follow=FollowedNodes(), is_static=True)
    await follower.start(MULTICAST)
    assert isinstance(follower.configure(mounted, MULTICAST), RefusedConfig)
    async with running(follower.run(lambda: None)):
        await until(lambda: follower.standings(MULTICAST).file == "x")
    refused = follower.configure(mounted, MULTICAST)
    assert isinstance(refused, RefusedConfig)
    assert (refused.message, refused.group) == ("leaves multicast later: it waits for n2", "kube-system/api")
