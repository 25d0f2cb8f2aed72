"""
Services as release 0.1.0 left them: an upgrade moves no address, loses none, and takes none for foreign.

``released/0.1.0.json`` holds literal Services with every message that release 0.1.0 wrote, the pools, and what that
release decides next (*futures*): with other pools, and after another controller has taken the addresses out of status.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from kavip import names
from kavip.api.pool import VIPPool
from kavip.api.service import LoadBalancer, Service
from kavip.ipam.allocate import Allocation, settle
from kavip.ipam.record import read_record
from kavip.names import Reason
from kavip.snapshot import Snapshot
from tests.support.build import group

Json = Mapping[str, Any]

RELEASED: Final = json.loads((Path(__file__).parent / "released" / "0.1.0.json").read_text())
CLUSTERS: Final = {each["title"]: each for each in RELEASED["clusters"]}


def services_of(cluster: Json) -> list[Service]:
    """The Services of *cluster*, as the release wrote them."""
    return [msgspec.convert(each, Service) for each in cluster["services"]]


def emptied(service: Service) -> Service:
    """*service* after another controller has taken the addresses out of its status."""
    return msgspec.structs.replace(
        service, status=msgspec.structs.replace(service.status, load_balancer=LoadBalancer())
    )


def futures() -> Iterator[Any]:
    """Each cluster with each of its futures."""
    for title, cluster in CLUSTERS.items():
        for future in cluster["futures"]:
            yield pytest.param(cluster, future, id=f"{title}, {future['title']}")


@pytest.mark.parametrize(("cluster", "future"), list(futures()))
def test_an_upgrade_decides_as_the_release_did(cluster: Json, future: Json) -> None:
    """Every Service has the same addresses for the same reason, whatever happens to the pools and to its status."""
    services = [emptied(each) if future["emptied"] else each for each in services_of(cluster)]
    pools = [msgspec.convert(cluster["pools"][name], VIPPool) for name in future["pools"]]
    snapshot = Snapshot.from_objects([group(default=True), *services, *pools])
    for service in services:
        pools_ = snapshot.parsed_pools
        found = settle(service, pools_, snapshot.ledger, group=snapshot.group_of(service))
        addresses = [str(each) for each in found.addresses] if isinstance(found, Allocation) else []
        assert {"addresses": addresses, "reason": found.reason} == future["decided"][service.key], service.key


@pytest.mark.parametrize("cluster", list(CLUSTERS.values()), ids=list(CLUSTERS))
def test_every_record_of_the_release_is_read(cluster: Json) -> None:
    """Each address that the release assigned is recorded; where it counted the rest, those that it named."""
    for service in services_of(cluster):
        record = read_record(service)
        is_foreign = record.reason in (Reason.FOREIGN_STATUS, Reason.LEFT_TO_PLATFORM)
        assert record.addresses == (() if is_foreign else service.ingress_addresses[:5]), service.key


@pytest.mark.parametrize("cluster", list(CLUSTERS.values()), ids=list(CLUSTERS))
def test_an_upgrade_rewrites_no_service_that_has_all_its_addresses(cluster: Json) -> None:
    """The message of reason Assigned is the same, unless addresses or a family are missing in it."""
    future = cluster["futures"][0]
    pools = [msgspec.convert(cluster["pools"][name], VIPPool) for name in future["pools"]]
    snapshot = Snapshot.from_objects([group(default=True), *services_of(cluster), *pools])
    for service in snapshot.services.values():
        (condition,) = (
            each for each in service.status.conditions or () if each.type == names.ConditionType.ADDRESS_ASSIGNED
        )
        is_whole = len(service.spec.ip_families or ()) <= len(service.ingress_addresses) < 6
        if condition.reason == Reason.ASSIGNED and is_whole:
            found = settle(service, snapshot.parsed_pools, snapshot.ledger, group=snapshot.group_of(service))
            assert found.message == condition.message


def test_the_release_wrote_every_kind_of_record() -> None:
    """The fixtures hold each reason that names addresses, one and two families, and more than five addresses."""
    every = [each for cluster in CLUSTERS.values() for each in services_of(cluster)]
    assert {Reason.ASSIGNED, Reason.STRANDED, Reason.FOREIGN_STATUS, Reason.LEFT_TO_PLATFORM} <= {
        read_record(each).reason for each in every
    }
    refused = [each for each in every if read_record(each).message.rpartition("; keeps ")[1]]
    assert {read_record(each).reason for each in refused} >= {
        Reason.ADDRESS_IN_USE,
        Reason.INVALID_REQUEST,
        Reason.POOL_NOT_FOUND,
        Reason.FAMILY_NOT_AVAILABLE,
    }
    assert {len(each.ingress_addresses) for each in every} >= {0, 1, 2, 3, 7}
