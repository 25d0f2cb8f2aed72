"""
The kinds that kavip reads and writes, as data.

A test compares the RBAC manifests with the verbs listed here, so a missing right fails a test before it fails in a
cluster.
"""

from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar
from urllib.parse import quote

from kavip import names
from kavip.api.access import SubjectAccessReview
from kavip.api.cluster import Namespace, Network, Node, Pod, Secret, ServiceCIDR
from kavip.api.event import Event
from kavip.api.group import KeepalivedGroup
from kavip.api.lease import Lease
from kavip.api.meta import Metadata
from kavip.api.pool import VIPPool
from kavip.api.registration import WebhookConfiguration
from kavip.api.service import Service
from kavip.api.slice import EndpointSlice
from kavip.api.workload import ConfigMap, DaemonSet, Deployment, PodMonitor, Role, RoleBinding
from kavip.errors import BadInput


class HasMetadata(Protocol):
    """Any object of the API."""

    @property
    def metadata(self) -> Metadata:
        """``metadata``."""


T = TypeVar("T", bound=HasMetadata)

_READ: Final = ("get", "list", "watch")
_WATCH: Final = ("list", "watch")
_APPLY: Final = ("create", "patch")  # server-side apply is a PATCH that may create


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """
    One kind, with the verbs that kavip uses on objects and on their *subresources*.

    An *optional* kind need not be installed. With *tolerate_forbidden* kavip also works without the right to read it,
    as if there were no objects. *names*: kavip reads only objects with these names.
    """

    api_version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True
    verbs: tuple[str, ...] = _WATCH
    subresources: tuple[tuple[str, tuple[str, ...]], ...] = ()
    optional: bool = False
    tolerate_forbidden: bool = False
    names: tuple[str, ...] = ()

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


_STATUS: Final = (("status", ("patch",)),)

SERVICES: Final = Resource("v1", "services", names.SERVICE, Service, subresources=_STATUS)
NODES: Final = Resource("v1", "nodes", names.NODE, Node, namespaced=False)
NAMESPACES: Final = Resource("v1", "namespaces", names.NAMESPACE, Namespace, namespaced=False)
PODS: Final = Resource("v1", "pods", names.POD, Pod, verbs=(*_WATCH, "patch", "delete"))
SECRETS: Final = Resource("v1", "secrets", names.SECRET, Secret, verbs=(*_READ, *_APPLY))
CONFIGMAPS: Final = Resource("v1", "configmaps", "ConfigMap", ConfigMap, verbs=(*_READ, *_APPLY))
DAEMONSETS: Final = Resource("apps/v1", "daemonsets", "DaemonSet", DaemonSet, verbs=(*_READ, *_APPLY))
GROUPS: Final = Resource(
    f"{names.REDHATCOP_GROUP}/{names.VERSION}",
    "keepalivedgroups",
    names.KEEPALIVED_GROUP,
    KeepalivedGroup,
    # OpenShift requires this right to set an owner reference with blockOwnerDeletion
    subresources=(*_STATUS, ("finalizers", ("update",))),
)
POOLS: Final = Resource(
    f"{names.KAVIP_GROUP}/{names.VERSION}", "vippools", names.VIP_POOL, VIPPool, namespaced=False, subresources=_STATUS
)
NETWORKS: Final = Resource(
    "config.openshift.io/v1", "networks", names.NETWORK, Network, namespaced=False, optional=True
)
LEASES: Final = Resource("coordination.k8s.io/v1", "leases", names.LEASE, Lease, verbs=("get", "create", "patch"))
OPERATOR_LEASES: Final = Resource(
    "coordination.k8s.io/v1",
    "leases",
    names.LEASE,
    Lease,
    verbs=_WATCH,
    tolerate_forbidden=True,
    names=(names.OLD_OPERATOR_LEASE,),
)
OPERATOR_DEPLOYMENTS: Final = Resource(
    "apps/v1",
    "deployments",
    names.DEPLOYMENT,
    Deployment,
    verbs=_WATCH,
    tolerate_forbidden=True,
    names=names.OLD_OPERATOR_DEPLOYMENTS,
)
POD_MONITORS: Final = Resource(
    "monitoring.coreos.com/v1",
    "podmonitors",
    names.POD_MONITOR,
    PodMonitor,
    verbs=(*_READ, *_APPLY),
    optional=True,
    tolerate_forbidden=True,
)
ROLES: Final = Resource(
    "rbac.authorization.k8s.io/v1", "roles", names.ROLE, Role, verbs=(*_READ, *_APPLY), tolerate_forbidden=True
)
ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io/v1",
    "rolebindings",
    names.ROLE_BINDING,
    RoleBinding,
    verbs=(*_READ, *_APPLY),
    tolerate_forbidden=True,
)
EVENTS: Final = Resource("events.k8s.io/v1", "events", "Event", Event, verbs=("create", "patch"))
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io/v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    SubjectAccessReview,
    namespaced=False,
    verbs=("create",),
)
DAEMONSET_EVENTS: Final = Resource(
    "events.k8s.io/v1", "events", "Event", Event, verbs=_WATCH, tolerate_forbidden=True
)  # they say why a DaemonSet cannot create pods
ENDPOINT_SLICES: Final = Resource(
    "discovery.k8s.io/v1", "endpointslices", names.ENDPOINT_SLICE, EndpointSlice, tolerate_forbidden=True
)  # of the API server, of served Services, and of the webhook's own Service
SERVICE_CIDRS: Final = Resource(
    "networking.k8s.io/v1",
    "servicecidrs",
    names.SERVICE_CIDR,
    ServiceCIDR,
    namespaced=False,
    optional=True,
    tolerate_forbidden=True,
)
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io/v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    WebhookConfiguration,
    namespaced=False,
    verbs=(*_READ, *_APPLY),
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io/v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    WebhookConfiguration,
    namespaced=False,
    verbs=(*_READ, *_APPLY),
)

DECISION_KINDS: Final = (NETWORKS, SERVICE_CIDRS, NAMESPACES, NODES, POOLS, GROUPS, SERVICES)
"""What decisions about addresses read besides EndpointSlices. Services are last: they depend on the others."""

ALL: Final[tuple[Resource[HasMetadata], ...]] = (  # type: ignore[assignment]  # a tuple of every Resource[T]
    SERVICES,
    NODES,
    NAMESPACES,
    PODS,
    SECRETS,
    CONFIGMAPS,
    DAEMONSETS,
    GROUPS,
    POOLS,
    NETWORKS,
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
"""Every kind, for the comparison with RBAC."""
