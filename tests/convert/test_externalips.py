"""Services with external IPs become LoadBalancer Services: the patches, in their order, and what prevents them."""

from typing import Any

import pytest

from kavip import names
from kavip.api.meta import Condition
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.convert.externalips import WITHOUT, Conversion, conversion_of, next_step, sharing_keys, sharing_step
from kavip.convert.steps import Done, Stop, Wait, Write, after
from kavip.names import ConditionType, Reason
from tests.support import build

VIP, OTHER, SIXTH = "192.0.2.130", "192.0.2.131", "2001:db8::7"
LOAD_BALANCER = {"type": "LoadBalancer", "loadBalancerClass": names.LOAD_BALANCER_CLASS}


def external(*addresses: str, key: str = "shop/web", **more: Any) -> Service:
    """A ClusterIP Service of the group lb/edge with these external IPs."""
    return build.service(key, external_ips=list(addresses), **{"group": "lb/edge", "type": "ClusterIP", **more})


def assigned(service: Service, *addresses: str, status: str = "True", message: str = "") -> Service:
    """*service* after kavip has written *addresses*."""
    condition = Condition(
        type=ConditionType.ADDRESS_ASSIGNED,
        status=status,
        reason=Reason.ASSIGNED if status == "True" else Reason.ADDRESS_IN_USE,
        message=message or f"{', '.join(addresses)} from pool edge",
    )
    ingress = [{"ip": each} for each in addresses]
    body = {"status": {"loadBalancer": {"ingress": ingress}, "conditions": [vars_of(condition)]}}
    return after(service, body)


def vars_of(condition: Condition) -> dict[str, str]:
    """*condition* on the wire."""
    return {name: getattr(condition, name) for name in ("type", "status", "reason", "message")}


def annotations_of(service: Service, **more: Any) -> dict[str, str]:
    """The annotations that the first patch sets."""
    found = conversion_of(service, **more)
    assert isinstance(found, Conversion), found
    notes: dict[str, str] = found.request.get("metadata", {}).get("annotations", {})
    return notes


def test_the_address_leaves_external_ips_after_it_is_in_the_status() -> None:
    """First the request, then kavip, then the removal; nothing in between is without the address."""
    service = external(VIP)
    first = next_step(service)
    assert isinstance(first, Write)
    assert first.body == {
        "metadata": {"annotations": {names.ADDRESSES_ANNOTATION: VIP}},
        "spec": {**LOAD_BALANCER, "allocateLoadBalancerNodePorts": False},
    }
    service = after(service, first.body)
    assert service.virtual_ips == external(VIP).virtual_ips
    assert isinstance(next_step(service), Wait)
    service = assigned(service, VIP)
    last = next_step(service)
    assert isinstance(last, Write) and last.body == WITHOUT
    service = after(service, last.body)
    assert service.virtual_ips == external(VIP).virtual_ips
    assert next_step(service) == Done()


def test_a_manifest_takes_all_patches_at_once() -> None:
    """The patch of a manifest gives the Service that the steps end with."""
    service = external(VIP, OTHER)
    found = conversion_of(service)
    assert isinstance(found, Conversion)
    assert after(service, found.patch) == after(after(service, found.request), WITHOUT)


def test_node_ports_stay() -> None:
    """A NodePort Service keeps the default, so that the API server keeps its node ports."""
    found = conversion_of(external(VIP, type="NodePort"))
    assert isinstance(found, Conversion)
    assert found.request["spec"] == LOAD_BALANCER


def test_several_addresses_of_a_family_need_a_count() -> None:
    """The count is the larger of both families; a single address of each needs none."""
    two = {names.ADDRESSES_ANNOTATION: f"{VIP},{OTHER}", names.COUNT_ANNOTATION: "2"}
    assert annotations_of(external(VIP, OTHER)) == two
    both = external(VIP, SIXTH, families=["IPv4", "IPv6"])
    assert annotations_of(both) == {names.ADDRESSES_ANNOTATION: f"{VIP},{SIXTH}"}


def test_a_load_balancer_keeps_what_it_has() -> None:
    """Its own address is counted, an address that it names is not named again, and its class stays."""
    service = build.service("shop/web", group="lb/edge", holds=[OTHER], external_ips=[VIP])
    found = conversion_of(service)
    assert isinstance(found, Conversion)
    assert found.request == {
        "metadata": {"annotations": {names.ADDRESSES_ANNOTATION: VIP, names.COUNT_ANNOTATION: "2"}}
    }
    named = build.service("shop/web", group="lb/edge", wants=OTHER, holds=[OTHER], external_ips=[VIP])
    assert annotations_of(named)[names.ADDRESSES_ANNOTATION] == f"{OTHER},{VIP}"
    both = build.service("shop/web", group="lb/edge", holds=[VIP], external_ips=[VIP])  # as OpenShift writes it
    assert annotations_of(both) == {names.ADDRESSES_ANNOTATION: VIP}


def test_an_annotation_without_effect_is_replaced() -> None:
    """On a ClusterIP Service the addresses annotation means nothing."""
    assert annotations_of(external(VIP, wants="192.0.2.99")) == {names.ADDRESSES_ANNOTATION: VIP}


def test_an_interrupted_run_continues() -> None:
    """A Service that requests its external IPs already is not patched again, whoever made it so."""
    service = external(VIP, type="LoadBalancer", wants=VIP)
    assert isinstance(next_step(service), Wait)
    assert next_step(assigned(service, VIP)) == Write(WITHOUT, f"{VIP} assigned, spec.externalIPs removed")


def test_the_removal_waits_for_every_address_and_for_kavip() -> None:
    """Neither a part of the addresses nor the status of another controller is enough; the reason is shown."""
    service = external(
        VIP, OTHER, type="LoadBalancer", wants=f"{VIP},{OTHER}", annotations={names.COUNT_ANNOTATION: "2"}
    )
    assert isinstance(next_step(assigned(service, VIP)), Wait)
    foreign = after(service, {"status": {"loadBalancer": {"ingress": [{"ip": VIP}, {"ip": OTHER}]}}})
    assert isinstance(next_step(foreign), Wait)
    refused = next_step(assigned(service, status="False", message="192.0.2.130 is used by Service a/b"))
    assert isinstance(refused, Wait)
    assert refused.says.endswith(": AddressInUse: 192.0.2.130 is used by Service a/b")


@pytest.mark.parametrize(
    "service",
    [
        build.service("shop/web", group="lb/edge", holds=[VIP]),
        external(VIP, group=""),
        build.service("shop/web", external_ips=[VIP]),
        build.service("shop/web", group="lb/edge", external_ips=[VIP], load_balancer_class="metallb.io/metallb"),
        build.in_deletion(external(VIP)),
    ],
    ids=["without", "plain", "default-group", "other-class", "in-deletion"],
)
def test_other_services_are_left_alone(service: Service) -> None:
    """kavip announces external IPs only where the Service itself selects kavip."""
    assert conversion_of(service) is None
    assert next_step(service) == Done()


@pytest.mark.parametrize(
    ("service", "field", "words"),
    [
        (external("192.0.2.0300"), "spec.externalIPs[0]", "want one IPv4 or IPv6 address"),
        (external(SIXTH), "metadata.annotations[kavip.io/addresses]", "the Service has only IPv4"),
        (external(VIP, cluster_ip="None"), "spec.clusterIP", "headless"),
        (external(VIP, type="ExternalName"), "spec.type", "has no VIP"),
        (external(*(f"192.0.2.{host}" for host in range(33))), "spec.externalIPs", "33 addresses"),
        (external(*(f"192.0.2.{host % 9}" for host in range(300))), "spec.externalIPs", "300 addresses"),
    ],
)
def test_what_cannot_be_converted_is_named(service: Service, field: str, words: str) -> None:
    """The refusal has the field and the remedy, and nothing is written."""
    found = conversion_of(service)
    assert isinstance(found, Refusal)
    assert (found.field, words in found.message) == (field, True), found
    assert next_step(service) == Stop(found)


def test_services_that_share_an_address_get_one_key() -> None:
    """All Services that are connected by shared addresses get the same key: one that exists, or a new one."""
    web, api = external(VIP, key="shop/web"), external(VIP, OTHER, key="shop/api", port=81)
    dns, alone = external(OTHER, key="shop/dns", port=82), external("192.0.2.140", key="shop/alone")
    assert sharing_keys([web, alone, dns, api]) == dict.fromkeys(
        ("shop/api", "shop/dns", "shop/web"), f"external-ips-{VIP}"
    )
    keyed = external(OTHER, key="shop/dns", port=82, annotations={names.SHARING_KEY_ANNOTATION: "own"})
    assert set(sharing_keys([web, keyed, api]).values()) == {"own"}
    assert annotations_of(web, sharing_key="own")[names.SHARING_KEY_ANNOTATION] == "own"
    step = sharing_step(web, key="own")
    assert isinstance(step, Write)
    assert sharing_step(after(web, step.body), key="own") == Done()
