"""An IngressController of OpenShift of type LoadBalancerService gets a VIP of kavip, as the how-to says."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.service import Service
from kavip.cli.views import simulate
from tests.cli.manifest import manifest
from tests.support import build

SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "namespace": "openshift-ingress",
        "name": "router-dmz",
        "labels": {
            "app": "router",
            "router": "router-dmz",
            "ingresscontroller.operator.openshift.io/owning-ingresscontroller": "dmz",
        },
        "annotations": {"traffic-policy.network.alpha.openshift.io/local-with-fallback": ""},
    },
    "spec": {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "internalTrafficPolicy": "Cluster",
        "selector": {"ingresscontroller.operator.openshift.io/deployment-ingresscontroller": "dmz"},
        "ports": [
            {"name": "http", "protocol": "TCP", "port": 80, "targetPort": "http"},
            {"name": "https", "protocol": "TCP", "port": 443, "targetPort": "https"},
        ],
        "sessionAffinity": "None",
    },
}
"""As openshift/cluster-ingress-operator writes it (``pkg/manifests``, ``load_balancer_service.go``)."""


@pytest.mark.parametrize("annotations", [{}, {names.GROUP_ANNOTATION: "lb/edge", names.POOL_ANNOTATION: "dmz"}])
def test_the_service_of_an_ingress_controller_gets_a_vip(annotations: dict[str, str]) -> None:
    """From the default group and any pool, or as its annotations say; the VIP follows the router's pods."""
    metadata = {**SERVICE["metadata"], "annotations": {**SERVICE["metadata"]["annotations"], **annotations}}
    objects = (
        build.group("lb/edge", default=not annotations, openshift_cluster_name="ocp"),
        build.pool("dmz"),
        build.namespace("openshift-ingress"),
        build.node("n1", "192.0.2.11"),
    )
    planned = simulate.plan([*map(manifest, objects), msgspec.convert({**SERVICE, "metadata": metadata}, Service)])
    assert not planned.refused
    (address,) = planned.snapshot.services["openshift-ingress/router-dmz"].ingress_addresses
    text = planned.configurations["lb/edge"]
    assert "vrrp_instance openshift-ingress/router-dmz {" in text and f" {address}" in text
    assert "track_file" in text
