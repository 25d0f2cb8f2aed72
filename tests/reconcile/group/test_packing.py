"""A group with thousands of VIPs is published packed once its agents read that, and then it holds twice as many."""

import base64
import gzip
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.group import Instances
from kavip.reconcile.group.notation import AGAIN
from kavip.reconcile.observed.agentstates import AgentStates, NodeState
from kavip.reconcile.plan import Key, KeyKind, ReconcileOptions
from kavip.reconcile.rollout.configmap import LARGEST, Revision, read_published, settings_of
from kavip.vrrp import config
from kavip.vrrp.compact import is_compact
from kavip.vrrp.packed import MARKER, MOST_UNPACKED, in_full, is_packed, unpacked
from tests.reconcile.group.test_notation import after_a_downgrade, answered, content, data, kept
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.support import build
from tests.vrrp.samples import NEW

READS, EARLIER = NodeState(reads_compact=True, reads_packed=True), NodeState(reads_compact=True)
SERVICES = 150
"""Of 32 VIPs each: about 150 kB."""


def simulated(count: int = SERVICES, nodes: int = 3, *, vips: int = 32, **spec: Any) -> SimulatedCluster:
    """A Shared group on *nodes* whose agents have not answered yet, with *vips* in each Service."""
    services = [
        build.service(
            f"shop/s{n:05}",
            group=GROUP,
            type="ClusterIP",
            external_ips=[f"198.18.{(n * vips + k) >> 8}.{(n * vips + k) & 255}" for k in range(vips)],
        )
        for n in range(count)
    ]
    group = build.group(**{**NEW, "instances": Instances(mode="Shared", count=16), **spec})
    found = SimulatedCluster(cluster(group, *services, nodes=nodes))
    found.objects.pods[GROUP] = {f"lb/p{n}": pod(f"p{n}", f"n{n}") for n in range(1, nodes + 1)}
    return found


def test_the_notation_changes_nothing_else() -> None:
    """Neither what agents and pods are told, nor the hash in the status, nor a VRID, nor what other parts read."""
    simulation = simulated()
    answered(simulation, EARLIER)
    full, known, status = content(simulation), data(simulation), simulation.snapshot.groups[GROUP].status
    pods = simulation.objects.pods_of(GROUP)
    answered(simulation, READS)
    short = content(simulation)
    assert is_packed(short)
    assert len(short) < len(full) / 4
    assert in_full(short) == unpacked(short) == full
    assert simulation.objects.published_text(GROUP) == full
    assert data(simulation)[names.AGENT_KEY] == known[names.AGENT_KEY]
    assert simulation.objects.pods_of(GROUP) == pods
    assert simulation.snapshot.groups[GROUP].status == status


def test_one_agent_that_does_not_read_it_keeps_the_group_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services that do not fit then report what would help; the last answer ends that."""
    simulation = simulated()
    answered(simulation, READS)
    answered(simulation, EARLIER, "n2")
    full = content(simulation)
    assert not is_packed(full)
    monkeypatch.setattr(config, "MOST_BYTES", len(full) // 2)
    assert not is_packed(content(simulation))
    excluded = simulation.records.groups[GROUP].excluded
    assert SERVICES // 3 < len(excluded) < SERVICES
    assert all("once every agent reports PackedText, it needs less" in each.message for each in excluded.values())
    answered(simulation, READS, "n2")
    assert is_packed(content(simulation))
    assert not simulation.records.groups[GROUP].excluded


@pytest.mark.parametrize("agents", [AgentStates(), AgentStates({GROUP: {"n1": READS}})], ids=["none", "one"])
def test_a_packed_group_stays_so_without_reports(agents: AgentStates) -> None:
    """A new controller, and one that hears few agents, writes nothing."""
    simulation = simulated()
    answered(simulation, READS)
    assert is_packed(kept(simulation, agents))


def test_a_packed_group_with_an_earlier_agent_is_unpacked_where_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it does not fit, the node keeps what it runs: excluding Services would end their VIPs on all nodes."""
    simulation = simulated()
    answered(simulation, READS)
    assert not is_packed(after_a_downgrade(simulation, EARLIER, monkeypatch))


def test_an_agent_that_changes_its_mind_causes_two_writes_a_minute() -> None:
    """Each leaves the group at once; it is packed again after a while, or at once where it does not fit otherwise."""
    simulation = simulated()
    answered(simulation, READS)
    texts = [is_packed(content(simulation))]
    for second in range(100):
        simulation.later(1)
        answered(simulation, READS if second % 2 else EARLIER, "n3")
        texts.append(is_packed(content(simulation)))
    changes = sum(one != other for one, other in pairwise(texts))
    assert texts[0]
    assert not texts[1]
    assert changes <= 4
    answered(simulation, READS)
    simulation.later(AGAIN)
    assert is_packed(content(simulation))


def test_a_group_that_does_not_fit_is_packed_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Service waits for that."""
    simulation = simulated()
    answered(simulation, READS)
    assert is_packed(content(simulation))
    answered(simulation, EARLIER, "n3")
    full = content(simulation)
    assert not is_packed(full)
    answered(simulation, READS)
    assert content(simulation) == full
    monkeypatch.setattr(config, "MOST_BYTES", len(full) // 2)
    assert is_packed(content(simulation))
    assert not simulation.records.groups[GROUP].excluded


def test_another_compression_of_the_same_text_is_not_written_again() -> None:
    """Another version of zlib may give other bytes; two replicas would write in turns."""
    simulation = simulated()
    answered(simulation, READS)
    text = content(simulation)
    found = simulation.objects.configmaps[GROUP]
    other = MARKER + base64.encodebytes(gzip.compress(unpacked(text).encode(), 9)).decode()
    assert other != text
    simulation.objects.configmaps[GROUP] = msgspec.structs.replace(
        found, data={**(found.data or {}), names.CONFIG_KEY: other}
    )
    assert content(simulation) == other


def test_static_groups_are_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the option excludes it, no report changes that, and no message promises it."""
    simulation = simulated()
    simulation.options = ReconcileOptions(compact_text=False)
    answered(simulation, READS)
    full = content(simulation)
    assert not is_packed(full)
    monkeypatch.setattr(config, "MOST_BYTES", len(full) // 2)
    assert not is_packed(content(simulation))
    excluded = simulation.records.groups[GROUP].excluded
    assert excluded
    assert not any("reports" in each.message for each in excluded.values())


def test_a_group_is_planned_again_when_it_may_be_packed_again() -> None:
    """Nothing else may happen meanwhile."""
    simulation = simulated()
    answered(simulation, READS)
    assert is_packed(content(simulation))
    answered(simulation, EARLIER, "n3")
    assert not is_packed(content(simulation))
    answered(simulation, READS)
    simulation.later(AGAIN / 2)
    wait = simulation.plan(Key(KeyKind.GROUP, GROUP)).requeue_after
    assert wait is not None
    assert 0 < wait <= AGAIN / 2


def test_the_next_text_is_as_small_as_possible() -> None:
    """Both have to fit into a ConfigMap: 28,800 VIPs of IPv4, unpacked, change at one instant."""
    lines = "".join(f"        198.{18 + (n >> 16)}.{n >> 8 & 255}.{n & 255}/32 dev eth0\n" for n in range(28_800))
    text = f"vrrp_instance group/0 {{\n    virtual_ipaddress {{\n{lines}    }}\n}}\n"
    following = Revision(text.replace("group/0", "group/1"), "b")
    assert len(text) + len(following.compressed) < LARGEST - 4096


def test_a_change_at_one_instant_is_read_back() -> None:
    """Before, both texts are in the ConfigMap; after, the next one is packed too."""
    simulation = simulated()
    answered(simulation, READS)
    before, group = in_full(content(simulation)), simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, advert_interval_milliseconds=400)
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    assert in_full(content(simulation)) == before
    published = read_published(simulation.objects.configmaps[GROUP], settings_of(group))
    assert published is not None
    assert published.next is not None
    assert published.current.is_packed
    assert published.next.is_packed
    assert published.next.text == before.replace("advert_int 0.2\n", "advert_int 0.4\n")


@pytest.mark.slow
def test_20_000_dual_stack_services_fit_on_200_nodes() -> None:
    """40,000 VIPs with IPv6 addresses of 22 letters: in full they need 1.5 MB."""
    services = [
        build.service(
            f"shop/s{n:05}",
            group=GROUP,
            type="ClusterIP",
            external_ips=[f"198.18.{n >> 8}.{n & 255}", f"2001:db8:aaaa:bbbb::{n + 1:x}"],
        )
        for n in range(20_000)
    ]
    group = build.group(**{**NEW, "instances": Instances(mode="Shared", count=16)})
    simulation = SimulatedCluster(cluster(group, *services, nodes=200))
    simulation.objects.pods[GROUP] = {f"lb/p{n}": pod(f"p{n}", f"n{n}") for n in range(1, 201)}
    answered(simulation, READS)
    short = content(simulation)
    assert is_packed(short)
    assert is_compact(unpacked(short))
    assert not simulation.records.groups[GROUP].excluded
    assert in_full(short).count(" dev eth0\n") == 40_000 + 32
    assert config.MOST_BYTES < len(unpacked(short)) < MOST_UNPACKED
    assert sum(map(len, data(simulation).values())) < 400_000
