"""
The kinds that kavip reads and writes, as data.

RBAC manifests are compared with the verbs listed here, so a call that is not listed fails a test before it fails in a
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
    """What every object of the API has."""

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
    One kind: *verbs* on the object itself, *parts* on its subresources.

    *optional* kinds may not be installed. A *dispensable* one may also be out of reach: without the right to read it
    kavip goes on as if there were none. *names*: those are all that is ever asked for.
    """

    api_version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True
    verbs: tuple[str, ...] = _WATCH
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    optional: bool = False
    dispensable: bool = False
    names: tuple[str, ...] = ()

    @property
    def group(self) -> str:
        """The API group; "" for the core one."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str = "", name: str = "", part: str = "") -> str:
        """The URL path of a collection, an object, or its subresource *part*."""
        segments = [f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"]
        if namespace:
            segments += ["namespaces", _segment(namespace)]
        segments.append(self.plural)
        if name:
            segments.append(_segment(name))
        if part:
            segments.append(part)
        return "/".join(segments)

    def object_path(self, key: str, part: str = "") -> str:
        """The URL path of the object with *key* (``ns/name``, or ``name`` where the kind is cluster-scoped)."""
        namespace, name = split(self, key)
        return self.path(namespace, name, part)


def split(resource: Resource[T], key: str) -> tuple[str, str]:
    """Namespace and name of *key*; a key of the wrong shape would address another object, so it is refused."""
    namespace, _, name = key.rpartition("/")
    if not name or bool(namespace) != resource.namespaced or "/" in namespace:
        want = "namespace/name" if resource.namespaced else "a name without a namespace"
        raise BadInput(f"key of a {resource.kind}", key, f"want {want}")
    return namespace, name


def _segment(text: str) -> str:
    if text in (".", ".."):
        raise BadInput("name", text, "want a name that is not a path of its own")
    return quote(text, safe="")


_STATUS: Final = (("status", ("patch",)),)

SERVICES: Final = Resource("v1", "services", names.SERVICE, Service, parts=_STATUS)
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
    # OpenShift lets only those who may update an owner's finalizers name it as the owner that blocks deletion
    parts=(*_STATUS, ("finalizers", ("update",))),
)
POOLS: Final = Resource(
    f"{names.KAVIP_GROUP}/{names.VERSION}", "vippools", names.VIP_POOL, VIPPool, namespaced=False, parts=_STATUS
)
NETWORKS: Final = Resource(
    "config.openshift.io/v1", "networks", names.NETWORK, Network, namespaced=False, optional=True
)
LEASES: Final = Resource("coordination.k8s.io/v1", "leases", names.LEASE, Lease, verbs=("get", "create", "patch"))
OLD_LEASES: Final = Resource(
    "coordination.k8s.io/v1",
    "leases",
    names.LEASE,
    Lease,
    verbs=_WATCH,
    dispensable=True,
    names=(names.OLD_OPERATOR_LEASE,),
)
OLD_DEPLOYMENTS: Final = Resource(
    "apps/v1",
    "deployments",
    names.DEPLOYMENT,
    Deployment,
    verbs=_WATCH,
    dispensable=True,
    names=names.OLD_OPERATOR_DEPLOYMENTS,
)
POD_MONITORS: Final = Resource(
    "monitoring.coreos.com/v1",
    "podmonitors",
    names.POD_MONITOR,
    PodMonitor,
    verbs=(*_READ, *_APPLY),
    optional=True,
    dispensable=True,
)
ROLES: Final = Resource(
    "rbac.authorization.k8s.io/v1", "roles", names.ROLE, Role, verbs=(*_READ, *_APPLY), dispensable=True
)
ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io/v1",
    "rolebindings",
    names.ROLE_BINDING,
    RoleBinding,
    verbs=(*_READ, *_APPLY),
    dispensable=True,
)
EVENTS: Final = Resource("events.k8s.io/v1", "events", "Event", Event, verbs=("create", "patch"))
ACCESS: Final = Resource(
    "authorization.k8s.io/v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    SubjectAccessReview,
    namespaced=False,
    verbs=("create",),
)
DAEMONSET_EVENTS: Final = Resource(
    "events.k8s.io/v1", "events", "Event", Event, verbs=_WATCH, dispensable=True
)  # why a DaemonSet gets no pods
ENDPOINT_SLICES: Final = Resource(
    "discovery.k8s.io/v1", "endpointslices", names.ENDPOINT_SLICE, EndpointSlice, dispensable=True
)  # where the API server is, where endpoints are, and whether a replica still stands behind the webhook's Service
SERVICE_CIDRS: Final = Resource(
    "networking.k8s.io/v1",
    "servicecidrs",
    names.SERVICE_CIDR,
    ServiceCIDR,
    namespaced=False,
    optional=True,
    dispensable=True,
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

DECISIVE: Final = (NETWORKS, SERVICE_CIDRS, NAMESPACES, NODES, POOLS, GROUPS, SERVICES)
"""What decisions about addresses look at, Services last: they are read by what the others say. Slices beside them."""

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
    OLD_LEASES,
    OLD_DEPLOYMENTS,
    POD_MONITORS,
    ROLES,
    ROLE_BINDINGS,
    EVENTS,
    ACCESS,
    DAEMONSET_EVENTS,
    ENDPOINT_SLICES,
    SERVICE_CIDRS,
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
)
"""Every kind, for those who check RBAC."""
