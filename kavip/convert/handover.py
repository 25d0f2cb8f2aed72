"""
A LoadBalancer Service of another load balancer becomes one of kavip, and keeps its addresses.

``loadBalancerClass`` cannot change while a Service is of type LoadBalancer. So it is of another type for a moment, and
``externalIPs`` are the bridge: kube-proxy answers on them, and kavip announces them.

1. *prepare*: where the Service has no class, it gets the annotations of kavip. kavip announces the addresses beside the
   other load balancer, so that nothing has to be rolled out when that one stops.
2. *leave*: its type becomes NodePort, or ClusterIP if it has no node ports, with its addresses as ``externalIPs``. The
   other load balancer withdraws; the API server empties the status.
3. *arrive*: it becomes a LoadBalancer of kavip's class that requests its addresses by name, once the other one is gone
   from it and kavip is master of each address.
4. The external IPs are removed when the status has the addresses (:mod:`.externalips`).

A Service with a class of the other one has no step 1: kavip never touches such a Service. Its addresses are announced
by kavip as soon as that is rolled out.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address
from kavip.api.handover import HandedService, HandOver
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.convert import externalips
from kavip.convert.steps import Done, Json, Step, Stop, Wait, Write, annotated
from kavip.names import Reason

CLEANUP_FINALIZER: Final = "service.kubernetes.io/load-balancer-cleanup"
"""Of the service controller of a cloud provider: it still has to clean up, and empties the status then."""

_UNMARKED: Final[Json] = {"metadata": {"annotations": {names.HAND_OVER_ANNOTATION: None}}}
_SOURCE_RANGES: Final = (
    "has source ranges, which would not apply during the hand-over: remove them for that time, or delete the Service "
    "and create it with kavip's class"
)


@dataclass(frozen=True, slots=True)
class Goal:
    """
    Where a Service goes: to *group*, with *sharing_key* if it shares an address and *pool* if it named one.

    *withdraws*: whether the other load balancer stops announcing a Service of its class when the type changes.
    *announced*: what shows that it announces the Service still; "" if nothing does.
    """

    group: str
    sharing_key: str = ""
    pool: str = ""
    withdraws: bool = True
    announced: Callable[[HandedService], str] = lambda _: ""


def goal_annotations(service: Service, goal: Goal, addresses: tuple[Address, ...]) -> dict[str, str]:
    """The annotations that *service* needs to keep *addresses*, and does not have."""
    count = max(Counter(each.family for each in addresses).values(), default=1)
    wanted = {
        names.GROUP_ANNOTATION: goal.group,
        names.ADDRESSES_ANNOTATION: ",".join(map(str, addresses)),
        names.COUNT_ANNOTATION: str(count) if count > 1 else "",
        names.SHARING_KEY_ANNOTATION: goal.sharing_key,
        names.POOL_ANNOTATION: goal.pool,
    }
    return {key: text for key, text in wanted.items() if text and service.metadata.annotation(key) != text}


def prepare_step(service: HandedService, *, goal: Goal) -> Step:
    """The steps until the Service may leave; of Services that share an address, all are prepared before one leaves."""
    if obstacle := obstacle_of(service):
        return Stop(obstacle)
    if _is_arrived(service) or service.hand_over is not None or service.has_foreign_class:
        return Done()
    if missing := goal_annotations(service, goal, service.ingress_addresses):
        return Write(annotated(**missing), f"kavip announces {_texts(service.ingress_addresses)} as well")
    return _advertised(service) or Done()


def next_step(service: HandedService, *, goal: Goal) -> Step:
    """The next step of a Service that is prepared."""
    mark = service.hand_over
    if _is_arrived(service):
        found = externalips.next_step(service)
        if mark is None or isinstance(found, Wait | Stop):
            return found
        last = found if isinstance(found, Write) else Write({}, "the hand-over is done")
        return Write({**last.body, **_UNMARKED}, last.says)
    if obstacle := obstacle_of(service):
        return Stop(obstacle)
    if mark is None or service.is_load_balancer:
        return Write(_leaving(service, goal), f"externalIPs {_texts(service.ingress_addresses)}, no LoadBalancer")
    if CLEANUP_FINALIZER in (service.metadata.finalizers or ()):
        return Wait(f"its finalizer {CLEANUP_FINALIZER} stays: another controller has not cleaned up")
    if (not mark.load_balancer_class or goal.withdraws) and (announced := goal.announced(service)):
        return Wait(announced)
    return _advertised(service) or Write(_arriving(mark), f"a LoadBalancer of {names.LOAD_BALANCER_CLASS}")


def obstacle_of(service: HandedService) -> Refusal | None:
    """What in *service* prevents the hand-over."""
    if service.metadata.deletion_timestamp:
        return Refusal(Reason.INVALID_REQUEST, "is being deleted")
    if service.spec.load_balancer_source_ranges and service.hand_over is None:
        return Refusal(Reason.INVALID_REQUEST, _SOURCE_RANGES, "spec.loadBalancerSourceRanges")
    entries = service.status.load_balancer.ingress or ()
    if service.is_load_balancer and len(service.ingress_addresses) != len(entries):
        return Refusal(Reason.INVALID_REQUEST, "has a host name, which kavip does not announce", "status.loadBalancer")
    if not (service.ingress_addresses or service.external_addresses):
        return Refusal(Reason.INVALID_REQUEST, "has no address to hand over", "status.loadBalancer")
    return None


def final_patch(service: Service, goal: Goal, addresses: tuple[Address, ...]) -> Json:
    """The merge patch that makes *service* what it is after the hand-over, without its status."""
    notes = goal_annotations(service, goal, addresses)
    is_ours = service.spec.load_balancer_class == names.LOAD_BALANCER_CLASS
    return {**annotated(**notes), **({} if is_ours else {"spec": {"loadBalancerClass": names.LOAD_BALANCER_CLASS}})}


# --- steps ------------------------------------------------------------------------------------------------------------
def _is_arrived(service: HandedService) -> bool:
    return service.is_load_balancer and service.spec.load_balancer_class == names.LOAD_BALANCER_CLASS


def _leaving(service: HandedService, goal: Goal) -> Json:
    """Another type, and the addresses as external IPs; what cannot be seen then is noted."""
    spec = service.spec
    mark = HandOver(
        allocate_load_balancer_node_ports=spec.allocate_load_balancer_node_ports,
        load_balancer_class=spec.load_balancer_class or "",
    )
    has_node_ports = any(port.node_port for port in spec.ports or ())
    kept = [each for each in service.external_addresses if each not in service.ingress_addresses]
    notes = {**goal_annotations(service, goal, service.ingress_addresses), names.HAND_OVER_ANNOTATION: mark.text()}
    change: Json = {
        "type": "NodePort" if has_node_ports else "ClusterIP",
        "externalIPs": [str(each) for each in (*service.ingress_addresses, *kept)],
        "loadBalancerClass": None,
        "allocateLoadBalancerNodePorts": None,
        "healthCheckNodePort": None,
    }
    return {**annotated(**notes), "spec": change}


def _arriving(mark: HandOver) -> Json:
    """
    Type LoadBalancer again, of kavip's class, with the choice about node ports that it had.

    It gets a new ``healthCheckNodePort`` with policy Local. To request the old one fails from time to time, and then
    for minutes: an API server that decides twice (seen with 1.35) has allocated the port to its own first attempt.
    """
    change: Json = {"type": "LoadBalancer", "loadBalancerClass": names.LOAD_BALANCER_CLASS}
    if mark.allocate_load_balancer_node_ports is not None:
        change["allocateLoadBalancerNodePorts"] = mark.allocate_load_balancer_node_ports
    return {"spec": change}


def _advertised(service: HandedService) -> Wait | None:
    """What is to be waited for until one node of kavip is master of each address."""
    found = conditions.find(service.status.conditions, names.ConditionType.ADVERTISED)
    if found is not None and found.status == "True":
        return None
    programmed = conditions.find(service.status.conditions, names.ConditionType.SERVICE_PROGRAMMED)
    shown = found or programmed
    why = f": {shown.reason}: {shown.message}" if shown else ""
    return Wait(f"kavip does not announce {_texts(service.virtual_ips)} yet{why}")


def _texts(addresses: tuple[Address, ...]) -> str:
    return ", ".join(map(str, addresses))
