"""What nodes report that they run, as instances."""

from kavip.api.address import Address, parse_address
from kavip.reconcile.observed.agentstates import BACKUP, MASTER, InstanceState, NodeState
from kavip.reconcile.observed.reported import reported_instances
from tests.support import build
from tests.vrrp.samples import NEW, shared

GROUP = build.group(**NEW, instances=shared(2))
ONE, OTHER, SIXTH = (parse_address(text) for text in ("192.0.2.1", "192.0.2.2", "2001:db8::1"))
WEB = "shop/web"


def state(places: dict[Address, str], *instances: tuple[str, int, int], masters: tuple[Address, ...] = ()) -> NodeState:
    """The answer of a node with VIPs by instance, and *instances*: name, VRID and family."""
    found = tuple(InstanceState(*each, state=BACKUP, virtual_ips=1) for each in instances)
    return NodeState(instance_of=places, instances=found, masters=frozenset(masters))


def reported(*states: NodeState) -> dict[str, tuple[int, str, list[str]]]:
    """VRID, anchor and VIPs of each instance that *states* report, on vlan7 where the VIP is the other one."""
    found = reported_instances(
        {f"n{number}": each for number, each in enumerate(states)},
        GROUP,
        services=(WEB,),
        taken=(99,),
        interface_of=lambda address: "vlan7" if address == OTHER else "",
    )
    return {
        name: (
            run.identity.router_id,
            f"{run.identity.anchor} {run.identity.anchor.interface}",
            [f"{vip} {vip.interface}" for vip in run.virtual_ips],
        )
        for name, run in found.items()
    }


def test_shared_instances_and_those_of_services() -> None:
    """Each family and interface has an instance of its own; a Shared one may have no VIP."""
    places = {ONE: "group/0", OTHER: "group/0.vlan7", SIXTH: f"{WEB}/v6"}
    found = reported(state(places, ("group/0", 3, 4), ("group/0.vlan7", 4, 4), ("group/1", 5, 4), (f"{WEB}/v6", 6, 6)))
    assert found == {
        "group/0": (3, "169.254.255.3/32 eth0", ["192.0.2.1/32 eth0"]),
        "group/0.vlan7": (4, "169.254.255.4/32 vlan7", ["192.0.2.2/32 vlan7"]),
        "group/1": (5, "169.254.255.5/32 eth0", []),
        f"{WEB}/v6": (6, "2001:db8::1/128 eth0", ["2001:db8::1/128 eth0"]),
    }


def test_the_master_of_a_vip_is_right() -> None:
    """Of nodes without it the first one; a VIP is in one instance."""
    instances = ("group/0", 3, 4), ("group/1", 5, 4)
    one, other = state({ONE: "group/0"}, *instances), state({ONE: "group/1"}, *instances, masters=(ONE,))
    assert [vips for _, _, vips in reported(one, other).values()] == [[], ["192.0.2.1/32 eth0"]]
    assert [vips for _, _, vips in reported(one, state({ONE: "group/1"}, *instances)).values()] == [
        ["192.0.2.1/32 eth0"],
        [],
    ]


def test_what_cannot_be_is_not_believed() -> None:
    """VRIDs outside 1 to 255 and those of other groups, unknown families, Services and names."""
    places = {ONE: WEB, OTHER: "shop/other"}
    assert not reported(
        state(
            places,
            *((f"group/{number}", number, 4) for number in (0, 256, 99)),
            ("group/7", 7, 5),
            ("shop/other", 8, 4),
            (WEB, 9, 6),
        )
    )


def test_the_anchor_of_the_master_is_right() -> None:
    """If nodes disagree; without one that is reported, the lowest VIP."""
    places = {ONE: WEB, OTHER: WEB}

    def node(state: str, anchor: str) -> NodeState:
        instance = InstanceState(WEB, 7, 4, state, 2, anchor=anchor)
        return NodeState(instance_of=places, instances=(instance,))

    def anchor(*states: NodeState) -> str:
        return reported(*states)[WEB][1].partition("/")[0]

    assert anchor(node(BACKUP, str(ONE)), node(MASTER, str(OTHER))) == str(OTHER)
    assert anchor(node(MASTER, str(OTHER)), node(BACKUP, str(ONE))) == str(OTHER)
    assert anchor(node(BACKUP, ""), node(BACKUP, str(OTHER))) == str(OTHER)
    assert anchor(node(BACKUP, ""), node(MASTER, "192.0.2.99")) == str(ONE)
