"""A Gateway controller behind a Service of kavip: Traefik takes its address into the status of its Gateway."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed import golang, process
from hack.testbed import programs as building
from hack.testbed.cluster import Cluster
from hack.testbed.process import Process, wait_for
from kavip import names
from kavip.names import Reason
from tests.app.conftest import a_group, a_pool, object_of
from tests.cluster.provisioning import PATIENCE, WEB_LABELS, apply_objects, delete_objects, retry_kubectl
from tests.cluster.site import site

pytestmark = [pytest.mark.cluster, pytest.mark.migration, pytest.mark.timeout(1800)]

VIP, SECOND = "192.0.2.209", "192.0.2.210"
PORT = 8000
LOG = "traefik.log"
API = "gateway.networking.k8s.io/v1"


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Two nodes with a pod each, kavip with a pool and a group, and Traefik on a machine that is no node."""
    programs = building.ensure(building.MIGRATION)
    with site(cluster(nodes=2, images=(image(),)), "lb", "gateways") as found:
        apply_objects(found.cluster, a_pool("edge", "192.0.2.208/28"), a_group("edge"))
        crds = golang.folder_of(golang.TOOLS / "traefik", "sigs.k8s.io/gateway-api/apis/v1").parents[1]
        found.cluster.kubectl("apply", "--server-side", f"--filename={crds / 'config' / 'crd' / 'standard'}")
        found.cluster.plane.wait_established()
        traefik = start(found.cluster, programs["traefik"])
        try:
            yield found
        finally:
            process.stop([traefik], grace=5)
            sys.stdout.write(f"--- Traefik\n{process.tail(found.cluster.state / LOG, 40)}\n")
            delete_objects(found.cluster, ("gatewayclass", "traefik"))


def start(cluster: Cluster, program: str) -> Process:
    """Start Traefik beside the control plane: it reaches pods, as nodes do."""
    provider = "--providers.kubernetesgateway"
    flags = (
        f"--entrypoints.web.address=:{PORT}",
        provider,
        f"{provider}.statusaddress.service.name=traefik",
        f"{provider}.statusaddress.service.namespace=gateways",
        "--log.level=INFO",
    )
    environment = ("env", f"KUBECONFIG={cluster.kubeconfig}")
    return cluster.control.spawn(*environment, program, *flags, log=cluster.state / LOG)


def objects(session: Session) -> list[dict[str, Any]]:
    """Traefik's Service with endpoints that a person wrote, so without a node, and a Gateway with one route."""
    notes = {names.GROUP_ANNOTATION: "lb/edge", names.ADDRESSES_ANNOTATION: VIP}
    ports = [{"name": "web", "port": 80, "targetPort": PORT}]
    spec = {"type": "LoadBalancer", "loadBalancerClass": names.LOAD_BALANCER_CLASS, "ports": ports}
    labels = {names.SERVICE_NAME_LABEL: "traefik"}
    slice_ = object_of("EndpointSlice", "traefik-1", namespace="gateways", version="discovery.k8s.io/v1", labels=labels)
    slice_ |= {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [session.cluster.control.ipv4], "conditions": {"ready": True}}],
        "ports": [{"name": "web", "port": PORT, "protocol": "TCP"}],
    }
    listener = {
        "name": "web",
        "port": PORT,
        "protocol": "HTTP",
        "allowedRoutes": {"namespaces": {"from": "All"}},
    }
    parent = {"name": "edge", "namespace": "gateways"}
    route = {"parentRefs": [parent], "rules": [{"backendRefs": [{"name": "web", "port": 80}]}]}
    web = {"ports": [{"port": 80}], "selector": WEB_LABELS}
    return [
        object_of("Service", "traefik", namespace="gateways", annotations=notes, spec=spec),
        slice_,
        object_of("GatewayClass", "traefik", version=API, spec={"controllerName": "traefik.io/gateway-controller"}),
        object_of(
            "Gateway",
            "edge",
            namespace="gateways",
            version=API,
            spec={"gatewayClassName": "traefik", "listeners": [listener]},
        ),
        object_of("Service", "web", namespace="shop", spec=web),
        object_of("HTTPRoute", "web", namespace="shop", version=API, spec=route),
    ]


def has_address(session: Session, address: str) -> bool:
    """Whether *address* is the only one in the status of the Gateway."""
    found = session.get("gateway", "edge", "-n", "gateways") or {}
    return [each["value"] for each in found.get("status", {}).get("addresses") or ()] == [address]


def is_answered(session: Session, address: str) -> bool:
    """Whether a pod answers through Traefik."""
    return session.answers(address).startswith("web-")


def test_traefik_takes_the_address_of_its_service(session: Session) -> None:
    """The Gateway has it, a client is answered through it, and both follow a change of the annotation."""
    apply_objects(session.cluster, *objects(session))
    for address in (VIP, SECOND):
        note = f"{names.ADDRESSES_ANNOTATION}={address}"
        retry_kubectl(session.cluster, "annotate", "service", "traefik", "-n", "gateways", "--overwrite", note)
        wait_for("the Gateway has the address", partial(has_address, session, address), timeout=PATIENCE, interval=1)
        wait_for("a pod answers through Traefik", partial(is_answered, session, address), timeout=PATIENCE, interval=1)
    assert session.addresses("gateways/traefik") == [SECOND]


def test_endpoints_without_a_node_leave_one_master(session: Session) -> None:
    """With policy Local kube-proxy answers on no node; one node holds the VIP, and its condition gives the reason."""
    given = objects(session)
    given[0]["spec"]["externalTrafficPolicy"] = "Local"
    apply_objects(session.cluster, *given)

    def advertised() -> tuple[str, str, str]:
        return session.condition("service", "gateways/traefik", "kavip.io/Advertised")

    def has_one_master() -> bool:  # on a busy machine the VIP may move in between
        found = [node.name for node in session.holders(VIP)]
        status, reason, message = advertised()
        is_named = len(found) == 1 and message.count(found[0]) == 1
        return is_named and (status, reason) == ("True", Reason.NO_ENDPOINTS)

    wait_for("one node is its master", has_one_master, timeout=PATIENCE, interval=1)
    assert session.answers(VIP) == ""
    wait_for("one node still is its master", has_one_master, timeout=PATIENCE, interval=1)
