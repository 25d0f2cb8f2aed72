"""Two groups on every node, and kube-proxy in IPVS mode: no agent touches another's addresses."""

import pytest

from kavip import names
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import WEB, WEB_VIP, leader_and_backup, started
from tests.vrrp.samples import STEADY

pytestmark = pytest.mark.netns

API, API_VIP = "core/api", "192.0.2.140"
EDGE = mounts.rendered({WEB: f"{WEB_VIP},2001:db8:2::130"}, **STEADY)
CORE = mounts.rendered({API: f"{API_VIP},2001:db8:2::140"}, **STEADY)
CORE = CORE.replace("virtual_router_id 2", "virtual_router_id 6")


def holders(pods: list[Pod], vip: str) -> int:
    """The number of *pods* whose node has *vip*."""
    return sum(vip in each.addresses() for each in pods)


def undisturbed(pod: Pod, before: dict[str, tuple[int, ...]]) -> bool:
    """Whether no instance of *pod* has changed its state."""
    return pod.transitions() == before


def test_two_groups_share_every_node(pod: MakePod) -> None:
    """Each has its own daemons, files and port; changes and failures of one do not affect the other."""
    edge = [pod(node) for node in ("n1", "n2")]
    core = [pod(node, group="core") for node in ("n1", "n2")]
    for each in core:
        each.port = names.AGENT_PORT + 1
    for pods, text in ((edge, EDGE), (core, CORE)):
        for each in pods:
            started(each, text)
    for pods, instance in ((edge, WEB), (core, API)):
        assert all(set(each.instances()) == {instance, f"{instance}/v6"} for each in pods)
        leader_and_backup(pods, f"{instance}/v6")
    leader_and_backup(edge, WEB)
    loser, _ = leader_and_backup(core, API)
    before = [each.transitions() for each in edge]
    for each in core:
        each.runs(each.config.write(CORE.replace("router_id edge", "router_id core")))
    loser.kill_keepalived()
    loser.wait_until("its VIP is gone", lambda: API_VIP not in loser.addresses())
    loser.kill_agent()
    loser.replace()  # without a record: the other group's addresses look added, too
    loser.start()
    assert leader_and_backup(core, API)[0] is loser
    assert all(map(undisturbed, edge, before))
    loser.wait_until("each VIP is on one node", lambda: (holders(edge, WEB_VIP), holders(core, API_VIP)) == (1, 1))
    assert all(each.state()["refused"] == "" and each.state()["leftOut"] == [] for each in (*edge, *core))


def test_addresses_of_ipvs_are_ignored(pod: MakePod) -> None:
    """They are neither the node's own nor stale; VIPs are added to eth0 alone, and a note names strictARP."""
    pods = [pod(node) for node in ("n1", "n2")]
    vips = (WEB_VIP, "2001:db8:2::130")
    for each in pods:
        each.host.exec("ip", "link", "add", "kube-ipvs0", "type", "dummy", check=False)
        if not each.host.exec("ip", "link", "show", "kube-ipvs0", check=False).stdout:
            each.host.exec("ip", "link", "add", "kube-ipvs0", "type", "bridge")  # a kernel without dummies
        for vip in vips:
            each.host.exec("ip", "address", "add", vip, "dev", "kube-ipvs0")
    try:
        for each in pods:
            started(each, EDGE)
            assert each.state()["leftOut"] == []
            assert "without strictARP" in each.state()["note"]
        holder, _ = leader_and_backup(pods, WEB)
        holder.wait_until("it alone holds it", lambda: WEB_VIP in holder.addresses() and holders(pods, WEB_VIP) == 1)
        holder.kill_keepalived()
        holder.wait_until("it is off eth0", lambda: not holder.addresses() & {*vips})
        for each in pods:
            held = each.host.exec("ip", "address", "show", "dev", "kube-ipvs0").stdout
            assert all(vip in held for vip in vips)
    finally:
        for each in pods:
            each.host.exec("ip", "link", "del", "kube-ipvs0")
