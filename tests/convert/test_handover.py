"""A Service of another load balancer becomes one of kavip, step by step, and is served after each step."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.handover import HandedPort, HandedService, HandedSpec, HandOver
from kavip.convert import handover
from kavip.convert.handover import Goal, next_step, prepare_step
from kavip.convert.steps import Done, Step, Stop, Wait, Write, after
from kavip.names import ConditionType, Reason
from tests.support import build

VIP, SIXTH = "192.0.2.130", "2001:db8::7"
FOREIGN = "metallb.io/metallb"
GOAL = Goal("lb/edge")


def handed(*addresses: str, node_port: int = 30080, **spec: Any) -> HandedService:
    """A LoadBalancer Service with these addresses, written by another controller."""
    found = build.service("shop/web", holds=addresses or [VIP])
    ports = [HandedPort(port=80, node_port=node_port)]
    return HandedService(
        metadata=found.metadata,
        spec=HandedSpec(type="LoadBalancer", ports=ports, ip_families=["IPv4"], **spec),
        status=found.status,
    )


def written(service: HandedService, step: Step) -> HandedService:
    """*service* after *step*, as the API server stores it: another type has no status of a load balancer."""
    assert isinstance(step, Write), step
    found = after(service, step.body)
    gone: dict[str, Any] = {} if found.is_load_balancer else {"status": {"loadBalancer": None}}
    return after(found, gone)


def reported(
    service: HandedService, *, reason: str = Reason.ASSIGNED, addresses: tuple[str, ...] = ()
) -> HandedService:
    """*service* after kavip has announced it, and has written *addresses* if there are any."""
    conditions = [{"type": ConditionType.ADVERTISED, "status": "True", "reason": Reason.MASTER}]
    if addresses:
        message = f"{', '.join(addresses)} from pool edge"
        conditions.append(
            {"type": ConditionType.ADDRESS_ASSIGNED, "status": "True", "reason": Reason.ASSIGNED, "message": message}
        )
    status: dict[str, Any] = {"conditions": conditions}
    if addresses:
        status["loadBalancer"] = {"ingress": [{"ip": each} for each in addresses]}
    return after(service, {"status": status})


def test_without_a_class_kavip_announces_before_the_other_one_stops() -> None:
    """Prepare, leave, arrive, and remove the external IPs: after each write the VIP is in one of the two lists."""
    service = handed()
    assert isinstance(next_step(service, goal=GOAL), Write), "it is called only after prepare_step"
    service = written(service, prepare_step(service, goal=GOAL))
    assert (service.declared_group, service.is_load_balancer) == ("lb/edge", True)
    assert isinstance(prepare_step(service, goal=GOAL), Wait)
    service = reported(service)
    assert prepare_step(service, goal=GOAL) == Done()
    vips = service.virtual_ips
    service = written(service, next_step(service, goal=GOAL))
    assert (service.spec.type, service.spec.external_ips, service.virtual_ips) == ("NodePort", [VIP], vips)
    assert prepare_step(service, goal=GOAL) == Done(), "a second run does not begin again"
    service = written(service, next_step(service, goal=GOAL))
    assert (service.spec.type, service.spec.load_balancer_class) == ("LoadBalancer", names.LOAD_BALANCER_CLASS)
    assert (service.virtual_ips, service.spec.ports) == (vips, handed().spec.ports)
    assert isinstance(next_step(service, goal=GOAL), Wait)
    service = reported(service, addresses=(VIP,))
    service = written(service, next_step(service, goal=GOAL))
    assert (service.spec.external_ips, service.virtual_ips, service.hand_over) == (None, vips, None)
    assert (prepare_step(service, goal=GOAL), next_step(service, goal=GOAL)) == (Done(), Done())


def test_with_a_class_it_leaves_at_once() -> None:
    """kavip never touches a Service of another class, so it is not announced before."""
    service = handed(load_balancer_class=FOREIGN)
    assert prepare_step(service, goal=GOAL) == Done()
    service = written(service, next_step(service, goal=GOAL))
    assert (service.spec.type, service.spec.load_balancer_class, service.declared_group) == (
        "NodePort",
        None,
        "lb/edge",
    )
    assert service.hand_over == HandOver(load_balancer_class=FOREIGN)
    waits = next_step(service, goal=GOAL)
    assert isinstance(waits, Wait) and "kavip does not announce 192.0.2.130 yet" in waits.says
    assert isinstance(next_step(reported(service), goal=GOAL), Write)


def test_it_waits_until_the_other_one_is_gone() -> None:
    """What shows that it is announced still is waited for, unless the other one would never stop."""
    service = reported(written(handed(), next_step(handed(), goal=GOAL)))
    announced = Goal("lb/edge", announced=lambda _: "MetalLB announces it on n1")
    assert next_step(service, goal=announced) == Wait("MetalLB announces it on n1")
    never = Goal("lb/edge", withdraws=False, announced=lambda _: "MetalLB announces it on n1")
    assert isinstance(next_step(service, goal=never), Wait), "it had no class, so the other one sees the change"
    of_class = handed(load_balancer_class=FOREIGN)
    of_class = reported(written(of_class, next_step(of_class, goal=never)))
    assert isinstance(next_step(of_class, goal=never), Write)
    finalizer = after(service, {"metadata": {"finalizers": [handover.CLEANUP_FINALIZER]}})
    assert isinstance(next_step(finalizer, goal=GOAL), Wait)


def test_node_ports_come_back() -> None:
    """A Service without node ports is a ClusterIP one for a moment, so that it gets none. The health port is new."""
    plain = handed(node_port=0, allocate_load_balancer_node_ports=False)
    left = written(plain, next_step(plain, goal=GOAL))
    assert left.spec.type == "ClusterIP"
    assert written(reported(left), next_step(reported(left), goal=GOAL)).spec.allocate_load_balancer_node_ports is False
    local = handed(external_traffic_policy="Local", health_check_node_port=31234)
    left = written(local, next_step(local, goal=GOAL))
    assert left.spec.health_check_node_port == 0
    arriving = next_step(reported(left), goal=GOAL)
    assert isinstance(arriving, Write) and "healthCheckNodePort" not in arriving.body["spec"]


def test_everything_that_it_needs_is_requested() -> None:
    """The group, the addresses of both families, their number, a sharing key, and a pool that it named."""
    service = handed(VIP, "192.0.2.131", SIXTH)
    found = prepare_step(service, goal=Goal("lb/edge", sharing_key="web", pool="first"))
    assert isinstance(found, Write)
    assert found.body["metadata"]["annotations"] == {
        names.GROUP_ANNOTATION: "lb/edge",
        names.ADDRESSES_ANNOTATION: f"{VIP},192.0.2.131,{SIXTH}",
        names.COUNT_ANNOTATION: "2",
        names.SHARING_KEY_ANNOTATION: "web",
        names.POOL_ANNOTATION: "first",
    }


def test_external_ips_of_its_own_stay_reachable() -> None:
    """They are kept beside the addresses, and requested with them."""
    service = handed(external_ips=["192.0.2.140"])
    left = written(service, next_step(service, goal=GOAL))
    assert left.spec.external_ips == [VIP, "192.0.2.140"]


def without_address() -> HandedService:
    """A Service that waits."""
    return after(handed(), {"status": {"loadBalancer": None}})


@pytest.mark.parametrize(
    ("service", "field"),
    [
        (handed(load_balancer_source_ranges=["192.0.2.0/24"]), "spec.loadBalancerSourceRanges"),
        (after(handed(), {"status": {"loadBalancer": {"ingress": [{"hostname": "a.b"}]}}}), "status.loadBalancer"),
        (without_address(), "status.loadBalancer"),
        (after(handed(), {"metadata": {"deletionTimestamp": "2026-05-01T00:00:00Z"}}), ""),
    ],
    ids=["source-ranges", "host-name", "no-address", "in-deletion"],
)
def test_what_prevents_it_is_named(service: HandedService, field: str) -> None:
    """Nothing is written."""
    for step in (prepare_step, next_step):
        found = step(service, goal=GOAL)
        assert isinstance(found, Stop)
        assert found.refusal.field == field


@pytest.mark.parametrize("text", ["", "{", "[]", '{"loadBalancerClass": 7}'])
def test_a_malformed_mark_says_nothing(text: str) -> None:
    """Any user may write the annotation."""
    service = after(handed(), {"metadata": {"annotations": {names.HAND_OVER_ANNOTATION: text}}})
    assert service.hand_over == (HandOver() if text else None)


def test_the_mark_is_read_as_it_was_written() -> None:
    """Unknown fields of a later version are skipped."""
    mark = HandOver(allocate_load_balancer_node_ports=False, load_balancer_class="a/b")
    assert msgspec.json.decode(mark.text(), type=HandOver) == mark
