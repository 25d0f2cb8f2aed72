"""kavip keeps the group that it chose for a Service that names none, while that group exists and serves the Service."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api import conditions
from kavip.api.meta import LabelSelector
from kavip.api.service import Service
from kavip.ipam.record import Record, read_record
from kavip.names import Reason
from kavip.reconcile.plan import Key, KeyKind
from kavip.snapshot import Object, Snapshot
from tests.reconcile.simulatedcluster import GROUP, SimulatedCluster
from tests.support import build

WEB = Key(KeyKind.SERVICE, "shop/web")
OTHER = "lb/other"
SHARED = {names.SHARING_KEY_ANNOTATION: "web"}
KINDS: dict[str, dict[str, Any]] = {"plain": {}, "of kavip's class": {"load_balancer_class": names.LOAD_BALANCER_CLASS}}


def settled(*services: Service) -> SimulatedCluster:
    """A cluster in which the default group serves *services*."""
    objects: tuple[Object, ...] = (build.group(GROUP, default=True), build.pool(), build.namespace("shop"))
    simulation = SimulatedCluster(Snapshot.from_objects([*objects, *services]))
    simulation.settle(*(Key(KeyKind.SERVICE, each.key) for each in services))
    return simulation


def stored(simulation: SimulatedCluster, key: str = "shop/web") -> Service:
    """The Service as it is stored."""
    return simulation.snapshot.services[key]


def restarted(simulation: SimulatedCluster) -> Snapshot:
    """What another replica reads from the API server."""
    every = (
        simulation.snapshot.groups,
        simulation.snapshot.pools,
        simulation.snapshot.namespaces,
        simulation.snapshot.services,
    )
    return Snapshot.from_objects([each for some in every for each in some.values()])


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_default_group_moves_no_service(kind: str) -> None:
    """The choice is stored in the condition, so it survives a restart; the Service itself gets no annotation."""
    simulation = settled(build.service("shop/web", **KINDS[kind]))
    assert read_record(stored(simulation)).group == GROUP
    assert stored(simulation).metadata.annotations is None
    simulation.snapshot.put(build.group(GROUP))
    simulation.snapshot.put(build.group(OTHER, default=True))
    simulation.settle(WEB)
    for snapshot in (simulation.snapshot, restarted(simulation)):
        assert snapshot.group_of(stored(simulation)) == GROUP
        assert [each.key for each in snapshot.members(GROUP)] == ["shop/web"]
        assert snapshot.members(OTHER) == ()
        assert snapshot.group_of(build.service("shop/new")) == OTHER


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["deleted", "closed to the namespace"])
def test_a_new_default_group_adopts_a_service_that_its_group_no_longer_serves(kind: str, how: str) -> None:
    """The Service keeps its address; the new choice is recorded."""
    simulation = settled(build.service("shop/web", **KINDS[kind]))
    before = stored(simulation).ingress_addresses
    simulation.snapshot.put(build.group(OTHER, default=True, created="2026-02-01T00:00:00Z"))
    if how == "deleted":
        simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    else:
        closed = LabelSelector(match_labels={"env": "prod"})
        simulation.snapshot.put(build.group(GROUP, default=True, allowed_namespaces=closed))
        simulation.snapshot.put(build.group(GROUP, allowed_namespaces=closed))
    simulation.settle(WEB)
    assert (read_record(stored(simulation)).group, stored(simulation).ingress_addresses) == (OTHER, before)
    assert [each.key for each in simulation.snapshot.members(OTHER)] == ["shop/web"]
    assert simulation.snapshot.members(GROUP) == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_that_is_replaced_costs_no_address(kind: str) -> None:
    """Between the deletion and the creation the Service keeps its address and says which group it waits for."""
    simulation = settled(build.service("shop/web", **KINDS[kind]))
    before = stored(simulation).ingress_addresses
    simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    simulation.settle(WEB)
    assert stored(simulation).ingress_addresses == before != ()
    programmed = conditions.find(stored(simulation).status.conditions, names.ConditionType.SERVICE_PROGRAMMED)
    assert programmed is not None and programmed.reason == Reason.GROUP_NOT_FOUND
    simulation.snapshot.put(build.group(GROUP))
    simulation.settle(WEB)
    assert stored(simulation).ingress_addresses == before
    assert [each.key for each in simulation.snapshot.members(GROUP)] == ["shop/web"]


def test_a_service_that_stops_being_managed_loses_what_kavip_wrote() -> None:
    """Address and conditions go in one write, the record with them."""
    simulation = settled(build.service("shop/web"))
    spec = msgspec.structs.replace(stored(simulation).spec, type="ClusterIP")
    simulation.snapshot.put(msgspec.structs.replace(stored(simulation), spec=spec))
    simulation.settle(WEB)
    assert (stored(simulation).ingress_addresses, stored(simulation).status.conditions or []) == ((), [])


def test_services_that_share_an_address_keep_it_when_the_default_group_changes() -> None:
    """Both keep their group; when it is deleted, the new default group adopts both together."""
    simulation = settled(
        build.service("shop/a", annotations=SHARED, port=80), build.service("shop/b", annotations=SHARED, port=81)
    )
    held = stored(simulation, "shop/a").ingress_addresses
    keys = [Key(KeyKind.SERVICE, key) for key in ("shop/a", "shop/b")]
    simulation.snapshot.put(build.group(GROUP))
    simulation.snapshot.put(build.group(OTHER, default=True))
    simulation.settle(*keys)
    assert stored(simulation, "shop/b").ingress_addresses == held
    simulation.snapshot.drop(names.KEEPALIVED_GROUP, GROUP)
    for key in keys:  # one after the other, each with all writes of the other seen
        simulation.settle(key)
        assert [stored(simulation, each.name).ingress_addresses for each in keys] == [held, held]


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (Reason.ASSIGNED, "192.0.2.130 from pool edge"),
        (Reason.ASSIGNED, "192.0.2.130 from pool edge; no IPv6 address yet: pool edge has none to give"),
        (Reason.STRANDED, "keeps 192.0.2.130, although 192.0.2.130 is in no pool"),
        (Reason.ADDRESS_IN_USE, "address 192.0.2.135 is used by Service z/a; keeps 192.0.2.130"),
    ],
)
def test_the_record_of_the_group_leaves_the_record_of_the_addresses_as_it_was(reason: Reason, message: str) -> None:
    """Both are read back, whatever the reason."""
    both = Record(reason, Record(reason, message).with_group("lb/edge"))
    assert both.addresses == Record(reason, message).addresses != ()
    assert (both.group, Record(reason, message).group) == ("lb/edge", "")


def test_the_group_survives_a_message_that_is_too_long() -> None:
    """A user's text does not push the record out of the condition."""
    message = Record(Reason.INVALID_REQUEST, "x" * 9_000).with_group("lb/edge")
    assert Record(Reason.INVALID_REQUEST, message[:8_000]).group == "lb/edge"


def test_a_service_that_names_a_group_has_no_record() -> None:
    """A quoted text that looks like one is not followed."""
    forged = Record(Reason.NO_POOL, "x").with_group(OTHER)
    named = msgspec.structs.replace(build.service("shop/web", group=GROUP))
    simulation = settled(named)
    assert read_record(stored(simulation)).group == ""
    assert Record(Reason.NO_POOL, forged).group == OTHER
