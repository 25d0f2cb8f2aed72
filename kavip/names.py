"""
Every string that another system can see.

Groups, kinds, annotations, labels, condition types, reasons, paths and ports stand here once; CRDs, chart, docs and
tests are compared with this page. It imports nothing of kavip.
"""

from enum import StrEnum
from typing import Final

# --- API groups and kinds -----------------------------------------------------------------------------------------
KAVIP_GROUP: Final = "kavip.io"
REDHATCOP_GROUP: Final = "redhatcop.redhat.io"  # keepalived-operator's group; its kind stays where users have it
VERSION: Final = "v1alpha1"

SERVICE: Final = "Service"
KEEPALIVED_GROUP: Final = "KeepalivedGroup"
VIP_POOL: Final = "VIPPool"
NODE: Final = "Node"
NAMESPACE: Final = "Namespace"
POD: Final = "Pod"
SECRET: Final = "Secret"
CONFIG_MAP: Final = "ConfigMap"
DAEMON_SET: Final = "DaemonSet"
DEPLOYMENT: Final = "Deployment"
LEASE: Final = "Lease"
POD_MONITOR: Final = "PodMonitor"  # monitoring.coreos.com/v1
ROLE: Final = "Role"
ROLE_BINDING: Final = "RoleBinding"
NETWORK: Final = "Network"  # config.openshift.io/v1
INFRASTRUCTURE: Final = "Infrastructure"  # config.openshift.io/v1
ENDPOINT_SLICE: Final = "EndpointSlice"  # discovery.k8s.io/v1
SERVICE_CIDR: Final = "ServiceCIDR"  # networking.k8s.io/v1

# --- What users write ---------------------------------------------------------------------------------------------
ANNOTATION_PREFIXES: Final = ("kavip.io/", "keepalived-operator.redhat-cop.io/")  # of what users write on a Service
LOAD_BALANCER_CLASS: Final = "kavip.io/keepalived"

GROUP_ANNOTATION: Final = "keepalived-operator.redhat-cop.io/keepalivedgroup"
VERBATIM_ANNOTATION: Final = "keepalived-operator.redhat-cop.io/verbatimconfig"
SPREAD_ANNOTATION: Final = "keepalived-operator.redhat-cop.io/spreadvips"
POOL_ANNOTATION: Final = "kavip.io/pool"
ADDRESSES_ANNOTATION: Final = "kavip.io/addresses"
COUNT_ANNOTATION: Final = "kavip.io/address-count"
PREFERRED_NODES_ANNOTATION: Final = "kavip.io/preferred-nodes"
SHARING_KEY_ANNOTATION: Final = "kavip.io/sharing-key"
REASSIGN_ANNOTATION: Final = "kavip.io/reassign"
HAND_OVER_ANNOTATION: Final = "kavip.io/hand-over"  # while `kavip import` takes the Service over; only that reads it

ROTATE_ANNOTATION: Final = "kavip.io/rotate"  # on the CA's Secret
ALLOW_STRANDING_ANNOTATION: Final = "kavip.io/allow-stranding"  # on a VIPPool
TAKE_OVER_ANNOTATION: Final = "kavip.io/take-over"  # on a KeepalivedGroup
REBALANCE_ANNOTATION: Final = "kavip.io/rebalance"  # on a KeepalivedGroup
DRAIN_ANNOTATION: Final = "kavip.io/drain"  # on a Node
DEFAULT_GROUP_LABEL: Final = "kavip.io/default-group"  # on a KeepalivedGroup
CONFIG_TEMPLATE_LABEL: Final = "kavip.io/config-template"  # on a ConfigMap: groups may name it, so kavip reads it

SERVICE_ANNOTATIONS: Final = (
    GROUP_ANNOTATION,
    VERBATIM_ANNOTATION,
    SPREAD_ANNOTATION,
    POOL_ANNOTATION,
    ADDRESSES_ANNOTATION,
    COUNT_ANNOTATION,
    PREFERRED_NODES_ANNOTATION,
    SHARING_KEY_ANNOTATION,
    REASSIGN_ANNOTATION,
    HAND_OVER_ANNOTATION,
)
"""The annotations that kavip reads on a Service."""
OTHER_ANNOTATIONS: Final = {
    ALLOW_STRANDING_ANNOTATION: VIP_POOL,
    TAKE_OVER_ANNOTATION: KEEPALIVED_GROUP,
    REBALANCE_ANNOTATION: KEEPALIVED_GROUP,
    DRAIN_ANNOTATION: NODE,
}
"""The annotations that users write on other objects, with the kind."""

# --- What kavip writes --------------------------------------------------------------------------------------------
FIELD_MANAGER: Final = "kavip"
VALUES_FIELD_MANAGER: Final = "kavip-values"  # writes the pools and groups of the chart's values
CA_FIELD_MANAGER: Final = "kavip-ca"  # writes caBundle, and owns it no longer than that
COOLDOWNS_ANNOTATION: Final = "kavip.io/cooldowns-resource-version"  # on the Lease
CONFIRMED_PREFIX: Final = "confirmed.kavip.io/"  # of an annotation per replica, on the CA's Secret
CONFIG_HASH_ANNOTATION: Final = "kavip.io/config-hash"
SWITCH_AT_ANNOTATION: Final = "kavip.io/switch-at"  # on a ConfigMap, for people: agents read agent.json
GROUP_LABEL: Final = "keepalivedGroup"  # DaemonSet selector and pods, ConfigMap
METRICS_LABEL: Final = "metrics"
METRICS_LABEL_VALUE: Final = "keepalived"
CONFIG_KEY: Final = "keepalived.conf"
TAKE_OVER_KEY: Final = "kavip.conf"  # in the same ConfigMap, while keepalived-operator's pods read the other one
NEXT_KEY: Final = "next.conf.gz"  # in the same ConfigMap: what all nodes switch to at one instant
AGENT_KEY: Final = "agent.json"  # in the same ConfigMap: what the agent needs in addition
METRICS_PORT_NAME: Final = "metrics"
KEEPALIVED_CONTAINER: Final = "keepalived"  # of the DaemonSet's pods, as are the next two
AGENT_CONTAINER: Final = "agent"
SETUP_CONTAINER: Final = "config-setup"  # keepalived-operator's name for the same step
OLD_AGENT_CONTAINER: Final = "config-reloader"  # of keepalived-operator's pods alone: by it they are recognised
PROMETHEUS_ROLE_SUFFIX: Final = "-prometheus-k8s"
PROMETHEUS_ACCOUNT: Final = "openshift-monitoring/prometheus-k8s"
IP_MODE_VIP: Final = "VIP"

LEASE_NAME: Final = "kavip-controller"
OLD_OPERATOR_LEASE: Final = "03846a46.redhat.io"
OLD_OPERATOR_DEPLOYMENTS: Final = ("keepalived-operator", "keepalived-operator-controller-manager")  # Helm's; OLM's
SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"  # on EndpointSlices
API_SERVER_SERVICE: Final = "default/kubernetes"  # its endpoints are the API servers
API_SERVER: Final = "the API server"  # as messages name whose own those addresses are
METRICS_SERVICE: Final = "kavip-metrics"  # the Service of the ServiceMonitor
CA_SECRET_NAME: Final = "kavip-webhook-ca"
CA_CONFIGMAP_NAME: Final = "kavip-webhook-ca"  # its trust bundle, which the webhook hands to the controller
CA_BUNDLE_KEY: Final = "ca.crt"
DROPPED_CAS_KEY: Final = "dropped.crt"  # in the same ConfigMap: what ca.crt no longer has, and caBundle still has
VALUES_CONFIGMAP_NAME: Final = "kavip-values"  # the pools and groups of the chart's values
VALUES_KEY: Final = "values.json"
VALUES_CONDITIONS_ANNOTATION: Final = "kavip.io/conditions"  # on it, for each pool and group: JSON
CORDONED_TAINT: Final = "node.kubernetes.io/unschedulable"  # Kubernetes' own, on a Node
POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"  # Kubernetes' own, on a Namespace
DEFAULT_SEGMENT: Final = "default"
PULL_POLICY: Final = "IfNotPresent"
DEFAULT_IMAGE: Final = "registry.redhat.io/openshift4/ose-keepalived-ipfailover"  # means kavip's own image
DEFAULT_SECRET_KEY: Final = "password"
DEFAULT_INSTANCE_COUNT: Final = 16
MAX_ROUTER_ID: Final = 255
MAX_VIPS: Final = 32  # of one Service
MAX_EXTERNAL_IPS: Final = 256  # that are read of one Service: the API server sets no limit, and each costs time

# --- Ports and paths ----------------------------------------------------------------------------------------------
WEBHOOK_PORT: Final = 9443
METRICS_PORT: Final = 8080
PROBE_PORT: Final = 8081
AGENT_PORT: Final = 9650

MUTATE_SERVICE_PATH: Final = "/mutate-v1-service"
MUTATE_GROUP_PATH: Final = "/mutate-keepalivedgroup"
VALIDATE_SERVICE_PATH: Final = "/validate-v1-service"
VALIDATE_GROUP_PATH: Final = "/validate-keepalivedgroup"
VALIDATE_POOL_PATH: Final = "/validate-vippool"

LIVE_PATH: Final = "/livez"
READY_PATH: Final = "/readyz"
METRICS_PATH: Final = "/metrics"
STATE_PATH: Final = "/state"
HANDOVER_PATH: Final = "/handover"
HANDOVER_HOST: Final = "127.0.0.1"
"""Where the agent serves :data:`HANDOVER_PATH`; kubelet is on the network of the node too."""

ENV_PREFIX: Final = "KAVIP"
TEMPLATE_FILE_VARIABLE: Final = "KEEPALIVEDGROUP_TEMPLATE_FILE_NAME"
"""keepalived-operator's variable with the path of its template."""
METRIC_PREFIX: Final = "kavip_"


PROBE: Final = "Probe"
"""``conflictDetection``: ask the LAN before a VIP is announced for the first time, and listen afterwards."""
OFF: Final = "Off"


class Exporter(StrEnum):
    """Whose names keepalived's metrics bear."""

    GEN2BRAIN = "gen2brain"
    MEHDY = "mehdy"


class Contest(StrEnum):
    """How an address may be wanted by two at once."""

    TWO_SERVICES = "TwoServices"
    NODE_OR_GROUP = "NodeOrGroup"
    WRITE_CONFLICT = "WriteConflict"


class ConditionType(StrEnum):
    """Types of conditions that kavip writes."""

    ADDRESS_ASSIGNED = "kavip.io/AddressAssigned"  # on a Service
    SERVICE_PROGRAMMED = "kavip.io/Programmed"  # on a Service
    ADVERTISED = "kavip.io/Advertised"  # on a Service
    APPLIED = "Applied"  # of a pool or group of the chart's values, in an annotation of their ConfigMap
    ACCEPTED = "Accepted"  # on a group or pool
    PROGRAMMED = "Programmed"  # on a group
    READY = "Ready"  # on a group or pool
    RECONCILE_SUCCESS = "ReconcileSuccess"  # on a group; keepalived-operator's
    RECONCILE_ERROR = "ReconcileError"  # on a group; keepalived-operator's


class Reason(StrEnum):
    """Reasons, shared by conditions, events, refusals, logs and tests."""

    # AddressAssigned: True
    ASSIGNED = "Assigned"
    STRANDED = "Stranded"
    FOREIGN_STATUS = "ForeignStatus"
    # AddressAssigned: False
    NO_POOL = "NoPool"
    POOL_NOT_FOUND = "PoolNotFound"
    POOL_SELECTOR_MISMATCH = "PoolSelectorMismatch"
    POOL_EXHAUSTED = "PoolExhausted"
    ADDRESS_NOT_IN_POOL = "AddressNotInPool"
    ADDRESS_IN_USE = "AddressInUse"
    ADDRESS_NOT_ALLOWED = "AddressNotAllowed"
    SHARING_REFUSED = "SharingRefused"
    FAMILY_NOT_AVAILABLE = "FamilyNotAvailable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    INVALID_REQUEST = "InvalidRequest"
    # AddressAssigned: Unknown
    LEFT_TO_PLATFORM = "LeftToPlatform"
    # Programmed, on Services and groups
    PROGRAMMED = "Programmed"
    GROUP_NOT_FOUND = "GroupNotFound"
    NAMESPACE_NOT_ALLOWED = "NamespaceNotAllowed"
    ROUTER_IDS_EXHAUSTED = "RouterIDsExhausted"
    INVALID_VERBATIM = "InvalidVerbatim"
    NO_NODES = "NoNodes"
    PENDING = "Pending"
    REFUSED_BY_AGENT = "RefusedByAgent"
    SECRET_MISSING = "SecretMissing"
    # Advertised: True
    MASTER = "Master"
    NO_ENDPOINTS = "NoEndpoints"
    # Advertised: False or Unknown
    ENDPOINTS_OUTSIDE_GROUP = "EndpointsOutsideGroup"
    NO_MASTER = "NoMaster"
    SPLIT_BRAIN = "SplitBrain"
    ADDRESS_CONFLICT = "AddressConflict"
    UNKNOWN = "Unknown"
    # Accepted and Ready, on groups and pools
    ACCEPTED = "Accepted"
    INVALID = "Invalid"
    OVERLAP = "Overlap"
    OBJECT_CONFLICT = "ObjectConflict"
    DUPLICATE_DEFAULT = "DuplicateDefault"
    OLD_OPERATOR_RUNNING = "OldOperatorRunning"
    READY = "Ready"
    EXHAUSTED = "Exhausted"
    NO_ADDRESSES = "NoAddresses"
    PODS_NOT_READY = "PodsNotReady"
    VRID_COLLISION = "VRIDCollision"
    # Applied, of the chart's values; it shares Invalid, Pending and OldOperatorRunning
    APPLIED = "Applied"
    NAMESPACE_NOT_FOUND = "NamespaceNotFound"
    REFUSED = "Refused"
    # Event about VIPs that have moved to another node
    MASTER_CHANGED = "MasterChanged"
    # Refusals at admission alone
    PERMISSION_MISSING = "PermissionMissing"
    # Event about the Lease
    COOLDOWNS_LOST = "CooldownsLost"
    # Events about the webhook's certificate, on its Secret
    CERTIFICATE_RENEWED = "CertificateRenewed"
    CERTIFICATE_UNUSABLE = "CertificateUnusable"
    # keepalived-operator's, misspelling included: its users wait for these words
    RECONCILE_SUCCEEDED = "LastReconcileCycleSucceded"
    RECONCILE_FAILED = "LastReconcileCycleFailed"


ADVERTISED_REASONS: Final = (
    Reason.MASTER,
    Reason.NO_ENDPOINTS,
    Reason.ENDPOINTS_OUTSIDE_GROUP,
    Reason.NO_MASTER,
    Reason.SPLIT_BRAIN,
    Reason.ADDRESS_CONFLICT,
    Reason.UNKNOWN,
)
"""The reasons of Advertised, in the order of the reference."""
