"""The status of a group: its conditions and counts, and the target of the prober."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.agent import NodeProblem, ProblemCode
from kavip.api.cluster import ContainerState, ContainerStatus, PodCondition, PodStatus, Terminated, Waiting
from kavip.api.group import GroupVirtualIP, KeepalivedGroup, PasswordAuth, SecretRef
from kavip.names import Reason
from kavip.reconcile.group.reconcile import plan_group
from kavip.reconcile.observed.agentstates import ExcludedInstance, InstanceState, NodeState
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from tests.reconcile.group.settledgroup import (
    ACCEPTED,
    PROGRAMMED,
    READY,
    WEB,
    applied_kinds,
    condition,
    serving,
    settled,
    with_pods,
)
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, agent_states, cluster, pod, running
from tests.support import build


# --- conditions and the rest of status --------------------------------------------------------------------------------
def test_the_status_of_a_group_that_works() -> None:
    """A working group has all conditions, counts, hash and port in its status."""
    simulation = with_pods(settled(build.group(), serving(WEB, "192.0.2.130")), pod("p1", "n1"), pod("p2", "n2"))
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    sight = InstanceState("shop/web", 1, 4, "BACKUP", 1)
    states = {
        "n1": NodeState(config_hash=config_hash, instances=(msgspec_replace(sight, state="MASTER"),)),
        "n2": NodeState(config_hash=config_hash, instances=(sight,)),
    }
    simulation.agents = agent_states(**states)
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    status = simulation.snapshot.groups[GROUP].status
    assert {each.type: (each.status, each.reason) for each in status.conditions or ()} == {
        "Accepted": ("True", "Accepted"),
        "Programmed": ("True", "Programmed"),
        "Ready": ("True", "Ready"),
        "ReconcileSuccess": ("True", "LastReconcileCycleSucceded"),
        "ReconcileError": ("False", "LastReconcileCycleFailed"),
    }
    assert msgspec.to_builtins(status.nodes) == {"desired": 2, "ready": 2, "current": 2}
    assert (status.metrics_port, status.observed_generation, len(config_hash)) == (9650, 1, 16)
    assert [msgspec.to_builtins(each) for each in status.instances or ()] == [
        {"name": "shop/web", "routerID": 1, "family": 4, "node": "n1", "state": "MASTER", "virtualIPs": 1}
    ]


def test_a_running_group_keeps_its_port_and_says_so() -> None:
    """Another `--agent-port` is for new groups. `spec.metricsPort` of the group decides, without a remark."""
    simulation = with_pods(settled(build.group(), serving(WEB, "192.0.2.130")), pod("p1", "n1"), pod("p2", "n2"))
    kept = (
        "every pod is ready; its agents keep port 9650: agent.port 9700 is for new groups; set spec.metricsPort to 9700"
        " or higher to change it, which replaces the pods"
    )
    for first, chosen, port, message in (
        (9650, None, 9650, "every pod is ready"),
        (9700, None, 9650, kept),
        (9600, None, 9650, "every pod is ready"),
        (9700, 9650, 9650, "every pod is ready"),
    ):
        group = simulation.snapshot.groups[GROUP]
        spec = msgspec.structs.replace(group.spec, metrics_port=chosen)
        simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
        simulation.options = replace(simulation.options, agent_port=first)
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        assert condition(simulation, READY)[2] == message
        assert simulation.snapshot.groups[GROUP].status.metrics_port == port


def test_programmed_names_excluded_instances() -> None:
    """All nodes are current. Programmed names the excluded instances, and the first node with its reason."""
    simulation = with_pods(settled(build.group(), serving(WEB, "192.0.2.130")), pod("p1", "n1"), pod("p2", "n2"))
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    left_out = tuple(ExcludedInstance(name=f"shop/{name}", reason="line 3") for name in "abcde")
    simulation.agents = agent_states(n1=running(config_hash), n2=running(config_hash, excluded=left_out))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    status, reason, message = condition(simulation, PROGRAMMED, GROUP)
    assert (status, reason) == ("False", "RefusedByAgent")
    assert (
        message == f"nodes exclude shop/a, shop/b, shop/c and 2 more from configuration {config_hash}; node n2: line 3"
    )
    nodes = simulation.snapshot.groups[GROUP].status.nodes
    assert nodes is not None and nodes.current == 2


def test_ready_has_the_warnings_of_nodes() -> None:
    """Ready stays True and has the warnings of the first node, for example kube-proxy without strictARP."""
    simulation = with_pods(settled(build.group(), serving(WEB, "192.0.2.130")), pod("p1", "n1"), pod("p2", "n2"))
    note = "this node answers ARP for VIPs of other nodes"
    arp = (NodeProblem(ProblemCode.STRICT_ARP_OFF, note),)
    simulation.agents = agent_states(n1=running("h"), n2=replace(running("h"), notes=arp))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, READY, GROUP) == ("True", "Ready", f"every pod is ready; node n2: {note}")
    simulation.agents = agent_states(n1=replace(running("h"), notes=arp), n2=replace(running("h"), notes=arp))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, READY, GROUP) == ("True", "Ready", f"every pod is ready; nodes n1, n2: {note}")
    web = NodeProblem(ProblemCode.CHECK_FAILING, "web fails")
    simulation.agents = agent_states(n1=replace(running("h"), notes=(web, *arp)), n2=replace(running("h"), notes=arp))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    both = f"every pod is ready; node n1: web fails; nodes n1, n2: {note}"
    assert condition(simulation, READY, GROUP) == ("True", "Ready", both)


def msgspec_replace(sight: InstanceState, **changes: Any) -> InstanceState:
    """The instance state *sight* with *changes*."""
    return InstanceState(**{**{name: getattr(sight, name) for name in sight.__slots__}, **changes})


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (build.group(interface="eth0;id"), "spec.interface"),
        (build.group(blacklist_router_ids=[0]), "spec.blacklistRouterIDs[0]"),
        (build.group("lb/" + "x" * 64), "metadata.name"),
        (build.group(verbatim_config={"notify_master": "/bin/sh"}), "spec.verbatimConfig[notify_master]"),
    ],
)
def test_accepted_names_an_invalid_field(group: KeepalivedGroup, message: str) -> None:
    """The controller validates groups again: the webhook may have been down."""
    simulation = SimulatedCluster(cluster(group))
    simulation.settle(Key(KeyKind.GROUP, group.key))
    status, reason, text = condition(simulation, ACCEPTED, group.key)
    assert (status, reason) == ("False", "Invalid")
    assert message in text


def test_a_group_without_a_usable_interface_gets_no_objects() -> None:
    """The group has no configuration, so nothing is applied."""
    simulation = SimulatedCluster(cluster(build.group(interface="eth0;id", metrics_port=9650)))
    plan = simulation.group()
    assert not applied_kinds(plan)
    assert plan.target is None
    assert condition(simulation, PROGRAMMED)[:2] == ("False", "Pending")


def test_an_invalid_line_does_not_stop_the_group() -> None:
    """A line that is not allowed is left out, and the VIPs are served."""
    simulation = settled(build.group(verbatim_config={"notify_master": "/bin/sh"}), serving(WEB, "192.0.2.130"))
    assert "vrrp_instance shop/web" in simulation.text()
    assert "notify_master" not in simulation.text()


def test_the_younger_of_two_default_groups_reports_it_and_is_served() -> None:
    """Accepted of the younger group is False with the reason DuplicateDefault, but the group is served."""
    older = build.group("lb/first", default=True)
    simulation = settled(older, build.group(default=True, created="2026-02-01T00:00:00Z"))
    assert condition(simulation, ACCEPTED)[:2] == ("False", "DuplicateDefault")
    assert GROUP in simulation.objects.daemonsets


def test_ready_no_nodes() -> None:
    """Ready is False with the reason NoNodes."""
    simulation = settled(build.group(node_selector={"edge": "true"}))
    assert condition(simulation, READY)[:2] == ("False", "NoNodes")


def test_ready_pods_not_ready() -> None:
    """The condition names the nodes whose pod is not ready."""
    simulation = with_pods(settled(build.group()), pod("p1", "n1"), pod("p2", "n2", ready=False))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, READY) == ("False", "PodsNotReady", "1 of 2 pods are ready; waiting for those on n2")


def waiting(reason: str, image: str = "registry.example/k:1", **kind: Any) -> PodStatus:
    """The status of a pod whose container waits."""
    state = ContainerState(waiting=Waiting(reason=reason))
    found: Any = {each: [ContainerStatus(image=image, state=state)] for each in kind}
    return PodStatus(**found)


def ending(**how: Any) -> PodStatus:
    """The status of a pod whose container restarts again and again."""
    state, before = (
        ContainerState(waiting=Waiting(reason="CrashLoopBackOff")),
        ContainerState(terminated=Terminated(**how)),
    )
    return PodStatus(
        container_statuses=[ContainerStatus(name="agent", state=state, last_state=before, restart_count=2)]
    )


UNSCHEDULED = PodStatus(
    conditions=[PodCondition(type="PodScheduled", status="False", message="1 node(s) didn't have free ports. ")]
)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (waiting("ErrImagePull", container_statuses=1), "image registry.example/k:1 cannot be pulled"),
        (waiting("ImagePullBackOff", init_container_statuses=1), "image registry.example/k:1 cannot be pulled"),
        (waiting("CreateContainerConfigError", container_statuses=1), "CreateContainerConfigError"),
        (
            ending(reason="OOMKilled", exit_code=137),
            "container agent needs more memory than its limit (OOMKilled): see spec.resources, LimitRange",
        ),
        (
            ending(reason="Error", exit_code=2),
            "container agent exits again and again with exit code 2: see its log",
        ),
        (UNSCHEDULED, "1 node(s) didn't have free ports"),
        (
            waiting("ErrImagePull", image="k\x1b[2J\u202e\nFAKE", container_statuses=1),
            r"image k\x1b[2J\u202e FAKE cannot be pulled",
        ),
    ],
)
def test_ready_names_the_cause_of_a_pod_that_does_not_start(status: PodStatus, message: str) -> None:
    """A cause that a user must remove is reported. A cause that ends by itself is not, because it would flap."""
    stuck = pod("edge-2", "n2", ready=False)
    simulation = with_pods(settled(build.group()), pod("edge-1", "n1"), msgspec.structs.replace(stuck, status=status))
    simulation.group()
    assert condition(simulation, READY)[1:] == (
        "PodsNotReady",
        f"1 of 2 pods are ready; waiting for those on n2; pod edge-2 on n2: {message}",
    )
    passing = waiting("CrashLoopBackOff", container_statuses=1)
    with_pods(simulation, pod("edge-1", "n1"), msgspec.structs.replace(stuck, status=passing))
    simulation.group()
    assert condition(simulation, READY)[2] == "1 of 2 pods are ready; waiting for those on n2"


def test_ready_with_a_vrid_collision() -> None:
    """
    A group without a segment whose VRID another group uses on the same interface gets a warning, and keeps its VRID.
    """
    other = build.group("lb/other", router_ids={"shop/x": 1})
    simulation = with_pods(settled(build.group(), serving(WEB, "192.0.2.130"), other), pod("p1", "n1"), pod("p2", "n2"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, READY)[:2] == ("True", "VRIDCollision")
    assert simulation.snapshot.groups[GROUP].status.router_ids == {WEB: 1}


@pytest.mark.parametrize(
    ("own", "other", "link"),
    [
        ({"interface": "eth1"}, {"interface": "eth1"}, "eth1"),
        ({"vrrp_interface": "eth1"}, {"interface": "eth1"}, "eth1"),
        ({"vrrp_interface": "eth1"}, {"interface": "eth2", "vrrp_interface": "eth1"}, "eth1"),
        ({"vrrp_interface": "eth1"}, {}, ""),
        ({}, {"vrrp_interface": "eth1"}, ""),
    ],
)
def test_vrids_collide_where_both_groups_send_vrrp(own: dict[str, Any], other: dict[str, Any], link: str) -> None:
    """The interface of the VIPs does not matter."""
    groups = build.group(**own), build.group("lb/other", router_ids={"shop/x": 1}, **other)
    simulation = with_pods(settled(groups[0], serving(WEB, "192.0.2.130"), groups[1]), pod("p1", "n1"), pod("p2", "n2"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    _, reason, message = condition(simulation, READY)
    assert (reason == "VRIDCollision") == bool(link)
    assert not link or f"VRID 1 is used by KeepalivedGroup lb/other on {link} too" in message


def test_programmed_pending_and_refused() -> None:
    """The condition counts the nodes, and names the one that refuses the configuration."""
    simulation = settled(build.group())
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    simulation.agents = agent_states(n1=running(config_hash))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, PROGRAMMED) == (
        "False",
        "Pending",
        f"1 of 2 nodes run configuration {config_hash}; waiting for n2",
    )
    simulation.agents = agent_states(n1=running(config_hash), n2=running("old", refused="unknown interface eth0"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, PROGRAMMED) == ("False", "RefusedByAgent", "node n2: unknown interface eth0")


def test_programmed_secret_missing() -> None:
    """The group reports a missing password by the agent's code, and names the Secret if its spec still has one."""
    fault = "password: the Secret is not mounted"
    simulation = settled(build.group())
    simulation.agents = agent_states(n1=running("old", refused=fault, code=ProblemCode.PASSWORD_MISSING))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    assert condition(simulation, PROGRAMMED) == ("False", "SecretMissing", f"node n1: {fault}")
    secret = PasswordAuth(secret_ref=SecretRef(name="vrrp"), secret_key="pass")
    simulation = settled(build.group(password_auth=secret))
    simulation.agents = agent_states(n1=running("old", refused=fault, code=ProblemCode.PASSWORD_MISSING))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    message = "node n1: Secret lb/vrrp (spec.passwordAuth) does not exist, or has no key pass: create it"
    assert condition(simulation, PROGRAMMED) == ("False", "SecretMissing", message)


def test_a_change_of_accepted_is_one_event() -> None:
    """There is one Event when the reason changes."""
    simulation = SimulatedCluster(cluster(build.group(metrics_port=9650)))
    assert [(notice.reason, notice.warning) for notice in simulation.group().events] == [("Accepted", False)]
    assert not simulation.group().events
    group = simulation.snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, blacklist_router_ids=[0])
    simulation.snapshot.put(msgspec.structs.replace(group, spec=spec))
    assert [(notice.reason, notice.warning) for notice in simulation.group().events] == [("Invalid", True)]
    assert not simulation.group().events


@pytest.mark.parametrize(
    ("masters", "node", "state"), [((), "", "NoMaster"), (("n2",), "n2", "MASTER"), (("n1", "n2"), "", "SplitBrain")]
)
def test_the_status_names_the_master_of_the_groups_own_vips(masters: tuple[str, ...], node: str, state: str) -> None:
    """The status has the master of each of spec.virtualIPs, by the answers of the agents."""
    simulation = settled(build.group(virtual_ips=[GroupVirtualIP(address="192.0.2.200/24")]))
    simulation.agents = agent_states(
        **{name: running("h", "192.0.2.200", master=name in masters) for name in ("n1", "n2")}
    )
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    simulation.later(5)  # the duration of a fail-over
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    (own,) = simulation.snapshot.groups[GROUP].status.virtual_ips or []
    assert (own.address, own.node, own.state) == ("192.0.2.200", node, state)


def test_conditions_of_other_programs_stay() -> None:
    """A condition of another program stays, and its time changes only with its status."""
    simulation = settled(build.group())
    first = {each.type: each.last_transition_time for each in simulation.snapshot.groups[GROUP].status.conditions or ()}
    simulation.later(3600)
    simulation.snapshot.put(serving(WEB, "192.0.2.130"))
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    last = {each.type: each.last_transition_time for each in simulation.snapshot.groups[GROUP].status.conditions or ()}
    assert first == last


# --- the target of the prober -----------------------------------------------------------------------------------------
def test_the_target_has_every_node_with_an_address() -> None:
    """The target has the host and port of each agent, IPv6 in brackets, and the hash that they should run."""
    simulation = settled(build.group(), build.node("n3", "2001:db8::3"), build.node("n4"))
    target = simulation.group().target
    assert target is not None
    assert dict(target.hosts) == {"n1": "192.0.2.11", "n2": "192.0.2.12", "n3": "[2001:db8::3]"}
    assert (target.port, target.config_hash) == (9650, simulation.snapshot.groups[GROUP].status.config_hash)
    assert (
        json.loads((simulation.objects.configmaps[GROUP].data or {})[names.AGENT_KEY])["configHash"]
        == target.config_hash
    )


def test_nodes_with_external_ips_only_are_peers() -> None:
    """A node with only an ExternalIP is a peer: its agent listens on that address, and its adverts come from it."""
    nodes = [build.node(f"n{n}", f"192.0.2.{10 + n}", kind="ExternalIP") for n in (1, 2)]
    simulation = SimulatedCluster(
        cluster(build.group(unicast_enabled=True), serving("shop/web", "192.0.2.200"), *nodes, nodes=0)
    )
    simulation.settle(Key(KeyKind.GROUP, GROUP))
    target = simulation.plan_group().target
    assert target is not None
    assert dict(target.hosts) == {"n1": "192.0.2.11", "n2": "192.0.2.12"}
    assert "@n1 unicast_src_ip 192.0.2.11" in simulation.text()


def test_the_status_patch_has_the_resource_version() -> None:
    """The patch has the resourceVersion of the group in the Snapshot."""
    plan = plan_group(cluster(build.group()), GROUP, now=NOW)
    (write,) = [each for each in plan.writes if isinstance(each, StatusPatch)]
    assert write.body["metadata"] == {"resourceVersion": "1"}
    assert Reason.ACCEPTED in {each["reason"] for each in write.body["status"]["conditions"]}
