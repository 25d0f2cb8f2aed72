"""The Snapshot has the members of each group, for any order of events."""

import random
from itertools import permutations
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import names
from kavip.api.address import parse_address
from kavip.api.meta import Condition, LabelSelector
from kavip.api.pool import Cooling, PoolStatus
from kavip.api.service import Service, ServiceStatus
from kavip.api.slice import Endpoint, EndpointConditions, EndpointSlice
from kavip.ipam.allocate import Allocation, settle
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.memo import KEEPS_NOTHING
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from kavip.snapshot.clusterranges import rejected_ranges
from tests.reconcile.service.planning import with_condition
from tests.support import build


def test_an_annotated_load_balancer_belongs_to_its_group() -> None:
    """The annotation opts a Service in, whether or not the group exists."""
    web = build.service("shop/web", group="lb/edge")
    assert Snapshot.from_objects([web]).group_of(web) == "lb/edge"


def test_a_cluster_ip_service_belongs_only_with_external_ips() -> None:
    """keepalived-operator's rule: any type, when it has externalIPs."""
    plain = build.service("shop/a", group="lb/edge", type="ClusterIP")
    external = build.service("shop/b", group="lb/edge", type="ClusterIP", external_ips=["192.0.2.5"])
    snapshot = Snapshot.from_objects([plain, external])
    assert snapshot.group_of(plain) is None
    assert snapshot.group_of(external) == "lb/edge"


def test_another_class_wins_over_kavips_annotation() -> None:
    """A Service with a loadBalancerClass of another controller is never changed."""
    foreign = build.service("shop/web", group="lb/edge", load_balancer_class="io.cilium/l2-announcer")
    assert Snapshot.from_objects([foreign]).group_of(foreign) is None


def test_a_plain_load_balancer_belongs_to_the_default_group_if_there_is_one() -> None:
    """The default group's label is the administrator's opt-in."""
    web = build.service("shop/web")
    snapshot = Snapshot.from_objects([web])
    assert snapshot.group_of(web) is None
    snapshot.put(build.group("lb/edge", default=True))
    assert snapshot.group_of(web) == "lb/edge"
    assert [service.key for service in snapshot.members("lb/edge")] == ["shop/web"]
    snapshot.drop(names.KEEPALIVED_GROUP, "lb/edge")
    assert not snapshot.members("lb/edge")


def test_of_two_default_groups_the_older_counts() -> None:
    """Two default groups can be created at the same moment."""
    older = build.group("lb/z", default=True, created="2026-01-01T00:00:00Z")
    younger = build.group("lb/a", default=True, created="2026-01-02T00:00:00Z")
    found = Snapshot.from_objects([younger, older]).default_group
    assert found is not None
    assert found.key == "lb/z"


def test_a_plain_service_outside_the_default_groups_namespaces_is_not_managed() -> None:
    """It is not managed, and not refused."""
    web = build.service("shop/web")
    selector = LabelSelector(match_labels={"team": "edge"})
    default = build.group("lb/edge", default=True, allowed_namespaces=selector)
    snapshot = Snapshot.from_objects([web, default, build.namespace("shop")])
    assert snapshot.group_of(web) is None
    snapshot.put(build.namespace("shop", team="edge"))
    assert snapshot.group_of(web) == "lb/edge"


def test_a_plain_service_with_a_foreign_address_is_not_adopted() -> None:
    """An address in status without kavip's condition was written by another controller."""
    foreign = build.service("shop/web", holds=["198.51.100.1"])
    snapshot = Snapshot.from_objects([foreign, build.group("lb/edge", default=True)])
    assert snapshot.group_of(foreign) is None


def test_a_service_with_kavips_class_and_without_a_group_is_managed() -> None:
    """It waits, and its condition names the cause."""
    web = build.service("shop/web", load_balancer_class=names.LOAD_BALANCER_CLASS)
    assert Snapshot.from_objects([web]).group_of(web) == ""


def test_the_order_of_objects_does_not_matter() -> None:
    """Shuffled input gives the same members."""
    objects: list[Object] = [build.service(f"shop/s{number}", group="lb/edge") for number in range(20)]
    objects += [
        build.service("shop/plain"),
        build.group("lb/edge", default=True),
        build.pool(),
        build.node("n1", "192.0.2.1"),
    ]
    expected = [service.key for service in Snapshot.from_objects(objects).members("lb/edge")]
    shuffled = random.Random(7)
    for _ in range(5):
        shuffled.shuffle(objects)
        assert [service.key for service in Snapshot.from_objects(objects).members("lb/edge")] == expected


def test_a_service_that_changes_its_group_leaves_the_old_one() -> None:
    """Indexes follow the object."""
    snapshot = Snapshot.from_objects([build.service("shop/web", group="lb/edge")])
    snapshot.put(build.service("shop/web", group="lb/lab"))
    assert not snapshot.members("lb/edge")
    assert [service.key for service in snapshot.members("lb/lab")] == ["shop/web"]


def test_nodes_are_picked_by_the_groups_selector() -> None:
    """An empty selector picks every node."""
    infra = build.node("n2", "192.0.2.2", labels={"role": "infra"})
    snapshot = Snapshot.from_objects([infra, build.node("n1", "192.0.2.1")])
    assert [node.metadata.name for node in snapshot.group_nodes(build.group())] == ["n1", "n2"]
    picked = snapshot.group_nodes(build.group(node_selector={"role": "infra"}))
    assert [node.metadata.name for node in picked] == ["n2"]


def test_groups_of_one_segment_are_neighbours() -> None:
    """A group without a segment has a segment of its own."""
    first, second = build.group("lb/a", segment="dmz"), build.group("lb/b", segment="dmz")
    lonely = build.group("lb/c")
    snapshot = Snapshot.from_objects([first, second, lonely])
    assert [group.key for group in snapshot.neighbours(first)] == ["lb/b"]
    assert snapshot.neighbours(lonely) == []


def test_a_plain_service_that_kavip_gave_an_address_stays_managed() -> None:
    """kavip's condition distinguishes the address from a foreign one."""
    held = build.service("shop/web", holds=["192.0.2.128"])
    ours = ServiceStatus(
        load_balancer=held.status.load_balancer,
        conditions=[Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status="True", reason="Assigned")],
    )
    web = type(held)(metadata=held.metadata, spec=held.spec, status=ours)
    assert Snapshot.from_objects([web, build.group("lb/edge", default=True)]).group_of(web) == "lb/edge"


def test_rejected_cidrs_are_read_as_the_platform_reads_them() -> None:
    """A CIDR with host bits set rejects its whole network. A malformed one is skipped."""
    rules = build.network(rejected_cidrs=["x", "192.0.2.130/29", "10.0.0.0/33", "192.0.2.0/255.255.255.0"])
    usage = Snapshot.from_objects([build.pool("edge", "192.0.2.128/28"), rules])
    (edge,) = usage.parsed_pools.in_force
    assert [str(span) for span in edge.usable] == ["192.0.2.136/29"]


def test_nodes_of_endpoints_are_those_that_kube_proxy_sends_to() -> None:
    """Nodes of ready endpoints in any slice of the Service; without any, nodes of serving endpoints that terminate."""
    first, second = build.endpoints("shop/web", "n1", draining=["n2"]), build.endpoints("shop/web", "n3")
    second = msgspec.structs.replace(second, metadata=msgspec.structs.replace(second.metadata, name="web-x2"))
    snapshot = Snapshot.from_objects([first, second, build.endpoints("shop/db", "n9")])
    assert snapshot.endpoint_nodes("shop/web") == {"n1", "n3"}
    snapshot.drop(names.ENDPOINT_SLICE, "shop/web-x2")
    assert snapshot.endpoint_nodes("shop/web") == {"n1"}
    snapshot.put(build.endpoints("shop/web", draining=["n2"]))
    assert snapshot.endpoint_nodes("shop/web") == {"n2"}
    snapshot.drop(names.ENDPOINT_SLICE, "shop/web-x1")
    assert snapshot.endpoint_nodes("shop/web") == set()


def test_an_endpoint_without_conditions_is_ready() -> None:
    """Absent conditions have the meaning of Kubernetes. An endpoint without a node counts for no node."""
    nameless = EndpointSlice(metadata=build.metadata("a/s"), endpoints=[Endpoint(node_name="n1"), Endpoint()])
    assert (nameless.ready_nodes, nameless.draining_nodes) == (frozenset({"n1"}), frozenset())
    ends = Endpoint(node_name="n2", conditions=EndpointConditions(ready=False, terminating=True))
    assert not ends.is_draining  # it does not serve any longer


def test_slices_are_watched_for_local_services_that_need_them() -> None:
    """
    Of managed Services without a health port or with spread VIPs, until they are deleted or no longer managed.
    """
    local: dict[str, Any] = {"external_traffic_policy": "Local", "group": "lb/edge", "external_ips": ["192.0.2.1"]}
    node_port = build.service("a/port", type="NodePort", **local)
    snapshot = Snapshot.from_objects(
        [
            *(node_port, build.service("a/inner", type="ClusterIP", **local), build.service("a/lb", **local)),
            build.service("a/spread", annotations={names.SPREAD_ANNOTATION: "true"}, **local),
            build.service("a/other", type="NodePort", **{**local, "group": ""}),
            build.service("a/cluster", type="NodePort", **{**local, "external_traffic_policy": "Cluster"}),
        ]
    )
    assert snapshot.followed == {"a/port", "a/inner", "a/spread"}
    snapshot.put(build.service("a/port", type="NodePort", **{**local, "external_traffic_policy": "Cluster"}))
    snapshot.drop(names.SERVICE, "a/inner")
    snapshot.drop(names.SERVICE, "a/spread")
    assert snapshot.followed == set()


def test_slices_are_watched_for_services_that_no_node_of_their_group_can_serve() -> None:
    """Their condition says so; the slices say which other nodes have an endpoint."""
    web = build.service("a/web", group="lb/edge", external_traffic_policy="Local")
    for reason, is_followed in (("Master", False), ("NoEndpoints", True), ("EndpointsOutsideGroup", True)):
        snapshot = Snapshot.from_objects([with_condition(web, names.ConditionType.ADVERTISED, "True", reason)])
        assert snapshot.followed == ({"a/web"} if is_followed else set())


def test_addresses_of_the_api_server_are_reserved() -> None:
    """In slices of any namespace. An address of a node belongs to the node, and a group may have it as a virtual IP."""
    snapshot = Snapshot.from_objects([build.endpoints("default/kubernetes", addresses=["192.0.2.1", "192.0.2.2"])])
    snapshot.put(build.node("n1", "192.0.2.2"))
    ledger = snapshot.ledger
    assert [ledger.owner(parse_address(f"192.0.2.{n}")) for n in (1, 2, 3)] == ["the API server", "Node n1", ""]
    snapshot.put(build.endpoints("default/kubernetes", addresses=["192.0.2.3"]))
    assert [ledger.owner(parse_address(f"192.0.2.{n}")) for n in (1, 2, 3)] == ["", "Node n1", "the API server"]
    snapshot.drop(names.ENDPOINT_SLICE, "default/kubernetes-x1")
    assert ledger.owner(parse_address("192.0.2.3")) == ""


def test_a_derived_value_is_computed_again_only_after_a_change() -> None:
    """A change of the Service or of the spec, and a deletion, count as changes."""
    snapshot = Snapshot.from_objects([build.group(), build.service("shop/web", group="lb/edge")])
    made: list[str] = []

    def make(service: Service) -> str:
        made.append(service.key)
        return service.key

    def ask() -> str:
        spec = snapshot.groups["lb/edge"].spec
        shares = snapshot.derived("lb/edge", spec, make, lambda _: "")
        return ",".join(shares.get("", ()))

    assert (ask(), ask(), len(made)) == ("shop/web", "shop/web", 1)
    snapshot.put(build.group(router_ids={"shop/web": 1}))  # a status of ours: another object, the same spec
    assert (ask(), len(made)) == ("shop/web", 1)
    snapshot.put(build.group(interface="eth1"))
    assert (ask(), len(made)) == ("shop/web", 2)
    snapshot.put(build.service("shop/web", group="lb/edge"))
    assert (ask(), len(made)) == ("shop/web", 3)
    snapshot.put(build.service("shop/api", group="lb/edge"))
    assert (ask(), len(made)) == ("shop/api,shop/web", 4)
    snapshot.drop(names.SERVICE, "shop/web")
    assert (ask(), len(made)) == ("shop/api", 4)


def test_the_memory_of_a_group_is_removed_with_it() -> None:
    """Each existing group has its own, in any namespace. An unknown group has none."""
    snapshot = Snapshot.from_objects(
        [build.group("lb/edge"), build.group("lb/core"), build.group("shop/theirs")], group_namespaces=["lb"]
    )
    memories = [snapshot.memory(key) for key in ("lb/edge", "lb/core", "shop/theirs")]
    assert memories == [snapshot.memory(key) for key in ("lb/edge", "lb/core", "shop/theirs")]
    assert len(set(map(id, [*memories, KEEPS_NOTHING]))) == 4
    assert snapshot.memory("lb/gone") is KEEPS_NOTHING
    for key in ("lb/edge", "shop/theirs"):
        snapshot.drop(names.KEEPALIVED_GROUP, key)
        assert snapshot.memory(key) is KEEPS_NOTHING
    snapshot.put(build.group("lb/edge"))
    assert snapshot.memory("lb/edge") not in memories


HOLDER = build.service("shop/web", holds=["192.0.2.128"], created="2025-01-01T00:00:00Z")
YOUNGER = build.service("shop/api", holds=["192.0.2.128"])
COOLING = Cooling(address="192.0.2.129", service="shop/old", until="2026-03-01T12:00:00Z")
WRITTEN = msgspec.structs.replace(build.pool(cooldown_seconds=60), status=PoolStatus(cooling=[COOLING]))
EVENTS: tuple[Object, ...] = (
    WRITTEN,
    build.pool("lab", "192.0.2.128/30", created="2026-02-01T00:00:00Z"),  # overlaps edge, which is older
    build.network(rejected_cidrs=["192.0.2.130/32"]),
    HOLDER,
    YOUNGER,
    build.node("n1", "192.0.2.131"),
)
CLUSTER: tuple[Object, ...] = (
    build.pool(),
    build.service_range("192.0.2.128/31"),
    build.node("n1", "10.0.0.1", pod_cidrs=["192.0.2.132/31", "2001:db8::/64"]),
    build.node("n2", "192.0.2.143", pod_cidrs=["192.0.2.136/29"]),  # its pods cannot be in a range with a node in it
    build.endpoints("default/kubernetes", addresses=["192.0.2.130"]),
)


@pytest.mark.parametrize("events", list(permutations(EVENTS, 6))[::7])
def test_pools_and_ledger_agree_after_each_event_in_any_order(events: tuple[Object, ...]) -> None:
    """After each event the ledger counts over the parsed pools, and the result does not depend on the order."""
    snapshot = Snapshot()
    for each in events:
        snapshot.put(each)
        assert (
            snapshot.parsed_pools.in_force
            == Pools.of(snapshot.pools.values(), barred=rejected_ranges(snapshot.network)).in_force
        )
        assert [bool(snapshot.ledger.usage(name)) for name in snapshot.pools] == [
            snapshot.parsed_pools.get(name) is not None for name in snapshot.pools
        ]
    for same in (snapshot, Snapshot.from_objects(events), Snapshot.from_objects(reversed(events))):
        assert list(same.parsed_pools.problems) == ["lab"]
        assert same.ledger.usage("edge") == {4: (15, 1, 12, 1)}  # one kept back for the node
        assert [terms.key for terms in same.ledger.claims.holders(parse_address("192.0.2.128"))] == ["shop/web"]
        assert [str(each.address) for each in same.ledger.cooldown.of("edge")] == ["192.0.2.129"]
        found = settle(build.service("shop/new"), same.parsed_pools, same.ledger)
        assert isinstance(found, Allocation) and [str(each) for each in found.addresses] == ["192.0.2.132"]
    snapshot.drop(names.VIP_POOL, "edge")
    assert [pool.name for pool in snapshot.parsed_pools.in_force] == ["lab"]
    assert snapshot.ledger.usage("lab")[4].assigned == 1
    snapshot.drop(names.NETWORK, "cluster")
    assert snapshot.ledger.usage("lab")[4].total == 4


@pytest.mark.parametrize("events", list(permutations(CLUSTER))[::5])
def test_the_clusters_own_addresses_are_never_given_whatever_the_order_of_events(events: tuple[Object, ...]) -> None:
    """Service ranges, nodes and the API server keep their addresses; without them the pool has all."""
    snapshot = Snapshot()
    for each in events:
        snapshot.put(each)
    for same in (snapshot, Snapshot.from_objects(events), Snapshot.from_objects(reversed(events))):
        assert same.ledger.usage("edge") == {4: (14, 0, 12, 0)}  # two kept back
        found = settle(build.service("shop/new"), same.parsed_pools, same.ledger)
        assert isinstance(found, Allocation) and [str(each) for each in found.addresses] == ["192.0.2.131"]
    for gone in (names.SERVICE_CIDR, names.NODE, names.ENDPOINT_SLICE):
        for key in ("kubernetes", "n1", "n2", "default/kubernetes-x1"):
            snapshot.drop(gone, key)
    assert snapshot.ledger.usage("edge") == {4: (16, 0, 16, 0)}


def test_a_host_name_that_is_an_address_is_kept_back() -> None:
    """All of ``Node.status.addresses`` belong to the node."""
    snapshot = Snapshot.from_objects([build.pool(), build.node("n1", "192.0.2.128", kind="Hostname")])
    found = settle(build.service("shop/new"), snapshot.parsed_pools, snapshot.ledger)
    assert isinstance(found, Allocation) and [str(each) for each in found.addresses] == ["192.0.2.129"]


@given(
    claims=st.lists(
        st.tuples(
            st.sampled_from(["n1", "n2", "n3"]),
            st.lists(st.sampled_from(["192.0.2.128/25", "192.0.2.132/30", "0.0.0.0/0", "2001:db8::/32", "x"])),
        ),
        max_size=6,
    ),
    at=st.integers(0, 6),
)
def test_pod_ranges_that_nodes_claim_change_no_decision(claims: list[tuple[str, list[str]]], at: int) -> None:
    """NodeRestriction lets a kubelet set its own, once: otherwise one taken node stops every pool."""
    held = build.service("shop/web", holds=["192.0.2.133"])
    nodes: list[Object] = [build.node(name, "10.0.0.1", pod_cidrs=ranges) for name, ranges in claims]
    nodes.insert(at, build.pool())
    snapshot = Snapshot.from_objects([held])
    for each in nodes:
        snapshot.put(each)
    for service, address in ((held, "192.0.2.133"), (build.service("shop/new"), "192.0.2.128")):
        found = settle(service, snapshot.parsed_pools, snapshot.ledger)
        assert isinstance(found, Allocation) and [str(each) for each in found.addresses] == [address]
        assert found.reason is Reason.ASSIGNED
    edge = snapshot.parsed_pools.in_force[0]
    same = Snapshot.from_objects([*snapshot.nodes.values(), *snapshot.pools.values()])
    assert (
        same.pod_ranges.in_pool(edge) == snapshot.pod_ranges.in_pool(edge) == same.pod_ranges.overlapping(edge.ranges)
    )


def configurations(monkeypatch: pytest.MonkeyPatch) -> list[Pools]:
    """The pools that ledgers get from now on."""
    found: list[Pools] = []

    def configure(_: Ledger, pools: Pools) -> frozenset[str]:
        found.append(pools)
        return frozenset()

    monkeypatch.setattr(Ledger, "configure", configure)
    return found


def test_a_node_that_joins_parses_no_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pod ranges take nothing from a pool."""
    snapshot = Snapshot.from_objects([build.pool(), build.node("n0", "10.0.0.9", pod_cidrs=["10.244.0.0/24"])])
    configured = configurations(monkeypatch)
    for number in range(1, 50):
        snapshot.put(build.node(f"n{number}", f"10.0.1.{number}", pod_cidrs=[f"10.244.{number}.0/24"]))
    snapshot.put(build.node("n50", "10.0.1.50", pod_cidrs=["192.0.2.128/30"]))
    assert configured == []


def test_a_list_of_pools_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a list does not grow with the square of its length."""
    configured = configurations(monkeypatch)
    pools = [build.pool(f"p{number}", f"10.0.{number}.0/24") for number in range(50)]
    Snapshot.from_objects([*pools, build.service("shop/web")])
    assert len(configured) == 1
