"""What an attempt is, the policies that may refuse it, the paths of the API, and changed bodies."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from hack.escalations.account import RBAC, Request, apply
from hack.escalations.stage import CONTROLLER, NAMESPACE, POOL, Manifest
from kavip import names

WEBHOOKS: Final = "kavip-webhooks"
OWNED: Final = "kavip-owned-objects"
NAMESPACES: Final = "kavip-group-namespaces"
CONFIGMAPS: Final = "kavip-configmaps"
DAEMONSETS: Final = "kavip-daemonsets"
MONITORING: Final = "kavip-monitoring"
PODS: Final = "kavip-pods"
SERVICES: Final = "kavip-services"
NEW: Final = "kavip-new-objects"
VALUES: Final = "kavip-values"

POLICIES: Final = (WEBHOOKS, OWNED, NAMESPACES, CONFIGMAPS, DAEMONSETS, MONITORING, PODS, SERVICES, NEW, VALUES)

CORE: Final = "/api/v1"
LB: Final = f"{CORE}/namespaces/lb"
SHOP: Final = f"{CORE}/namespaces/shop"
RELEASE: Final = f"{CORE}/namespaces/{NAMESPACE}"
CHART_VALUES: Final = f"{RELEASE}/configmaps/{names.VALUES_CONFIGMAP_NAME}"
APPS: Final = "/apis/apps/v1/namespaces"
RBAC_API: Final = "/apis/rbac.authorization.k8s.io/v1"
HOOKS: Final = "/apis/admissionregistration.k8s.io/v1"
HOOK: Final = f"{HOOKS}/validatingwebhookconfigurations/kavip"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
POOLS: Final = "/apis/kavip.io/v1alpha1/vippools"
GROUPS: Final = "/apis/redhatcop.redhat.io/v1alpha1/namespaces/lb/keepalivedgroups"


@dataclass(frozen=True, slots=True)
class Attempt:
    """*what* is attempted by *request*, and what it is *refused_by* if the account of *component* sends it."""

    what: str
    request: Request
    refused_by: str = RBAC
    component: str = CONTROLLER


def secret(name: str, kind: str, **notes: str) -> Manifest:
    metadata, data = {"name": name, "annotations": notes}, {"tls.crt": "", "tls.key": ""}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": data}


def trust_bundle() -> Manifest:
    metadata = {"name": names.CA_CONFIGMAP_NAME, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": "x"}}


def a_pool() -> Manifest:
    """The pool of the chart's values."""
    spec = {"addresses": ["192.0.2.0/28"]}
    return {"apiVersion": "kavip.io/v1alpha1", "kind": names.VIP_POOL, "metadata": {"name": POOL}, "spec": spec}


def a_group() -> Manifest:
    """The group of the chart's values."""
    metadata, version = {"name": "edge", "namespace": "lb"}, "redhatcop.redhat.io/v1alpha1"
    spec = {"interface": "eth0"}
    return {"apiVersion": version, "kind": names.KEEPALIVED_GROUP, "metadata": metadata, "spec": spec}


def changed(body: Manifest, change: Callable[[Manifest], Any]) -> Manifest:
    changed: Manifest = json.loads(json.dumps(body))  # no two parts are one object
    change(changed)
    return changed


def applied(body: Manifest) -> Request:
    """The request that applies *body*."""
    version, namespace = body["apiVersion"], body["metadata"]["namespace"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return apply(f"{base}/namespaces/{namespace}/{body['kind'].lower()}s", body)
