"""Nodes that report VIPs as their own addresses, as kubelet and cloud providers make them."""

from itertools import permutations
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.address import parse_address
from kavip.api.group import GroupVirtualIP
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from tests.admission.evaluation import reasons, update
from tests.support import build

VIP = "192.0.2.129"
BEFORE, AFTER = "2025-12-01T00:00:00Z", "2026-02-01T00:00:00Z"


def assigned_addresses(at: str, **more: Any) -> Service:
    """A Service to which kavip gave the VIP at that time; nodes are of January 2026."""
    service = build.service("shop/web", group="lb/edge", holds=[VIP], **more)
    condition = Condition(
        type=names.ConditionType.ADDRESS_ASSIGNED,
        status="True",
        reason="Assigned",
        message=f"{VIP} from pool edge",
        last_transition_time=at,
    )
    return msgspec.structs.replace(service, status=msgspec.structs.replace(service.status, conditions=[condition]))


def external() -> Service:
    """A Service that has the VIP by externalIPs."""
    return build.service("shop/web", group="lb/edge", type="ClusterIP", external_ips=[VIP])


def own(created: str = "2026-01-01T00:00:00Z") -> Object:
    """A group that has the VIP itself."""
    return build.group(virtual_ips=[GroupVirtualIP(address=f"{VIP}/24")], created=created)


def reported(snapshot: Snapshot) -> list[str]:
    """The addresses of n1 in the ledger."""
    return [str(each) for each in snapshot.nodes["n1"].addresses("InternalIP", "ExternalIP")]


@pytest.mark.parametrize("holder", [assigned_addresses(BEFORE), assigned_addresses(AFTER), external(), own()])
@pytest.mark.parametrize("addresses", [("192.0.2.11", VIP), (VIP, "192.0.2.11")])
def test_a_vip_beside_another_address_is_not_the_nodes(holder: Object, addresses: tuple[str, ...]) -> None:
    """The VIP is ignored in any order of events and addresses, until no Service holds it."""
    node = build.node("n1", *addresses)
    for objects in permutations([holder, node, build.pool("edge", "192.0.2.128/28")]):
        snapshot = Snapshot.from_objects(objects)
        assert reported(snapshot) == ["192.0.2.11"]
        assert "Node" not in snapshot.ledger.owner(parse_address(VIP))
        snapshot.drop(names.SERVICE, "shop/web")
        snapshot.drop(names.KEEPALIVED_GROUP, "lb/edge")
        assert reported(snapshot) == list(addresses)
        assert snapshot.ledger.owner(parse_address(VIP)) == "Node n1"


@pytest.mark.parametrize(
    ("holder", "is_own"),
    [
        (assigned_addresses(AFTER), False),
        (assigned_addresses(BEFORE), True),
        (external(), True),
        (own(AFTER), False),
        (own(BEFORE), True),
    ],
)
def test_a_vip_alone_is_not_the_nodes_if_it_was_assigned_later(holder: Object, is_own: bool) -> None:
    """kavip assigns no address that a node has. A VIP may be the own address of a node that was created later."""
    snapshot = Snapshot.from_objects([holder, build.node("n1", VIP)])
    assert reported(snapshot) == ([VIP] if is_own else [])
    assert snapshot.ledger.owner(parse_address(VIP)).startswith("Node") is (is_own and isinstance(holder, Service))


def test_a_node_without_an_internal_ip_has_external_ones() -> None:
    """Some cloud providers report only external IPs."""
    node = build.node("n1", VIP, "192.0.2.11", kind="ExternalIP")
    assert reported(Snapshot.from_objects([external(), node])) == ["192.0.2.11"]


def test_each_family_is_evaluated_separately() -> None:
    """An own IPv6 address of a node proves nothing about its only IPv4 address."""
    snapshot = Snapshot.from_objects([external(), build.node("n1", VIP, "2001:db8::1")])
    assert reported(snapshot) == [VIP, "2001:db8::1"]


UNJUDGED = {
    "unmanaged": build.service("shop/web", type="ClusterIP", external_ips=[VIP]),
    "plain": build.service("shop/web", external_ips=[VIP]),
    "anothers": build.service("shop/web", group="lb/edge", load_balancer_class="example.com/lb", external_ips=[VIP]),
    "foreign": build.service("shop/web", group="lb/edge", holds=[VIP]),
    "another controller's": build.service("shop/web", holds=[VIP], load_balancer_class="example.com/lb"),
}


@pytest.mark.parametrize("holder", UNJUDGED.values(), ids=UNJUDGED)
def test_addresses_that_kavip_did_not_validate_take_no_address_from_a_node(holder: Service) -> None:
    """Neither external IPs without a review nor a foreign status count as VIPs."""
    node = build.node("n1", "192.0.2.11", VIP)
    there: list[Object] = [holder, node, build.group(default=True)]
    for objects in permutations(there):
        snapshot = Snapshot.from_objects(objects)
        assert reported(snapshot) == ["192.0.2.11", VIP]
        assert snapshot.ledger.owner(parse_address(VIP)) == "Node n1"


def test_a_service_that_kavip_begins_to_manage_cannot_take_a_nodes_address() -> None:
    """A user who could set an external IP before cannot take a node's address with an annotation afterwards."""
    before, after = UNJUDGED["unmanaged"], external()
    verdict = update(before, after, build.group(), build.node("n1", "192.0.2.11", VIP))
    assert reasons(verdict) == [Reason.ADDRESS_NOT_ALLOWED]
