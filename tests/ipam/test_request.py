"""The requests of Services."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.meta import Condition
from kavip.api.service import Ingress, LoadBalancer, Protocol, Service, ServicePort, ServiceStatus
from kavip.ipam.annotations import REGISTRY, remarks
from kavip.ipam.request import Request, read_request
from kavip.names import Reason
from tests.support.build import service


def request(key: str = "shop/web", **more: Any) -> Request:
    """The request of a Service that is well formed."""
    found, findings = read_request(service(key, **more))
    assert not findings
    return found


def texts(found: Request) -> list[str]:
    """The addresses that are wanted."""
    return [str(address) for address in found.wanted]


def test_both_ways_to_ask_for_an_address_are_read() -> None:
    """The annotation and spec.loadBalancerIP have the same address, or addresses of different families."""
    dual = ("IPv4", "IPv6")
    assert texts(request(wants="192.0.2.1", load_balancer_ip="192.0.2.1")) == ["192.0.2.1"]
    both = request(families=dual, wants="2001:DB8::1", load_balancer_ip="192.0.2.1")
    assert texts(both) == ["2001:db8::1", "192.0.2.1"]
    assert [both.field_of(address) for address in both.wanted] == [
        "metadata.annotations[kavip.io/addresses]",
        "spec.loadBalancerIP",
    ]


@pytest.mark.parametrize(
    ("more", "reason", "message"),
    [
        ({"wants": "192.0.2.1", "load_balancer_ip": "192.0.2.2"}, Reason.INVALID_REQUEST, "192.0.2.1 contradicts"),
        ({"wants": "192.0.2.1,"}, Reason.INVALID_REQUEST, "has an empty item"),
        ({"wants": "192.0.2.1, 192.0.2.2"}, Reason.INVALID_REQUEST, "at most one per family"),
        ({"wants": "192.0.2.0/24"}, Reason.INVALID_REQUEST, "want one IPv4 or IPv6 address"),
        ({"load_balancer_ip": "fe80::1%eth0"}, Reason.INVALID_REQUEST, "without a zone"),
        ({"wants": "2001:db8::1"}, Reason.FAMILY_NOT_AVAILABLE, "is IPv6, but the Service has only IPv4"),
        ({"ip_family_policy": "RequireDualStack"}, Reason.FAMILY_NOT_AVAILABLE, "give it both families"),
        ({"pool": "Edge!"}, Reason.INVALID_REQUEST, "want the name of a VIPPool"),
        ({"group": "edge"}, Reason.INVALID_REQUEST, "want <namespace>/<name>"),
        ({"annotations": {names.REASSIGN_ANNOTATION: "yes"}}, Reason.INVALID_REQUEST, 'want "true" or "false"'),
        ({"annotations": {names.SHARING_KEY_ANNOTATION: "a\x1bb"}}, Reason.INVALID_REQUEST, "printable"),
    ],
)
def test_a_malformed_request_is_refused(more: dict[str, Any], reason: Reason, message: str) -> None:
    """Each malformed request is reported with field, value and remedy."""
    _, (found, *_) = read_request(service("shop/web", **more))
    assert found.reason is reason
    assert message in found.message
    assert found.field in found.message


def test_all_findings_are_reported_at_once_and_the_rest_is_read() -> None:
    """One malformed annotation hides neither another one nor the valid ones."""
    broken = service("shop/web", pool="Edge!", wants="nonsense", labels={"app": "web"}, group="lb/edge")
    found, findings = read_request(broken)
    assert [finding.field for finding in findings] == [
        "metadata.annotations[kavip.io/addresses]",
        "metadata.annotations[kavip.io/pool]",
    ]
    assert (found.group, found.pool, found.labels) == ("lb/edge", "", {"app": "web"})


@pytest.mark.parametrize(
    ("spec", "families"),
    [
        ({"families": ("IPv6", "IPv4")}, (6, 4)),
        ({"families": (), "cluster_ips": ["2001:db8::5", "10.0.0.5"]}, (6, 4)),
        ({"families": (), "cluster_ip": "None"}, (4,)),
        ({"families": (), "ip_family_policy": "PreferDualStack"}, (4, 6)),
        ({"families": (), "wants": "2001:db8::1"}, (6,)),
        ({"families": ()}, (4,)),
    ],
)
def test_families_are_those_of_the_service(spec: dict[str, Any], families: tuple[int, ...]) -> None:
    """They come from ipFamilies, in that order. A manifest that no API server has stored may lack them."""
    assert request(**spec).families == families


def test_empty_annotations_count_as_absent() -> None:
    """An empty value requests nothing, and gets a warning."""
    empty = service("shop/web", annotations={names.POOL_ANNOTATION: " ", names.ADDRESSES_ANNOTATION: ""})
    assert not read_request(empty)[1]
    assert remarks(empty.metadata.annotations) == (
        "metadata.annotations[kavip.io/addresses]: is empty and counts as absent; remove it",
        "metadata.annotations[kavip.io/pool]: is empty and counts as absent; remove it",
    )


def test_unknown_keys_are_reported_with_the_nearest_known_one() -> None:
    """An unknown key under kavip.io/ is reported, and no other key is."""
    found = remarks({"kavip.io/adresses": "192.0.2.1", "example.com/kavip": "x", names.SPREAD_ANNOTATION: "true"})
    assert found == (
        "metadata.annotations[kavip.io/adresses]: kavip does not know this key; did you mean kavip.io/addresses?",
    )
    assert len(remarks({f"kavip.io/{'x' * 300}": ""})[0]) < 256
    assert len(remarks({f"kavip.io/{number}": "" for number in range(1000)})) == 16


def test_the_registry_describes_every_annotation_of_services() -> None:
    """Each annotation that kavip reads on Services is in the table once, with its meaning."""
    keys = [annotation.key for annotation in REGISTRY]
    assert set(keys) <= set(names.SERVICE_ANNOTATIONS)
    assert len(set(keys)) == len(keys)
    assert all(annotation.doc for annotation in REGISTRY)


def test_status_is_read_with_its_writer() -> None:
    """Addresses, host names and kavip's own condition are distinguished."""
    condition = Condition(type=names.ConditionType.ADDRESS_ASSIGNED, status="True", reason="Assigned")
    ingress = [Ingress(ip="192.0.2.9"), Ingress(hostname="lb.example.com")]
    status = ServiceStatus(load_balancer=LoadBalancer(ingress=ingress), conditions=[condition])
    base = service("shop/web")
    found, _ = read_request(Service(metadata=base.metadata, spec=base.spec, status=status))
    assert ([str(address) for address in found.current], found.alien, found.record.reason) == (
        ["192.0.2.9"],
        True,
        "Assigned",
    )


def test_ports_are_kept_only_to_share_an_address() -> None:
    """A Service may have ten thousands of them."""
    ports = [ServicePort(port=number) for number in range(1, 1001)]
    alone, _ = read_request(service("shop/web", group="lb/edge", ports=ports))
    shared, _ = read_request(
        service("shop/web", group="lb/edge", ports=ports, annotations={names.SHARING_KEY_ANNOTATION: "x"})
    )
    assert (len(alone.terms.ports), len(shared.terms.ports)) == (0, 1000)


def test_protocols_are_one_object_each() -> None:
    """Those of a later API are no error."""
    found = msgspec.json.decode(b'[{"protocol":"UDP","port":1},{"protocol":"QUIC"}]', type=list[ServicePort])
    assert [each.protocol for each in found] == [Protocol.UDP, Protocol.OTHER]
