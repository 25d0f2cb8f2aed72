"""Objects for the benchmarks in process: pools that use every rule, Services, requests, and a Snapshot of them."""

from collections.abc import Iterable, Sequence

from kavip import names
from kavip.api.address import Address
from kavip.api.cluster import Namespace, Node, NodeAddress, NodeCondition, NodeStatus
from kavip.api.group import GroupSpec, GroupStatus, Instances, KeepalivedGroup
from kavip.api.meta import Condition, LabelSelector, Metadata
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.service import Ingress, LoadBalancer, Service, ServicePort, ServiceSpec, ServiceStatus
from kavip.ipam.allocate import Allocation, decide
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import parse_range
from kavip.ipam.request import Request, read_request
from kavip.snapshot import Snapshot
from kavip.vrrp.sharding import shared_instances

NAMESPACES = 4
LABELS = {"env": "prod"}
GROUP = "lb/edge"
EDGE = {"edge": "true"}
EDGES = 5
SMALL = "10.64.0.0/16"
LARGE = "10.64.0.0/14"
NEW = 900_000
"""The first number of Services that are added later."""
CREATED = "2026-01-01T00:00:00Z"


def pool(
    name: str,
    *addresses: str,
    priority: int = 100,
    labels: dict[str, str] = LABELS,
    cooldown: int = 0,
    groups: Sequence[str] = (GROUP,),
) -> VIPPool:
    """A pool that uses every rule; *labels* select its Services, and *groups* are those that may use it."""
    spec = PoolSpec(
        addresses=list(addresses),
        priority=priority,
        service_selector=LabelSelector(match_labels=labels),
        namespace_selector=LabelSelector(match_labels=LABELS),
        groups=list(groups),
        max_per_namespace=1 << 30,
        cooldown_seconds=cooldown,
    )
    return VIPPool(metadata=Metadata(name=name, creation_timestamp=CREATED, generation=1), spec=spec)


def services(count: int, *, held: Sequence[Address] = (), dual: bool = False) -> list[Service]:
    """Services of one group in a few namespaces, with and without a sharing key of their own."""
    return [service(index, held=held[index : index + 1], dual=dual) for index in range(count)]


def service(
    index: int,
    *,
    held: Sequence[Address] = (),
    dual: bool = False,
    labels: dict[str, str] = LABELS,
    port: int = 80,
    addresses: str = "",
    sharing_key: str = "",
    group: str = GROUP,
) -> Service:
    """A Service of *group*; *addresses* and *sharing_key* are the values of its annotations."""
    key = sharing_key or (f"key-{index}" if index % 10 == 0 else "")
    found = {
        names.GROUP_ANNOTATION: group,
        names.ADDRESSES_ANNOTATION: addresses,
        names.SHARING_KEY_ANNOTATION: key,
    }
    notes = {name: text for name, text in found.items() if text}
    condition = Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status="True", reason=names.Reason.ASSIGNED)
    ingress = [Ingress(ip=str(address), ip_mode=names.IP_MODE_VIP) for address in held]
    status = ServiceStatus(load_balancer=LoadBalancer(ingress=ingress), conditions=[condition])
    return Service(
        metadata=Metadata(
            name=f"s{index:06}",
            namespace=f"bench-{index % NAMESPACES}",
            creation_timestamp=CREATED,
            resource_version="1",
            labels=labels,
            annotations=notes,
        ),
        spec=ServiceSpec(
            type="LoadBalancer",
            ports=[ServicePort(port=port)],
            ip_families=["IPv4", "IPv6"] if dual else ["IPv4"],
            ip_family_policy="RequireDualStack" if dual else "SingleStack",
        ),
        status=status if held else ServiceStatus(),
    )


def enter(found: Iterable[Service], ledger: Ledger) -> list[Request]:
    """Enter *found* into *ledger*; their requests."""
    result = []
    for each in found:
        ledger.observe(each.key, each)
        result.append(read_request(each)[0])
    return result


def allocate(request: Request, pools: Pools, ledger: Ledger) -> None:
    """Allocate addresses and record them in *ledger*, as the controller does."""
    outcome = decide(request, pools, ledger, namespace_labels=LABELS)
    assert isinstance(outcome, Allocation), outcome
    ledger.expect(request.key, outcome.addresses, resource_version="1")


def first_of(cidr: str, count: int) -> list[Address]:
    """The first *count* addresses of *cidr*."""
    span = parse_range(cidr)
    return [Address(span.family, span.first + index) for index in range(count)]


def cluster(pools: Iterable[VIPPool], found: Iterable[Service] = (), *, nodes: int = 5) -> Snapshot:
    """A Snapshot with one Shared group, which runs on a few of *nodes* nodes."""
    edges = (node(number, labels=EDGE if number < EDGES else None) for number in range(nodes))
    snapshot = Snapshot.from_objects((group(GROUP, EDGE), *namespaces(), *edges, *pools))
    assert snapshot.parsed_pools.in_force
    for each in found:
        snapshot.put(each)
    return snapshot


def group(key: str, selector: dict[str, str], *, segment: str = "default") -> KeepalivedGroup:
    """The Shared group *key* with VRIDs, on the nodes that *selector* selects."""
    namespace, _, name = key.partition("/")
    shared = Instances(mode="Shared", count=16)
    spec = GroupSpec(interface="eth0", node_selector=selector, instances=shared, segment=segment)
    meta = Metadata(name=name, namespace=namespace, uid="u", generation=1, creation_timestamp=CREATED)
    ids = {instance: 1 + number for number, instance in enumerate(shared_instances(shared.count))}
    return KeepalivedGroup(metadata=meta, spec=spec, status=GroupStatus(router_ids=ids))


def namespaces() -> list[Namespace]:
    """The namespaces of the Services."""
    return [Namespace(metadata=Metadata(name=f"bench-{number}", labels=LABELS)) for number in range(NAMESPACES)]


def almost_full(size: int) -> Snapshot:
    """A Snapshot in which *size* Services hold all addresses of a pool except one."""
    addresses = first_of(LARGE, size + 1)
    return cluster([pool("bench", f"{addresses[0]}-{addresses[-1]}")], services(size, held=addresses[:size]))


def node(number: int, *, labels: dict[str, str] | None = None) -> Node:
    """A ready node with *labels*."""
    address = NodeAddress(type="InternalIP", address=f"172.16.{number >> 8}.{number & 255}")
    status = NodeStatus(addresses=[address], conditions=[NodeCondition(type="Ready", status="True")])
    return Node(metadata=Metadata(name=f"n{number:04}", labels=labels), status=status)
