"""A cluster as ``kavip ui`` shows it: two groups, five nodes, Services that are served and some that are not."""

from collections.abc import Sequence
from typing import Any

import msgspec

from kavip import names
from kavip.api.agent import AgentState, InstanceReport, KeepalivedReport, NodeProblem, ProblemCode
from kavip.api.cluster import Node
from kavip.api.group import GroupStatus, InstanceStatus, KeepalivedGroup, NodesStatus
from kavip.api.meta import Condition
from kavip.api.pool import Cooling, PoolStatus, Reservation, Usage, VIPPool
from kavip.api.service import Service
from kavip.cli.views.doctor.inspection import AgentAnswer, agent_answer
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.picture import AgentAnswers
from kavip.names import ConditionType, Reason
from kavip.snapshot import Object
from tests.support import build

HOSTILE = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>\u202e\x1b[31m${alert(3)}"
"""Markup, quotes, a bidirectional control, an escape sequence and a template: all of it is text."""
EDGE, DMZ = "lb/edge", "lb/dmz"
NODES = ("node-a1", "node-a2", "node-b1")
DMZ_NODES = ("dmz-1", "dmz-2")
SINCE = "2026-05-01T03:04:05Z"
_TEAMS = ("shop", "search", "media", "billing", "intranet")
_NAMES = ("web", "api", "graphql", "cache", "uploads", "stream")


def condition(kind: str, status: str, reason: str, message: str = "") -> Condition:
    """A condition that holds since :data:`SINCE`."""
    return Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=SINCE)


def conditions(reason: str = Reason.MASTER, message: str = "", *, status: str = "True") -> list[Condition]:
    """The conditions of a Service that has its address; *reason* is that of Advertised."""
    return [
        condition(ConditionType.ADDRESS_ASSIGNED, "True", Reason.ASSIGNED, "from pool edge"),
        condition(ConditionType.SERVICE_PROGRAMMED, "True", Reason.PROGRAMMED, "3 of 3 nodes"),
        condition(ConditionType.ADVERTISED, status, reason, message or "node-a1 is master"),
    ]


def service(key: str, *holds: str, found: Sequence[Condition] = (), group: str = EDGE, note: str = "") -> Service:
    """A Service with the conditions *found*; else it is served."""
    annotations = {"kavip.io/note": note} if note else None
    made = build.service(key, group=group, holds=holds, annotations=annotations)
    return msgspec.structs.replace(
        made, status=msgspec.structs.replace(made.status, conditions=list(found) or conditions())
    )


def waiting(key: str, reason: str, message: str, *, pool: str = "edge") -> Service:
    """A Service without an address."""
    made = build.service(key, group=EDGE, pool=pool)
    found = [condition(ConditionType.ADDRESS_ASSIGNED, "False", reason, message)]
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=found))


def group(key: str, masters: dict[str, tuple[int, str]], *, nodes: int, interface: str = "eth0") -> KeepalivedGroup:
    """A group; *masters*: the VRID and the node of each Service."""
    role = key.partition("/")[2]
    made = build.group(key, interface=interface, node_selector={"role": role}, unicast_enabled=True)
    instances = [
        InstanceStatus(name=name, router_id=number, family=4, node=node, state="MASTER" if node else "BACKUP")
        for name, (number, node) in masters.items()
    ]
    ready = [
        condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED),
        condition(ConditionType.PROGRAMMED, "True", Reason.PROGRAMMED),
        condition(ConditionType.READY, "True", Reason.READY, f"{nodes} of {nodes} pods are ready"),
    ]
    status = GroupStatus(
        router_ids={name: number for name, (number, _) in masters.items()},
        instances=instances,
        nodes=NodesStatus(desired=nodes, ready=nodes, current=nodes),
        conditions=ready,
    )
    return msgspec.structs.replace(made, status=status)


def pool(name: str, *addresses: str, assigned: int, total: int, reason: str = Reason.READY, **spec: Any) -> VIPPool:
    """A pool with its status."""
    cooling = (
        [Cooling(address="192.0.2.155", service="shop/old", until="2030-01-01T00:00:00Z")] if name == "edge" else []
    )
    return msgspec.structs.replace(
        build.pool(name, *addresses, **spec),
        status=PoolStatus(
            ipv4=Usage(total=total, assigned=assigned, available=total - assigned),
            cooling=cooling or None,
            conditions=[
                condition(ConditionType.ACCEPTED, "True", Reason.ACCEPTED),
                condition(
                    ConditionType.READY,
                    "True" if reason == Reason.READY else "False",
                    reason,
                    "all 2 addresses are assigned",
                ),
            ],
        ),
    )


def node(name: str, role: str, *, is_ready: bool = True, drained: bool = False) -> Node:
    """A node of the group *role*."""
    made = build.node(name, "203.0.113.1", labels={"role": role})
    status = msgspec.structs.replace(
        made.status, conditions=[Condition(type="Ready", status="True" if is_ready else "Unknown")]
    )
    annotations = {names.DRAIN_ANNOTATION: "true"} if drained else None
    metadata = msgspec.structs.replace(made.metadata, annotations=annotations)
    return msgspec.structs.replace(made, metadata=metadata, status=status)


def objects(moved: str = "") -> tuple[Object, ...]:
    """The objects; the VIP 192.0.2.130 is on *moved* instead of the first node."""
    keys = sorted(f"{team}/{name}" for team in _TEAMS for name in _NAMES)[:24]
    masters = {key: (10 + number, NODES[number % 3]) for number, key in enumerate(keys)}
    if moved:
        masters[keys[0]] = (10, moved)
    edge = [service(key, f"192.0.2.{130 + number}") for number, key in enumerate(keys)]
    no_master = conditions(Reason.NO_MASTER, "no node of lb/dmz is master of 198.51.100.11", status="False")
    return (
        group(EDGE, masters, nodes=3),
        group(DMZ, {"intranet/vpn": (5, "dmz-1"), "intranet/mail": (6, "")}, nodes=2, interface="vlan20"),
        pool(
            "edge",
            "192.0.2.128/26",
            assigned=24,
            total=62,
            exclude=["192.0.2.128", "192.0.2.180-192.0.2.191"],
            cooldown_seconds=600,
            reservations=[Reservation("192.0.2.129", "shop/next")],
        ),
        pool(
            "dmz",
            "198.51.100.10-198.51.100.11",
            assigned=2,
            total=2,
            reason=Reason.EXHAUSTED,
            priority=200,
            interface="vlan20",
        ),
        pool("v6", "2001:db8:20::/64", assigned=0, total=1 << 62, priority=300, auto_assign=False),
        *(node(name, "edge", is_ready=name != "node-b1", drained=name == "node-a2") for name in NODES),
        *(node(name, "dmz") for name in DMZ_NODES),
        *edge,
        service("intranet/vpn", "198.51.100.10", group=DMZ),
        service("intranet/mail", "198.51.100.11", group=DMZ, found=no_master),
        waiting(
            "media/live",
            Reason.POOL_EXHAUSTED,
            "pool dmz has no free address: free one, or extend spec.addresses",
            pool="dmz",
        ),
        waiting("search/lab", Reason.POOL_NOT_FOUND, f'pool "{HOSTILE}" does not exist', pool=HOSTILE),
        build.namespace("media"),
        build.namespace("search"),
    )


def listing(moved: str = "") -> Listing:
    """The same as a listing."""
    return Listing(objects(moved), notes=("you may not list servicecidrs: what depends on them is not known",))


def agents(moved: str = "") -> AgentAnswers:
    """What the agents answer; that of dmz-2 is silent."""
    found = {each.metadata.key: each for each in objects(moved) if isinstance(each, KeepalivedGroup)}
    answers = [
        *(_answer(found[EDGE], name, rank) for rank, name in enumerate(NODES[:2])),
        _answer(
            found[DMZ], "dmz-1", 0, notes=(NodeProblem(code=ProblemCode.STRICT_ARP_OFF, message="strictARP is off"),)
        ),
    ]
    return AgentAnswers(tuple(answers), {(DMZ, "dmz-2"): "503 ServiceUnavailable: connection refused"})


def _answer(of: KeepalivedGroup, node: str, rank: int, *, notes: tuple[NodeProblem, ...] = ()) -> AgentAnswer:
    vips = {each.key: tuple(str(vip) for vip in each.virtual_ips) for each in objects() if isinstance(each, Service)}
    instances = tuple(
        InstanceReport(
            name=each.name,
            router_id=each.router_id,
            state="MASTER" if each.node == node else "BACKUP",
            virtual_ips=vips.get(each.name, ()),
            priority=200 if each.node == node else 199 - rank,
            last_transition=SINCE,
        )
        for each in of.status.instances or ()
    )
    state = AgentState(
        node=node,
        group=of.key,
        config_hash="abc",
        keepalived=KeepalivedReport(version="2.3.1", running=True),
        instances=instances,
        notes=notes,
    )
    return agent_answer(state, group=of.key, node=node)
