"""Another machine on the LAN has a Service's VIP: what its condition says, and when it gets another address."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.agent import ProblemCode
from kavip.api.group import GroupVirtualIP
from kavip.api.pool import Reservation
from kavip.api.service import Service
from kavip.ipam.ledger.cooldown import MAX_WITHDRAWN, WITHDRAWN_SECONDS
from kavip.names import ConditionType, Reason
from kavip.reconcile.observed.agentstates import AgentStates, ClaimedAddress, Contact, ExcludedInstance, NodeState
from kavip.reconcile.observed.foreignclaims import PATIENCE
from kavip.reconcile.plan import Key, KeyKind, ServicePlan
from kavip.reconcile.service.conflicts import TRIES
from kavip.reconcile.service.throttle import UNKNOWN_AFTER
from tests.reconcile.simulatedcluster import GROUP, NOW, SimulatedCluster, cluster, pod
from tests.support import build

WEB = "shop/web"
STRANGER = "02:00:c0:00:02:63"
HARDWARE = {name: (f"02:00:c0:00:02:0{name[1:]}",) for name in ("n1", "n2")}
FIRST, SECOND = "192.0.2.128", "192.0.2.129"
CONFLICT = "False", "AddressConflict"


def claims(*vips: str, held: bool = False, mac: str = STRANGER) -> tuple[ClaimedAddress, ...]:
    """The report of a node that another machine has *vips*."""
    return tuple(ClaimedAddress(parse_address(vip), mac, "eth0", held) for vip in vips)


def states(*withheld: str, runs: tuple[str, ...] = (), held: tuple[str, ...] = (), **more: Any) -> AgentStates:
    """Both nodes run *runs*, n1 is their master; they withhold *withheld*, and a stranger claims *held* too."""
    vips = frozenset(map(parse_address, runs))
    shared: dict[str, Any] = {"runs": vips, "claimed": claims(*withheld), **more}
    claimed = (*shared["claimed"], *claims(*held, held=True))
    first = NodeState(hardware=HARDWARE["n1"], **{**shared, "masters": vips, "claimed": claimed})
    return AgentStates({GROUP: {"n1": first, "n2": NodeState(hardware=HARDWARE["n2"], **shared)}})


class Conflicts(SimulatedCluster):
    """A cluster with one pool, in which the plans of a Service, its group and the pool are carried out."""

    def __init__(self, *services: Any, pools: tuple[Any, ...] = (), **spec: Any) -> None:
        """The pool has 192.0.2.128/28."""
        pools = pools or (build.pool("edge", *spec.pop("addresses", ()), **spec),)
        super().__init__(cluster(build.group(GROUP), *pools, *services))
        self.objects.pods[GROUP] = {each.metadata.key: each for each in (pod("p1", "n1"), pod("p2", "n2"))}
        self.later(PATIENCE + 1)

    def run(self, agents: AgentStates | None = None, *keys: str) -> list[ServicePlan]:
        """Carry out the plans until nothing changes, after the agents have answered; the plans of Services."""
        self.agents = agents if agents is not None else self.agents
        found = []
        for _ in range(12):
            before = (dict(self.snapshot.services), dict(self.snapshot.pools), dict(self.objects.configmaps))
            found += [self.service(key) for key in keys or sorted(self.snapshot.services)]
            self.group()
            for name in sorted(self.snapshot.pools):
                self.pool(name)
            if before == (dict(self.snapshot.services), dict(self.snapshot.pools), dict(self.objects.configmaps)):
                return found
        raise AssertionError("the plans still have writes")

    def addresses(self, key: str = WEB) -> list[str]:
        """The addresses in the status of the Service."""
        return [str(each) for each in self.snapshot.services[key].ingress_addresses]

    def advertised(self, key: str = WEB) -> tuple[str, str] | None:
        """Status and reason of its ``Advertised``."""
        return self.condition(key, ConditionType.ADVERTISED)

    def message(self, key: str = WEB) -> str:
        """The message of its ``Advertised``."""
        conditions = self.snapshot.services[key].status.conditions or ()
        return next(each.message for each in conditions if each.type == ConditionType.ADVERTISED)

    def resting(self, pool: str = "edge") -> list[tuple[str, str, str]]:
        """The addresses that rest: address, Service, reason."""
        return [(each.address, each.service, each.reason) for each in self.snapshot.pools[pool].status.cooling or ()]


def service(key: str = WEB, **more: Any) -> Any:
    """A Service of the group that kavip gives an address."""
    return build.service(key, group=GROUP, **more)


# --- another address --------------------------------------------------------------------------------------------------
def test_an_address_that_was_not_requested_and_never_announced_is_replaced() -> None:
    """It rests for an hour without an owner; one Event says why, and the new address is announced."""
    found = Conflicts(service())
    found.run()
    assert found.addresses() == [FIRST]
    plans = found.run(states(FIRST))
    assert found.addresses() == [SECOND] and found.resting() == [(FIRST, WEB, "AddressConflict")]
    events = [(each.reason, each.warning) for plan in plans for each in plan.events]
    assert events.count(("AddressConflict", True)) == 1 and ("Assigned", True) in events
    (assigned,) = [each.message for plan in plans for each in plan.events if each.reason == "Assigned"]
    assert assigned == f"{SECOND} from pool edge (was {FIRST}; another machine on the LAN has {FIRST})"
    assert found.advertised() == ("Unknown", "Unknown")
    found.run(states(runs=(SECOND,)))
    assert found.advertised() == ("True", "Master") and found.addresses() == [SECOND]
    assert found.snapshot.pools["edge"].status.ipv4 == msgspec.convert(
        {"total": 16, "assigned": 1, "available": 14}, type(found.snapshot.pools["edge"].status.ipv4)
    )


def test_the_status_of_the_pool_is_written_first() -> None:
    """Until the watch shows it, the Service keeps its address; a new leader continues from there."""
    found = Conflicts(service())
    found.run()
    found.agents = states(FIRST)
    plan = found.service(WEB)
    assert plan.withdrawn == (parse_address(FIRST),) and Key(KeyKind.POOL, "edge") in plan.also
    for _ in range(3):
        again = found.service(WEB)
        assert found.addresses() == [FIRST] and again.withdrawn == () and Key(KeyKind.POOL, "edge") in again.also
    found.pool("edge")
    assert found.resting() == [(FIRST, WEB, "AddressConflict")]
    successor = Conflicts(*found.snapshot.services.values(), pools=tuple(found.snapshot.pools.values()))
    successor.run(states(FIRST))
    assert successor.addresses() == [SECOND]


def test_nobody_gets_the_address_until_the_hour_is_over() -> None:
    """Neither a younger Service, nor one that requests it, nor the one that had it."""
    found = Conflicts(service(), service("shop/wish", wants=FIRST))
    found.run(None, WEB)
    found.run(states(FIRST), WEB)
    found.snapshot.put(service("shop/young"))
    found.run(states(runs=(SECOND,)))
    assert found.addresses("shop/young") == ["192.0.2.130"] and found.addresses("shop/wish") == []
    assert found.condition("shop/wish", ConditionType.ADDRESS_ASSIGNED) == ("False", "AddressInUse")
    found.later(WITHDRAWN_SECONDS)
    found.snapshot.ledger.cooldown.expire(found.now)
    found.run(states(runs=(SECOND, "192.0.2.130")))
    assert found.addresses("shop/wish") == [FIRST] and found.resting() == []


def test_a_service_gives_up_three_addresses_an_hour() -> None:
    """Then it keeps the fourth, and its condition says why that is not announced; after the hour it tries again."""
    found = Conflicts(service())
    found.run()
    for number in range(TRIES):
        assert found.addresses() == [f"192.0.2.{128 + number}"]
        found.run(states(*[f"192.0.2.{128 + each}" for each in range(number + 1)]))
    everything = states(*[f"192.0.2.{128 + each}" for each in range(16)])
    found.run(everything)
    assert found.addresses() == ["192.0.2.131"] and found.advertised() == CONFLICT
    assert len(found.resting()) == TRIES
    found.later(WITHDRAWN_SECONDS)
    found.snapshot.ledger.cooldown.expire(found.now)
    found.run()
    assert found.addresses() != ["192.0.2.131"]


def test_a_node_that_lies_withdraws_sixteen_addresses_of_a_pool() -> None:
    """The other Services keep theirs."""
    keys = [f"shop/s{number:02}" for number in range(20)]
    found = Conflicts(*[service(key) for key in keys], addresses=["192.0.2.128/26"])
    found.run()
    found.run(states(*[f"192.0.2.{128 + each}" for each in range(64)]))
    assert len(found.resting()) == MAX_WITHDRAWN
    assert all(len(found.addresses(key)) == 1 for key in keys)
    assert {found.advertised(key) for key in keys} == {CONFLICT}


# --- it stays ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "asks",
    [{"wants": FIRST}, {"load_balancer_ip": FIRST}, {"reserved": True}],
    ids=["annotation", "loadBalancerIP", "reservation"],
)
def test_a_requested_address_stays(asks: dict[str, Any]) -> None:
    """The condition names the address, the machine, the node, and what to do."""
    spec: dict[str, Any] = (
        {"reservations": [Reservation(address=FIRST, service=WEB)]} if asks.pop("reserved", False) else {}
    )
    found = Conflicts(service(**asks), **spec)
    found.run()
    found.run(states(FIRST))
    assert found.addresses() == [FIRST] and found.advertised() == CONFLICT
    assert found.message().startswith(
        f"{FIRST} is not announced: another machine on the LAN has it, {STRANGER}, as node n1 hears on eth0; give that "
    )
    assert found.resting() == []


def test_an_address_that_was_announced_stays() -> None:
    """Whether a node holds it, or none does any more: connections to it exist."""
    found = Conflicts(service())
    found.run()
    found.run(states(runs=(FIRST,)))
    found.run(states(runs=(FIRST,), held=(FIRST,)))
    assert found.advertised() == CONFLICT and found.addresses() == [FIRST]
    assert found.message().startswith(f"node n1 holds {FIRST}, and another machine on the LAN has it, {STRANGER}")
    found.run(states(runs=(FIRST,)))
    assert found.advertised() == ("True", "Master")


def silent(*runs: str) -> AgentStates:
    """Neither node has answered for a while; before, they ran *runs*."""
    found = states(runs=runs)
    for name in HARDWARE:
        found = found.with_contact(GROUP, name, contact=Contact(is_silent=True))
    return found


def grown(subject: Service, number: int) -> Service:
    """*subject* that requests *number* addresses."""
    annotations = {**(subject.metadata.annotations or {}), names.COUNT_ANNOTATION: str(number)}
    return msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, annotations=annotations))


def lasting(found: Conflicts, agents: AgentStates) -> None:
    """Carry out the plans while *agents* stay as they are for longer than anything has to last."""
    for _ in range(3):
        found.run(agents)
        found.later(UNKNOWN_AFTER)


def test_an_address_that_was_announced_before_a_power_cut_stays() -> None:
    """The controller that starts then knows it, even when it has written that the master is unknown; so it stays."""
    found = Conflicts(service())
    found.run()
    found.run(states(runs=(FIRST,)))
    lasting(found, silent(FIRST))
    lasting(found, AgentStates())
    assert found.advertised() == ("Unknown", "Unknown")
    successor = Conflicts(*found.snapshot.services.values(), pools=tuple(found.snapshot.pools.values()))
    for _ in range(2):
        lasting(successor, states(FIRST))
        assert successor.addresses() == [FIRST] and successor.advertised() == CONFLICT and successor.resting() == []
    successor.run(states(runs=(FIRST,)))
    assert successor.advertised() == ("True", "Master")


def test_an_address_that_a_node_held_in_conflict_stays() -> None:
    """Every node starts anew, and none loads it again because of the other machine."""
    found = Conflicts(service())
    found.run()
    found.run(states(runs=(FIRST,)))
    found.run(states(runs=(FIRST,), held=(FIRST,)))
    lasting(found, states(FIRST))
    assert found.addresses() == [FIRST] and found.advertised() == CONFLICT


def test_an_address_that_is_added_to_an_announced_one_is_replaced() -> None:
    """The one that was announced stays, although another machine has both."""
    found = Conflicts(service())
    found.run()
    found.run(states(runs=(FIRST,)))
    found.snapshot.put(grown(found.snapshot.services[WEB], 2))
    found.run()
    assert found.addresses() == [FIRST, SECOND] and found.advertised() == ("Unknown", "Unknown")
    lasting(found, states(FIRST, SECOND))
    assert found.addresses() == [FIRST, "192.0.2.130"] and [each for each, *_ in found.resting()] == [SECOND]


def test_an_address_that_another_controller_wrote_stays() -> None:
    """Its speaker may have announced it, and may still run on a node that kavip does not know."""
    found = Conflicts(service(holds=[FIRST]))
    found.run()
    assert found.condition(WEB, ConditionType.ADDRESS_ASSIGNED) == ("True", "Assigned")
    found.run(states(FIRST))
    assert found.addresses() == [FIRST] and found.advertised() == CONFLICT and found.resting() == []


def test_an_address_stays_without_another_one() -> None:
    """A full pool, and one from which the Service may have no more, take nothing away."""
    found = Conflicts(service(), addresses=["192.0.2.128/32"])
    found.run()
    found.run(states(FIRST))
    assert found.addresses() == [FIRST] and found.resting() == [] and found.advertised() == CONFLICT


def test_a_shared_address_stays() -> None:
    """The other Service would lose it too."""
    key = {names.SHARING_KEY_ANNOTATION: "k"}
    shared = [service(each, annotations=key, port=port) for each, port in ((WEB, 80), ("shop/api", 81))]
    found = Conflicts(*shared)
    found.run()
    assert found.addresses() == found.addresses("shop/api") == [FIRST]
    found.run(states(FIRST))
    assert found.addresses() == found.addresses("shop/api") == [FIRST]
    assert found.advertised() == found.advertised("shop/api") == CONFLICT


def test_both_families_from_one_pool() -> None:
    """Of a pair only the address in conflict is replaced, from the same pool."""
    spec: dict[str, Any] = {"addresses": ["192.0.2.128/28", "2001:db8::/120"]}
    found = Conflicts(service(families=["IPv4", "IPv6"], ip_family_policy="RequireDualStack"), **spec)
    found.run()
    assert found.addresses() == [FIRST, "2001:db8::"]
    found.run(states("2001:db8::"))
    assert sorted(found.addresses()) == [FIRST, "2001:db8::1"]


# --- what counts as another machine -----------------------------------------------------------------------------------
def test_a_node_is_no_other_machine() -> None:
    """Not even one of another group; nothing is said before all nodes have reported their hardware addresses."""
    for mac in (HARDWARE["n2"][0], "02:00:c0:00:02:77"):
        found = Conflicts(service())
        found.run()
        agents = states(claimed=claims(FIRST, mac=mac))
        found.run(agents.with_state("lb/other", "n7", state=NodeState(hardware=("02:00:c0:00:02:77",))))
        assert found.addresses() == [FIRST] and found.advertised() is None


def test_nothing_is_said_before_all_nodes_have_answered() -> None:
    """A node that does not answer delays the condition for ten seconds, and another address until it answers."""
    found = Conflicts(service())
    found.run()
    complete, began = states(FIRST), (found.now - NOW).total_seconds()
    found.run(AgentStates({GROUP: {"n1": complete.states_of(GROUP)["n1"]}}, since=began))
    assert found.addresses() == [FIRST] and found.advertised() is None
    waits = found.plan_group().requeue_after
    assert waits is not None and waits <= PATIENCE
    found.later(PATIENCE)
    found.run()
    assert found.addresses() == [FIRST] and found.advertised() == CONFLICT
    found.run(complete)
    assert found.addresses() == [SECOND]


def test_a_node_with_an_older_agent_delays_until_it_is_replaced() -> None:
    """It reports no hardware address, so the machine may be that node."""
    found = Conflicts(service())
    found.run()
    agents = states(FIRST)
    old = replace(agents.states_of(GROUP)["n2"], hardware=(), claimed=())
    found.run(agents.with_state(GROUP, "n2", state=old))
    assert found.advertised() is None and found.addresses() == [FIRST]
    silent = agents.with_contact(GROUP, "n2", contact=Contact(is_silent=True))
    found.run(silent)
    assert found.advertised() == CONFLICT and found.addresses() == [FIRST]


def test_a_node_that_runs_the_vip_keeps_it() -> None:
    """It asked when the LAN was silent; the other one, which asked later, reports the machine."""
    found = Conflicts(service())
    found.run()
    agents = states(FIRST)
    first = replace(agents.states_of(GROUP)["n1"], runs=frozenset({parse_address(FIRST)}), claimed=())
    found.run(agents.with_state(GROUP, "n1", state=first))
    assert found.addresses() == [FIRST] and found.advertised() == CONFLICT


# --- the group --------------------------------------------------------------------------------------------------------
def test_a_conflict_is_no_fault_of_the_configuration() -> None:
    """The group is programmed; the Service is not, and says why."""
    found = Conflicts(service(wants=FIRST))
    found.run()
    hashes = found.objects.configmaps[GROUP].data or {}
    config_hash = msgspec.json.decode(hashes[names.AGENT_KEY])["configHash"]
    left = ExcludedInstance(
        name=WEB,
        reason="192.0.2.128 is not announced",
        code=ProblemCode.ADDRESS_CONFLICT,
        virtual_ips=frozenset({parse_address(FIRST)}),
    )
    found.run(states(FIRST, config_hash=config_hash, excluded=(left,)))
    group = {each.type: each for each in found.snapshot.groups[GROUP].status.conditions or ()}
    assert (group["Programmed"].status, group["Programmed"].reason) == ("True", Reason.PROGRAMMED)
    assert found.condition(WEB, ConditionType.SERVICE_PROGRAMMED) == ("False", "Pending")


def test_a_vip_of_the_group_itself() -> None:
    """Its state and the condition Ready report it; it is never replaced."""
    found = SimulatedCluster(cluster(build.group(GROUP, virtual_ips=[GroupVirtualIP(address="192.0.2.5")])))
    found.objects.pods[GROUP] = {each.metadata.key: each for each in (pod("p1", "n1"), pod("p2", "n2"))}
    found.later(PATIENCE + 1)
    found.settle(Key(KeyKind.GROUP, GROUP))
    found.agents = states("192.0.2.5")
    found.settle(Key(KeyKind.GROUP, GROUP))
    status = found.snapshot.groups[GROUP].status
    assert [(each.address, each.state) for each in status.virtual_ips or ()] == [("192.0.2.5", "AddressConflict")]
    (message,) = [each.message for each in status.conditions or () if each.type == "Ready"]
    assert f"virtual IP 192.0.2.5 is not announced: another machine on the LAN has it, {STRANGER}" in message


def test_an_anchor_that_no_node_loaded_changes_without_a_switch() -> None:
    """The new address is in the next text, whether or not each node is ready."""
    found = Conflicts(service())
    found.run()
    agents = states(FIRST)
    found.run(agents)
    data = found.objects.configmaps[GROUP].data or {}
    assert f" {SECOND}/32 " in data[names.CONFIG_KEY] and f" {FIRST}/32 " not in data[names.CONFIG_KEY]
    assert "next" not in msgspec.json.decode(data[names.AGENT_KEY])
