"""What ``agent.json`` says about address conflicts: new VIPs, pools that are switched off, hardware addresses."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.agentconfig import DetectionConfig, decode_config
from kavip.api.group import GroupVirtualIP, Instances
from kavip.reconcile.group.detection import LONG, MOST_HARDWARE, SHORTEN, Detection
from kavip.reconcile.observed.agentstates import AgentStates, ClaimedAddress, NodeState
from kavip.reconcile.plan import Apply, Key, KeyKind
from kavip.vrrp import running
from kavip.vrrp.addresslists import AddressList
from kavip.vrrp.running import RunningInstance
from tests.reconcile.group.settledgroup import API, WEB, serving
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, cluster, pod
from tests.reconcile.takeover.oldinstallation import old_installation
from tests.support import build

MACS = {"n1": "02:00:c0:00:02:0b", "n2": "02:00:c0:00:02:0c"}
A, B, C = "192.0.2.130", "192.0.2.131", "192.0.2.140"


def settled(*objects: Any, **spec: Any) -> SimulatedCluster:
    """A group with pods on n1 and n2 whose plan has no writes."""
    found = SimulatedCluster(cluster(build.group(GROUP, **spec), *objects))
    found.objects.pods[GROUP] = {each.metadata.key: each for each in (pod("p1", "n1"), pod("p2", "n2"))}
    found.settle(Key(KeyKind.GROUP, GROUP))
    return found


def detection(found: SimulatedCluster) -> DetectionConfig:
    """What the ConfigMap says."""
    config = decode_config((found.objects.configmaps[GROUP].data or {})[names.AGENT_KEY])
    assert config is not None and config.conflict_detection is not None
    return config.conflict_detection


def heard(*runs: str, claims: tuple[ClaimedAddress, ...] = (), macs: dict[str, str] = MACS) -> AgentStates:
    """Both nodes run *runs*; n1 reports *claims*."""
    vips = frozenset(map(parse_address, runs))
    return AgentStates(
        {
            GROUP: {
                node: NodeState(runs=vips, hardware=(mac,), claimed=claims if node == "n1" else ())
                for node, mac in macs.items()
            }
        }
    )


def claim(vip: str, mac: str, *, held: bool = False) -> ClaimedAddress:
    """A machine with *mac* claims *vip*."""
    return ClaimedAddress(parse_address(vip), mac, "eth0", held)


def config_map_writes(found: SimulatedCluster) -> int:
    """Carry out the plan of the group until it is settled; how often it writes the ConfigMap."""
    count = 0
    for _ in range(10):
        plan = found.group()
        count += sum(isinstance(each, Apply) and each.kind == names.CONFIG_MAP for each in plan.writes)
        if not plan.writes:
            return count
    raise AssertionError("the plan still has writes")


# --- new VIPs ---------------------------------------------------------------------------------------------------------
def test_vips_that_no_text_had_are_new() -> None:
    """Those of Services, and those of the group itself; anchors that are no VIPs are not listed."""
    shared = Instances(mode="Shared", count=2)
    found = settled(serving(WEB, A), serving(API, B), virtual_ips=[GroupVirtualIP(address=C)], instances=shared)
    assert detection(found).probe == (f"{A}-{C}",)


def test_an_upgrade_and_a_lost_config_map() -> None:
    """What a text had is not new; what an agent runs is not new; the rest is."""
    found = settled(serving(WEB, A), serving(API, B))
    data = dict(found.objects.configmaps[GROUP].data or {})
    old = msgspec.json.decode(data[names.AGENT_KEY])
    del old["conflictDetection"]
    data[names.AGENT_KEY] = msgspec.json.encode(old).decode()
    found.objects.configmaps[GROUP] = msgspec.structs.replace(found.objects.configmaps[GROUP], data=data)
    assert config_map_writes(found) == 1
    assert detection(found) == DetectionConfig()
    found.objects.configmaps.clear()
    found.agents = heard(A)
    assert config_map_writes(found) == 1
    assert detection(found).probe == (B,)


def test_the_list_is_shortened_with_the_next_change() -> None:
    """Not before, as it is short; a VIP that no agent runs yet stays, and one that is gone does not."""
    found = settled(serving(WEB, A))
    found.agents = heard(A)
    assert config_map_writes(found) == 0 and detection(found).probe == (A,)
    found.snapshot.put(serving(API, B))
    assert config_map_writes(found) == 1 and detection(found).probe == (B,)
    found.snapshot.put(serving("shop/z", C))
    assert config_map_writes(found) == 1 and detection(found).probe == (f"{B}-{C}",)
    found.snapshot.drop(names.SERVICE, API)
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert detection(found).probe == (C,)
    found.agents = heard(A, C)
    found.snapshot.put(serving(API, B))
    assert config_map_writes(found) == 1 and detection(found).probe == (B,)


def test_a_long_list_is_shortened_a_minute_after_its_last_change() -> None:
    """Without another change; by the VIPs that run, which is examined once a minute. A short list stays."""
    vips = [f"192.0.2.{number}" for number in range(101, LONG + 104)]
    found = settled(serving(WEB, *vips[20:]), serving(API, *vips[:20]))
    assert detection(found).probe == (f"{vips[0]}-{vips[-1]}",)
    found.later(SHORTEN - 1)
    assert config_map_writes(found) == 0 and found.group().requeue_after == 1
    found.later(1)
    assert config_map_writes(found) == 0 and found.group().requeue_after == SHORTEN
    found.agents = heard(vips[-1])
    assert config_map_writes(found) == 0
    found.later(SHORTEN)
    assert config_map_writes(found) == 1 and detection(found).probe == (f"{vips[0]}-{vips[-2]}",)
    found.agents = heard(*vips[2:])
    found.later(SHORTEN)
    assert config_map_writes(found) == 1 and detection(found).probe == (f"{vips[0]}-{vips[1]}",)
    found.agents = heard(*vips)
    found.later(3 * SHORTEN)
    assert config_map_writes(found) == 0


def test_a_long_list_costs_a_plan_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its VIPs are looked up once a minute, also while no agent answers and all of them stay in it."""
    vips = [f"192.0.2.{number}" for number in range(101, LONG + 104)]
    found, lookups = settled(serving(WEB, *vips[20:]), serving(API, *vips[:20])), 0
    listed = vars(Detection)["_listed_vips"]
    look_up = listed.func

    def counted(given: Detection) -> object:
        nonlocal lookups
        lookups += 1
        return look_up(given)

    monkeypatch.setattr(listed, "func", counted)
    for second in range(1, 3 * int(SHORTEN) + 1):
        found.later(1)
        assert not found.group().writes
        assert lookups == second // SHORTEN


def test_a_list_of_two_vips_is_short() -> None:
    """However far apart they are: it has the span between them."""
    found = settled(serving(WEB, "192.0.2.1"), serving(API, "192.0.2.200"))
    assert detection(found).probe == ("192.0.2.1-192.0.2.200",)
    found.agents = heard("192.0.2.1", "192.0.2.200")
    found.later(SHORTEN)
    assert config_map_writes(found) == 0 and found.group().requeue_after is None


def test_a_vip_that_runs_and_is_claimed_leaves_the_list_at_once() -> None:
    """After a restart of all agents it must be known that it was announced before."""
    found = settled(serving(WEB, A))
    found.agents = heard(A, claims=(claim(A, "02:00:c0:00:02:63", held=True),))
    assert config_map_writes(found) == 1 and detection(found).probe == ()


def test_a_vip_that_moves_to_another_instance_is_not_new() -> None:
    """The nodes run it already."""
    found = settled(serving(WEB, A, B))
    found.agents = heard(A, B)
    found.snapshot.put(serving(WEB, A))
    found.snapshot.put(serving(API, B))
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert detection(found).probe == ()


def test_vips_of_keepalived_operator_are_not_new() -> None:
    """Its pods hold them on nodes without an agent, which would look like other machines."""
    found = old_installation("n1")
    found.snapshot.put(serving(API, B))
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert detection(found).probe == (B,)


# --- pools that are switched off --------------------------------------------------------------------------------------
def test_pools_that_are_switched_off() -> None:
    """Their VIPs are asked for and heard by no node; VIPs outside pools are."""
    silent = build.pool("edge", f"{A}-{B}", conflict_detection=names.OFF)
    found = settled(silent, serving(WEB, A), serving(API, B), serving("shop/z", C))
    assert (detection(found).probe, detection(found).off) == ((C,), (f"{A}-{B}",))
    found.snapshot.put(build.pool("edge", f"{A}-{B}"))
    assert config_map_writes(found) == 1
    assert (detection(found).probe, detection(found).off) == ((C,), ())


def test_a_new_vip_of_a_silent_pool_changes_no_list_of_new_vips() -> None:
    """Only what is written with another change is asked for."""
    found = settled(build.pool("edge", f"{A}-{B}", conflict_detection=names.OFF), serving(WEB, A), serving("shop/z", C))
    found.agents = heard(A, C)
    found.snapshot.put(serving(API, B))
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert (detection(found).probe, detection(found).off) == ((), (f"{A}-{B}",))
    assert config_map_writes(found) == 0


def test_the_list_of_silent_vips_is_bounded() -> None:
    """Its VIPs alternate with those of no pool; spans after the 128th are left out."""
    ranges = [f"198.18.{number // 100}.{number % 100 * 2}" for number in range(200)]
    others = [f"198.18.{number // 100}.{number % 100 * 2 + 1}" for number in range(200)]
    objects = [serving(f"shop/s{at:02}", *ranges[at * 10 : at * 10 + 10]) for at in range(20)]
    objects += [serving(f"shop/t{at:02}", *others[at * 10 : at * 10 + 10]) for at in range(20)]
    found = settled(build.pool("edge", *ranges, conflict_detection=names.OFF), *objects)
    assert len(detection(found).off) == 128


# --- hardware addresses -----------------------------------------------------------------------------------------------
def test_hardware_addresses_are_written_with_the_next_change() -> None:
    """So nodes that start one after the other cause no writes of their own."""
    found = settled(serving(WEB, A))
    found.agents = heard(A)
    assert config_map_writes(found) == 0 and detection(found).hardware_addresses == ()
    found.snapshot.put(serving(API, B))
    assert config_map_writes(found) == 1 and detection(found).hardware_addresses == tuple(MACS.values())


def test_a_node_that_waits_for_one_gets_it_at_once() -> None:
    """It hears a node that it does not know; a stranger causes no write."""
    found = settled(serving(WEB, A))
    found.agents = heard(claims=(claim(A, "02:00:c0:00:02:63"),))
    assert config_map_writes(found) == 0
    found.agents = heard(claims=(claim(A, MACS["n2"]),))
    assert config_map_writes(found) == 1 and detection(found).hardware_addresses == tuple(MACS.values())
    assert detection(found).probe == (A,)
    assert config_map_writes(found) == 0


def test_hardware_addresses_of_nodes_that_have_not_answered_stay() -> None:
    """A new leader does not forget what the last one wrote; with all answers the list is exact."""
    found = settled(serving(WEB, A))
    found.agents = heard(A)
    found.snapshot.put(serving(API, B))
    found.settle(Key(KeyKind.GROUP, GROUP))
    found.agents = heard(A, macs={"n1": "02:00:c0:00:02:aa"})
    found.snapshot.put(serving("shop/z", C))
    assert config_map_writes(found) == 1
    assert detection(found).hardware_addresses == (*MACS.values(), "02:00:c0:00:02:aa")
    found.agents = heard(A, macs={**MACS, "n1": "02:00:c0:00:02:aa"})
    found.snapshot.drop(names.SERVICE, "shop/z")
    assert config_map_writes(found) == 1
    assert detection(found).hardware_addresses == (MACS["n2"], "02:00:c0:00:02:aa")
    found.agents = AgentStates()
    found.objects.pods[GROUP] = {}  # as `kavip plan` sees it
    found.snapshot.put(serving("shop/z", C))
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert detection(found).hardware_addresses == (MACS["n2"], "02:00:c0:00:02:aa")


def test_nodes_of_other_groups_are_nodes() -> None:
    """Another controller's speaker may run there."""
    found = settled(serving(WEB, A))
    other = AgentStates({"lb/other": {"n7": NodeState(hardware=("02:00:c0:00:02:77",))}})
    found.agents = replace(heard(A), states={**heard(A).states, **other.states})
    found.snapshot.put(serving(API, B))
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert detection(found).hardware_addresses == (*MACS.values(), "02:00:c0:00:02:77")


def test_the_lists_are_bounded() -> None:
    """Thousands of scattered VIPs and hardware addresses leave the ConfigMap its room; no new VIP is left out."""
    vips = [f"198.18.{number // 64}.{number % 64 * 3 + 1}" for number in range(2000)]
    objects = [serving(f"shop/s{at:03}", *vips[at * 32 : at * 32 + 16]) for at in range(62)]
    found = settled(*objects, serving("shop/last", "198.18.200.1"), instances=Instances(mode="Shared", count=4))
    macs = {f"n{number}": f"02:00:00:00:{number // 256:02x}:{number % 256:02x}" for number in range(2000)}
    found.agents = heard("198.18.200.1", macs=macs)
    found.snapshot.put(serving(WEB, "198.18.201.1"))
    found.settle(Key(KeyKind.GROUP, GROUP))
    written = detection(found)
    assert len(written.probe) <= 128 and len(written.hardware_addresses) == MOST_HARDWARE
    assert len(msgspec.json.encode(written)) < 40_000


@pytest.mark.parametrize(
    ("text", "new"),
    [("", (A,)), ("{}", (A,)), ('{"configHash": "%s", "conflictDetection": {"probe": ["nonsense"]}}', ())],
    ids=["nothing", "nothing that counts", "a text that nodes run"],
)
def test_a_config_map_of_another_program_is_replaced(text: str, new: tuple[str, ...]) -> None:
    """It may say anything. A text that nodes can read may have been announced."""
    found = settled(serving(WEB, A))
    there = found.objects.configmaps[GROUP]
    config_hash = msgspec.json.decode((there.data or {})[names.AGENT_KEY])["configHash"]
    data = {**(there.data or {}), names.AGENT_KEY: text.replace("%s", config_hash)}
    found.objects.configmaps[GROUP] = msgspec.structs.replace(there, data=data)
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert detection(found).probe == new


def test_a_plan_parses_no_instance_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the text in the ConfigMap, plans parse the instance that is new, and no other."""
    parsed, parse = list[str](), running._instance

    def counted(name: str, block: str, excluded: AddressList) -> RunningInstance | None:
        parsed.append(name)
        return parse(name, block, excluded)

    monkeypatch.setattr(running, "_instance", counted)
    found = settled(*(serving(f"shop/s{number}", f"192.0.2.{number}") for number in range(130, 140)))
    assert set(parsed) == {f"shop/s{number}" for number in range(130, 140)}
    parsed.clear()
    found.snapshot.put(serving("shop/new", "192.0.2.150"))
    found.settle(Key(KeyKind.GROUP, GROUP))
    assert parsed == ["shop/new"]
