"""
The kinds that kavip reads and writes, as data.

Each lists its uses: which component needs which verbs, and where. Tests compare the RBAC manifests with them, so a
missing right fails a test before it fails in a cluster.

With ``group_namespaces``, kavip watches what groups own in these namespaces only (:attr:`Scope.GROUPS`). These kinds
remain cluster-wide: what addresses depend on (Services, pools, groups, Nodes, Namespaces, EndpointSlices, ServiceCIDRs,
OpenShift's Network and Infrastructure), because VIPs must be unique in the cluster; Leases and Deployments of
keepalived-operator, because it may run in any namespace; and Events, because an Event is in the namespace of its
object.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from kavip import names
from kavip.api.access import SubjectAccessReview, TokenReview
from kavip.api.cluster import Infrastructure, Namespace, Network, Node, Pod, Secret, ServiceCIDR
from kavip.api.event import Event
from kavip.api.group import KeepalivedGroup
from kavip.api.installation import Definition, Heartbeat, PublishedConfig, WholeObject, Workload
from kavip.api.lease import Lease
from kavip.api.meta import Identity
from kavip.api.pool import VIPPool
from kavip.api.registration import WebhookConfiguration
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice
from kavip.api.workload import ConfigMap, ConfigMapIdentity, DaemonSet, Deployment, PodMonitor, Role, RoleBinding
from kavip.errors import BadInput


class HasMetadata(Protocol):
    """Any object of the API."""

    @property
    def metadata(self) -> Identity:
        """``metadata``."""


T = TypeVar("T", bound=HasMetadata)

_READ: Final = ("get", "list", "watch")
_WATCH: Final = ("list", "watch")
_APPLY: Final = ("create", "patch")  # server-side apply is a PATCH that may create


class Component(StrEnum):
    """The part of kavip that uses a right; with ``topology: split`` each has its own account."""

    WEBHOOK = "webhook"
    CONTROLLER = "controller"


class Scope(StrEnum):
    """Where a component needs a right."""

    CLUSTER = "cluster"
    """In every namespace, or on a cluster-scoped kind."""
    GROUPS = "groups"
    """In the namespaces of the setting ``group_namespaces``; if that is empty, in every namespace."""
    RELEASE = "release"
    """In kavip's own namespace."""


@dataclass(frozen=True, slots=True)
class Use:
    """The *verbs* that *component* uses on objects of a kind, or on their *subresource*."""

    component: Component
    scope: Scope
    verbs: tuple[str, ...]
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """
    One kind, with its *uses* by a kavip in a cluster; empty for a kind that only the command line reads.

    An *optional* kind need not be installed. With *tolerate_forbidden* kavip also works without the right to read it,
    as if there were no objects. *names*: kavip reads only objects with these names. *metadata_only*: lists and watches
    request objects without their content, which may be large. *page_size*: how many objects a page of a list has.
    """

    api_version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True
    uses: tuple[Use, ...] = ()
    optional: bool = False
    tolerate_forbidden: bool = False
    names: tuple[str, ...] = ()
    metadata_only: bool = False
    page_size: int = 500

    @property
    def group(self) -> str:
        """The API group; "" for the core one."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of a collection, an object, or its *subresource*."""
        segments = [f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"]
        if namespace:
            segments += ["namespaces", _segment(namespace)]
        segments.append(self.plural)
        if name:
            segments.append(_segment(name))
        if subresource:
            segments.append(subresource)
        return "/".join(segments)

    def object_path(self, key: str, subresource: str = "") -> str:
        """The URL path of the object with *key* (``ns/name``, or ``name`` for a cluster-scoped kind)."""
        namespace, name = split(self, key)
        return self.path(namespace, name, subresource)


def split(resource: Resource[T], key: str) -> tuple[str, str]:
    """Namespace and name of *key*; raises :class:`BadInput` for a key that would address another object."""
    namespace, _, name = key.rpartition("/")
    if not name or bool(namespace) != resource.namespaced or "/" in namespace:
        want = "namespace/name" if resource.namespaced else "a name without a namespace"
        raise BadInput(f"key of a {resource.kind}", key, f"want {want}")
    return namespace, name


def _segment(text: str) -> str:
    if text in (".", ".."):
        raise BadInput("name", text, "want a name that is no relative path")
    return quote(text, safe="")


def _by(component: Component, scope: Scope, verbs: tuple[str, ...], subresource: str = "") -> tuple[Use, ...]:
    return (Use(component, scope, verbs, subresource),)


_WATCHED: Final = (  # by both components
    *_by(Component.WEBHOOK, Scope.CLUSTER, _WATCH),
    *_by(Component.CONTROLLER, Scope.CLUSTER, _WATCH),
)
_STATUS: Final = _by(Component.CONTROLLER, Scope.CLUSTER, ("patch",), "status")
_OWNED: Final = _by(Component.CONTROLLER, Scope.GROUPS, (*_READ, *_APPLY))  # what the controller makes for a group

SERVICES: Final = Resource("v1", "services", names.SERVICE, Service, uses=(*_WATCHED, *_STATUS))
NODES: Final = Resource("v1", "nodes", names.NODE, Node, namespaced=False, uses=_WATCHED)
NAMESPACES: Final = Resource("v1", "namespaces", names.NAMESPACE, Namespace, namespaced=False, uses=_WATCHED)
PODS: Final = Resource(
    "v1", "pods", names.POD, Pod, uses=_by(Component.CONTROLLER, Scope.GROUPS, (*_WATCH, "patch", "delete"))
)
SECRETS: Final = Resource(
    "v1", "secrets", names.SECRET, Secret, uses=_by(Component.WEBHOOK, Scope.RELEASE, (*_READ, *_APPLY))
)  # without create, get and patch if another program writes the certificate
CONFIGMAPS: Final = Resource(
    "v1", "configmaps", names.CONFIG_MAP, ConfigMap, uses=_OWNED, page_size=20
)  # of up to 1 MiB each, and any user may label some
TEMPLATE_CONFIGMAPS: Final = Resource(
    "v1",
    "configmaps",
    names.CONFIG_MAP,
    ConfigMapIdentity,
    uses=_by(Component.CONTROLLER, Scope.GROUPS, _WATCH),
    metadata_only=True,
)  # those that groups may name, by a label that anybody may set; the content is read of those that groups do name
CA_CONFIGMAPS: Final = Resource(
    "v1",
    "configmaps",
    names.CONFIG_MAP,
    ConfigMap,
    uses=(
        *_by(Component.WEBHOOK, Scope.RELEASE, ("get", *_APPLY)),
        *_by(Component.CONTROLLER, Scope.RELEASE, _WATCH),
    ),
    names=(names.CA_CONFIGMAP_NAME,),
)  # the trust bundle that the webhook hands to the controller, if each has its own account
VALUES_CONFIGMAPS: Final = Resource(
    "v1",
    "configmaps",
    names.CONFIG_MAP,
    ConfigMap,
    uses=_by(Component.CONTROLLER, Scope.RELEASE, (*_WATCH, "patch")),
    tolerate_forbidden=True,
    names=(names.VALUES_CONFIGMAP_NAME,),
)  # the pools and groups of the chart's values; who applies them may create and patch these objects
DAEMONSETS: Final = Resource("apps/v1", "daemonsets", names.DAEMON_SET, DaemonSet, uses=_OWNED)
GROUPS: Final = Resource(
    f"{names.REDHATCOP_GROUP}/{names.VERSION}",
    "keepalivedgroups",
    names.KEEPALIVED_GROUP,
    KeepalivedGroup,
    uses=(
        *_WATCHED,
        *_STATUS,
        # OpenShift requires this right to set an owner reference with blockOwnerDeletion
        *_by(Component.CONTROLLER, Scope.GROUPS, ("update",), "finalizers"),
    ),
)
POOLS: Final = Resource(
    f"{names.KAVIP_GROUP}/{names.VERSION}",
    "vippools",
    names.VIP_POOL,
    VIPPool,
    namespaced=False,
    uses=(*_WATCHED, *_STATUS),
)
NETWORKS: Final = Resource(
    "config.openshift.io/v1", "networks", names.NETWORK, Network, namespaced=False, uses=_WATCHED, optional=True
)
INFRASTRUCTURES: Final = Resource(
    "config.openshift.io/v1",
    "infrastructures",
    names.INFRASTRUCTURE,
    Infrastructure,
    namespaced=False,
    uses=_WATCHED,
    optional=True,
    tolerate_forbidden=True,
)
LEASES: Final = Resource(
    "coordination.k8s.io/v1",
    "leases",
    names.LEASE,
    Lease,
    uses=_by(Component.CONTROLLER, Scope.RELEASE, ("get", *_APPLY)),
)
OPERATOR_LEASES: Final = Resource(
    "coordination.k8s.io/v1",
    "leases",
    names.LEASE,
    Lease,
    uses=_by(Component.CONTROLLER, Scope.CLUSTER, _WATCH),
    tolerate_forbidden=True,
    names=(names.OLD_OPERATOR_LEASE,),
)
OPERATOR_DEPLOYMENTS: Final = Resource(
    "apps/v1",
    "deployments",
    names.DEPLOYMENT,
    Deployment,
    uses=_by(Component.CONTROLLER, Scope.CLUSTER, _WATCH),
    tolerate_forbidden=True,
    names=names.OLD_OPERATOR_DEPLOYMENTS,
)
POD_MONITORS: Final = Resource(
    "monitoring.coreos.com/v1",
    "podmonitors",
    names.POD_MONITOR,
    PodMonitor,
    uses=_OWNED,
    optional=True,
    tolerate_forbidden=True,
)
ROLES: Final = Resource("rbac.authorization.k8s.io/v1", "roles", names.ROLE, Role, uses=_OWNED, tolerate_forbidden=True)
ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io/v1",
    "rolebindings",
    names.ROLE_BINDING,
    RoleBinding,
    uses=_OWNED,
    tolerate_forbidden=True,
)
EVENTS: Final = Resource(
    "events.k8s.io/v1",
    "events",
    "Event",
    Event,
    uses=(
        *_by(Component.WEBHOOK, Scope.RELEASE, ("create", "patch")),
        *_by(Component.CONTROLLER, Scope.CLUSTER, ("create", "patch")),
    ),
)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io/v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    SubjectAccessReview,
    namespaced=False,
    uses=_by(Component.WEBHOOK, Scope.CLUSTER, ("create",)),
)
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io/v1", "tokenreviews", "TokenReview", TokenReview, namespaced=False
)  # both components create it, and SubjectAccessReviews, with the setting metrics_secure only
DAEMONSET_EVENTS: Final = Resource(
    "events.k8s.io/v1",
    "events",
    "Event",
    Event,
    uses=_by(Component.CONTROLLER, Scope.GROUPS, _WATCH),
    tolerate_forbidden=True,
)  # they say why a DaemonSet cannot create pods
ENDPOINT_SLICES: Final = Resource(
    "discovery.k8s.io/v1",
    "endpointslices",
    names.ENDPOINT_SLICE,
    EndpointSlice,
    uses=_WATCHED,
    tolerate_forbidden=True,
)  # of the API server, of served Services, and of the webhook's own Service
SERVICE_CIDRS: Final = Resource(
    "networking.k8s.io/v1",
    "servicecidrs",
    names.SERVICE_CIDR,
    ServiceCIDR,
    namespaced=False,
    uses=_WATCHED,
    optional=True,
    tolerate_forbidden=True,
)
_CONFIGURATION_USES: Final = (
    *_by(Component.WEBHOOK, Scope.CLUSTER, _READ),
    *_by(Component.CONTROLLER, Scope.CLUSTER, (*_READ, "patch")),  # patch: not if another controller injects caBundle
)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io/v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    WebhookConfiguration,
    namespaced=False,
    uses=_CONFIGURATION_USES,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    WebhookConfiguration,
    namespaced=False,
    uses=_CONFIGURATION_USES,
)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", Definition, namespaced=False
)
DEPLOYMENTS: Final = Resource("apps/v1", "deployments", names.DEPLOYMENT, Workload)
EVERY_DAEMONSET: Final = Resource("apps/v1", "daemonsets", names.DAEMON_SET, Workload)
HEARTBEATS: Final = Resource("coordination.k8s.io/v1", "leases", names.LEASE, Heartbeat)
PUBLISHED_CONFIGS: Final = Resource("v1", "configmaps", names.CONFIG_MAP, PublishedConfig)
"""These five only ``kavip doctor`` reads, with the rights of its user."""


def whole(resource: Resource[Any]) -> Resource[WholeObject]:
    """*resource* with objects that have all of ``spec`` and ``status``: only ``kavip collect`` reads them."""
    return Resource(resource.api_version, resource.plural, resource.kind, WholeObject, resource.namespaced)


GRANTED: Final = ("endpoints", "pods", "services"), Use(Component.CONTROLLER, Scope.GROUPS, _READ)
"""Core resources in the Role that the controller writes for Prometheus: an account grants only rights that it has."""

DECISION_KINDS: Final = (NETWORKS, INFRASTRUCTURES, SERVICE_CIDRS, NAMESPACES, NODES, POOLS, GROUPS, SERVICES)
"""What decisions read besides EndpointSlices. Services are last: they depend on the others."""

ALL: Final[tuple[Resource[HasMetadata], ...]] = (  # type: ignore[assignment]  # a tuple of every Resource[T]
    SERVICES,
    NODES,
    NAMESPACES,
    PODS,
    SECRETS,
    CONFIGMAPS,
    CA_CONFIGMAPS,
    VALUES_CONFIGMAPS,
    DAEMONSETS,
    GROUPS,
    POOLS,
    NETWORKS,
    INFRASTRUCTURES,
    LEASES,
    OPERATOR_LEASES,
    OPERATOR_DEPLOYMENTS,
    POD_MONITORS,
    ROLES,
    ROLE_BINDINGS,
    EVENTS,
    SUBJECT_ACCESS_REVIEWS,
    DAEMONSET_EVENTS,
    ENDPOINT_SLICES,
    SERVICE_CIDRS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)
"""Every kind that is used with the default settings, for the comparison with RBAC."""
