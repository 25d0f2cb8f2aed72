"""Fields and values that the API server refuses in manifests."""

from typing import Any

import msgspec
import pytest
from kubernetes_asyncio.client import models

from kavip.api import fieldvalidation
from kavip.api.fieldvalidation import field_problems
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice


@pytest.mark.parametrize(
    ("shape", "model"),
    [
        (fieldvalidation.METADATA, models.V1ObjectMeta),
        (fieldvalidation.SERVICE_SPEC, models.V1ServiceSpec),
        (fieldvalidation.PORT, models.V1ServicePort),
    ],
)
def test_the_fields_are_those_of_kubernetes(shape: type, model: Any) -> None:
    """The generated client has all of them."""
    assert {each.encode_name for each in msgspec.structs.fields(shape)} == set(model.attribute_map.values())


BOTH = '"UPD": want SCTP, TCP or UDP; did you mean "UDP"?'


@pytest.mark.parametrize(
    ("kind", "content", "problems"),
    [
        (
            Service,
            {"metadata": {"annotation": {}}},
            {"metadata.annotation": 'unknown field; did you mean "annotations"?'},
        ),
        (Service, {"sepc": {}}, {"sepc": 'unknown field; did you mean "spec"?'}),
        (
            Service,
            {"spec": {"loadBalancerIp": "", "prots": [], "zzz": 1}},
            {
                "spec.loadBalancerIp": 'unknown field; did you mean "loadBalancerIP"?',
                "spec.prots": 'unknown field; did you mean "ports"?',
                "spec.zzz": "unknown field",
            },
        ),
        (
            Service,
            {"spec": {"ports": [{"port": 80}, {"prot": 80, "protocol": "UPD"}]}},
            {
                "spec.ports[1].prot": 'unknown field; did you mean "port"?',
                "spec.ports[1].protocol": BOTH,
            },
        ),
        (
            Service,
            {"spec": {"type": "LoadBalncer"}},
            {
                "spec.type": '"LoadBalncer": want ClusterIP, ExternalName, LoadBalancer or NodePort; '
                'did you mean "LoadBalancer"?'
            },
        ),
        (
            Service,
            {"spec": {"externalTrafficPolicy": "\x1b[31m", "ipFamilyPolicy": "Dual", "ports": None, "type": ""}},
            {
                "spec.externalTrafficPolicy": r'"\x1b[31m": want Cluster or Local',
                "spec.ipFamilyPolicy": '"Dual": want PreferDualStack, RequireDualStack or SingleStack',
            },
        ),
        (Service, {"metadata": {"uid": "1"}, "spec": {"later": 1}}, {}),
        (Service, {"metadata": None, "spec": None}, {}),
        (KeepalivedGroup, {"metadata": {"lables": {}}}, {"metadata.lables": 'unknown field; did you mean "labels"?'}),
        (VIPPool, {"metadata": {"lables": {}}}, {"metadata.lables": 'unknown field; did you mean "labels"?'}),
        (VIPPool, {"spec": {"adresses": []}}, {"spec.adresses": 'unknown field; did you mean "addresses"?'}),
        (EndpointSlice, {"sepc": 1}, {}),
    ],
)
def test_unknown_fields_and_values_are_found(kind: type, content: dict[str, Any], problems: dict[str, str]) -> None:
    """With the field or the value that is probably meant."""
    assert dict(field_problems(content, kind)) == problems
