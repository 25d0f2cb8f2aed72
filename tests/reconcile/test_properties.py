"""Properties of all clusters: plans become empty, no address has two holders, and the text does not depend on order."""

import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.group import Instances
from kavip.api.service import Service
from kavip.reconcile.plan import Key, KeyKind
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster, agent_states, cluster, running
from tests.support import build
from tests.support.examples import examples

_FAMILIES = (("IPv4",), ("IPv6",), ("IPv4", "IPv6"), ("IPv6", "IPv4"))
_POLICIES = ("SingleStack", "PreferDualStack", "RequireDualStack")


@st.composite
def services(draw: st.DrawFn) -> list[Service]:
    """A few Services of one group with random requests."""
    result = []
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("LoadBalancer", "ClusterIP")))
        annotations = {"keepalived-operator.redhat-cop.io/spreadvips": "true"} if draw(st.booleans()) else None
        service = build.service(
            f"shop/s{number}",
            group=GROUP,
            type=kind,
            wants=draw(st.sampled_from(("", "", "192.0.2.129", "2001:db8::1"))) if kind == "LoadBalancer" else "",
            external_ips=[f"198.51.100.{draw(st.integers(1, 4))}"] if kind == "ClusterIP" else None,
            families=draw(st.sampled_from(_FAMILIES)),
            ip_family_policy=draw(st.sampled_from(_POLICIES)),
            created=f"2026-01-{draw(st.integers(1, 9)):02}T00:00:00Z",
            annotations=annotations,
        )
        result.append(service)
    return result


def simulation_of(found: list[Service], *, shared: bool) -> SimulatedCluster:
    """The Services in a cluster with one group and one small pool."""
    instances = Instances(mode="Shared", count=3) if shared else Instances()
    pool = build.pool("edge", "192.0.2.128/30", "2001:db8::/126")
    return SimulatedCluster(cluster(*found, build.group(instances=instances), pool, nodes=3))


@pytest.mark.slow
@examples(60, deadline=None)
@given(services(), st.booleans(), st.randoms(use_true_random=False))
def test_plans_come_to_rest_and_no_address_has_two_holders(
    found: list[Service], shared: bool, luck: random.Random
) -> None:
    """In any order of work, every plan becomes empty, and each address of the pool has one holder."""
    simulation = simulation_of(found, shared=shared)
    keys = [Key(KeyKind.SERVICE, service.key) for service in found] + [
        Key(KeyKind.GROUP, GROUP),
        Key(KeyKind.POOL, "edge"),
    ]
    luck.shuffle(keys)
    simulation.settle(*keys)
    held = Counter(str(each) for service in simulation.snapshot.services.values() for each in service.ingress_addresses)
    assert not [address for address, count in held.items() if count > 1]
    lines = [line.strip() for line in simulation.text().splitlines() if " dev " in line]
    assert len({line.split("/")[0] for line in lines}) == len(lines), "an address is in two instances"
    for address in held:
        assert any(line.startswith(f"{address}/") for line in lines)


@pytest.mark.slow
@examples(30, deadline=None)
@given(services(), st.booleans())
def test_services_are_programmed_exactly_when_their_vips_run(found: list[Service], shared: bool) -> None:
    """If every node runs every VIP of the text, no Service with a VIP is pending."""
    simulation = simulation_of(found, shared=shared)
    keys = [Key(KeyKind.SERVICE, service.key) for service in found] + [Key(KeyKind.GROUP, GROUP)]
    simulation.settle(*keys)
    vips = [line.strip().split("/")[0] for line in simulation.text().splitlines() if " dev " in line]
    config_hash = simulation.snapshot.groups[GROUP].status.config_hash
    simulation.agents = agent_states(**{f"n{number}": running(config_hash, *vips) for number in (1, 2, 3)})
    simulation.settle(*keys)
    for service in simulation.snapshot.services.values():
        status, _ = simulation.condition(service.key, "kavip.io/Programmed") or ("", "")
        assert status == ("True" if service.virtual_ips else "False")


@examples(30, deadline=None)
@given(services(), st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_vrids_stay_through_comings_and_goings(found: list[Service], steps: list[int]) -> None:
    """A Service keeps its VRID while other Services are created and deleted."""
    simulation = SimulatedCluster(cluster(build.group(), nodes=2))
    history = []
    for step in steps:
        service = found[step % len(found)]
        if service.key in simulation.snapshot.services:
            simulation.snapshot.drop("Service", service.key)
        else:
            simulation.snapshot.put(service)
        simulation.settle(Key(KeyKind.GROUP, GROUP))
        history.append(dict(simulation.snapshot.groups[GROUP].status.router_ids or {}))
    for before, after in pairwise(history):
        stayed = before.keys() & after.keys()
        assert {key: before[key] for key in stayed} == {key: after[key] for key in stayed}
        assert len(set(after.values())) == len(after)
