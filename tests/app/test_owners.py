"""The address of a real API server: pools skip it, no Service gets it by name, and explain reports the reason."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, object_of, wait_for

pytestmark = pytest.mark.apiserver

WANTS = {"kavip.io/addresses": "192.0.2.128", "keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"}
CIDRS = "--output=jsonpath={.spec.cidrs[0]}"


@pytest.fixture(autouse=True)
def move_away(installation: Installation) -> Iterator[None]:
    """Remove the API server from the address again."""
    yield
    installation.plane.kubectl("delete", "endpointslice", "others", "--namespace=default", "--ignore-not-found")


def where(*addresses: str) -> dict[str, Any]:
    """Create another slice of default/kubernetes: the API server's own must not have a loopback address."""
    found = object_of("EndpointSlice", "others", namespace="default", version="discovery.k8s.io/v1")
    found["metadata"]["labels"] = {"kubernetes.io/service-name": "kubernetes"}
    return {**found, "addressType": "IPv4", "endpoints": [{"addresses": [each]} for each in addresses]}


def test_the_address_of_the_api_server_is_reserved(installation: Installation) -> None:
    """It is skipped, counted as kept, refused by name, and free once the API server has another address."""
    installation.apply(a_group("edge", default=True), a_pool("edge", "192.0.2.128/31"), where("192.0.2.128"))
    installation.start()
    installation.apply(a_service("one"), a_service("two"))
    wait_for("the next address is given", lambda: installation.addresses("one") == ["192.0.2.129"])
    wait_for("the other waits", lambda: installation.condition("two", "kavip.io/AddressAssigned"))
    message = installation.condition("two", "kavip.io/AddressAssigned")["message"]
    assert "1 of 2 assigned, 1 kept back (reservations, nodes, groups, API server)" in message
    wait_for("the pool counts it", lambda: numbers(installation) == {"total": 2, "assigned": 1, "available": 0})
    refused = installation.try_apply(a_service("asks", annotations=WANTS))
    assert "address 192.0.2.128 is an address of the API server; ask for another" in refused.stderr
    installation.apply(where("192.0.2.77"))
    wait_for("the waiting Service has the address", lambda: installation.addresses("two") == ["192.0.2.128"])


def test_only_slices_that_matter_are_read(installation: Installation) -> None:
    """By their labels: the API server's, and those of Services whose VIPs follow endpoints, while they do."""
    installation.plane.audit.mark()
    installation.apply(a_group("edge"))
    installation.start("--external-ips-scope=off")
    local = a_service("followed", annotations={"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"})
    local["spec"] = {
        "type": "NodePort",
        "ports": [{"port": 80}],
        "externalIPs": ["192.0.2.140"],
        "externalTrafficPolicy": "Local",
    }
    installation.apply(local)

    def selectors() -> set[str]:
        own = {"system:apiserver", "system:kube-controller-manager"}
        begun = {"list": "ResponseComplete", "watch": "ResponseStarted"}  # a previous watch may end now
        events = [each for each in installation.plane.audit if begun.get(each.verb) == each.stage]
        requested = [each.uri for each in events if "/endpointslices?" in each.uri and each.user not in own]
        return {uri.partition("labelSelector=")[2].partition("&")[0] for uri in requested}

    wait_for("its slices are read", lambda: any("followed" in each for each in selectors()))
    names = {
        "kubernetes.io%2Fservice-name+in+%28kubernetes%29",
        "kubernetes.io%2Fservice-name+in+%28followed%2Ckubernetes%29",
    }
    assert {each for each in selectors() if "kavip" not in each} == names


def test_a_pool_in_the_service_range_is_a_warning(installation: Installation) -> None:
    """If the API server publishes its Service range."""
    installation.start()
    cidr = installation.plane.kubectl("get", "servicecidr", "kubernetes", CIDRS).stdout
    first = cidr.partition("/")[0]
    done = installation.try_apply(a_pool("inside", f"{first}/32"))
    assert done.returncode == 0, done.stderr
    assert f"{first} is in the cluster's Service range {cidr} (ServiceCIDR kubernetes)" in done.stderr


def numbers(installation: Installation) -> dict[str, int]:
    """The IPv4 numbers of the pool's status."""
    found: dict[str, int] = (installation.get("vippool", "edge") or {}).get("status", {}).get("ipv4", {})
    return found
