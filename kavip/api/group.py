"""``KeepalivedGroup``: keepalived-operator's kind with kavip's additions (fields: config/crd)."""

from kavip import names
from kavip.api.address import Address, read_address
from kavip.api.meta import Condition, LabelSelector, Metadata, Passthrough, Wire, field


class SecretRef(Wire, frozen=True):
    """``spec.passwordAuth.secretRef``."""

    name: str = ""


class PasswordAuth(Wire, frozen=True):
    """``spec.passwordAuth``."""

    secret_ref: SecretRef = SecretRef()
    secret_key: str = names.DEFAULT_SECRET_KEY


class GroupVirtualIP(Wire, frozen=True):
    """
    ``spec.virtualIPs[]``: a VIP of the group itself, without a Service.

    *router_id* pins the VRID of its instance; entries with the same one are in one instance.
    """

    address: str
    interface: str = ""
    router_id: int | None = field(name="routerID", default=None)


class CaFrom(Wire, frozen=True):
    """``spec.checks[].caFrom``: the key of a ConfigMap, or of a Secret, that holds the CA of the checked URL."""

    name: str
    key: str = "ca.crt"
    kind: str = names.CONFIG_MAP


class Check(Wire, frozen=True):
    """``spec.checks[]``: an HTTP(S) health check that each node's agent runs."""

    name: str
    url: str
    interval_seconds: int = 2
    timeout_seconds: int = 1
    fail_after: int = 3
    succeed_after: int = 2
    on_failure: str = "Fault"
    weight: int | None = None
    ca_from: CaFrom | None = None
    expected_status: int | None = None


class Instances(Wire, frozen=True):
    """``spec.instances``."""

    mode: str = "PerService"
    count: int = names.DEFAULT_INSTANCE_COUNT


class PreferredNodes(Wire, frozen=True):
    """``spec.placement.preferred[]``: nodes with the labels of *node_selector* rank higher by *weight*, 1 to 100."""

    weight: int = 0
    node_selector: dict[str, str] | None = None


class GroupPlacement(Wire, frozen=True):
    """``spec.placement``: which nodes of the group hold the VIPs while they are up."""

    preferred: list[PreferredNodes] | None = None


class ConfigTemplateRef(Wire, frozen=True):
    """``spec.configTemplateRef``: the key of a ConfigMap in the group's namespace that holds a template."""

    name: str
    key: str = names.CONFIG_KEY


class GroupSpec(Wire, frozen=True):
    """``spec``; None means absent, which keeps keepalived-operator's meaning."""

    image: str = names.DEFAULT_IMAGE
    interface: str = ""
    interface_from_ip: str = field(name="interfaceFromIP", default="")
    node_selector: dict[str, str] | None = None
    password_auth: PasswordAuth | None = None
    verbatim_config: dict[str, str] | None = None
    blacklist_router_ids: list[int] | None = field(name="blacklistRouterIDs", default=None)
    unicast_enabled: bool | None = None
    daemonset_pod_priority_class_name: str = ""
    daemonset_pod_annotations: dict[str, str] | None = None
    # kavip's own
    vrrp_interface: str = ""
    virtual_ips: list[GroupVirtualIP] | None = field(name="virtualIPs", default=None)
    checks: list[Check] | None = None
    no_preempt: bool | None = None
    preempt_delay_seconds: int | None = None
    vrrp_version: int | None = None
    advert_interval_milliseconds: int | None = None
    segment: str | None = None
    openshift_cluster_name: str = ""
    instances: Instances = Instances()
    placement: GroupPlacement = GroupPlacement()
    drain_on: list[str] | None = None
    metrics_port: int | None = None
    allowed_namespaces: LabelSelector | None = None
    allow_verbatim: list[str] | None = None
    allow_scripts: bool = False
    resources: Passthrough | None = None
    tolerations: list[Passthrough] | None = None
    affinity: Passthrough | None = None
    image_pull_secrets: list[Passthrough] | None = None
    service_account_name: str = ""
    update_strategy: Passthrough | None = None
    agent_image: str = ""
    pod_template: Passthrough | None = None
    config_template_ref: ConfigTemplateRef | None = None


class InstanceStatus(Wire, frozen=True):
    """``status.instances[]``: one VRRP instance as the agents see it; *virtual_ips* is a count."""

    name: str
    router_id: int = field(name="routerID")
    family: int
    node: str = ""
    state: str = ""
    virtual_ips: int = field(name="virtualIPs", default=0)


class GroupVirtualIPStatus(Wire, frozen=True):
    """``status.virtualIPs[]``: the group's own VIPs only."""

    address: str
    node: str = ""
    state: str = ""


class NodesStatus(Wire, frozen=True, omit_defaults=False):
    """``status.nodes``: counts of the nodes that are *desired*, have a *ready* pod, run the *current* configuration."""

    desired: int = 0
    ready: int = 0
    current: int = 0


class GroupStatus(Wire, frozen=True):
    """
    ``status``; *router_ids* is the VRID database (:mod:`kavip.vrrp.keys`).

    *drained_nodes*: those that the published text drains, the one that was drained first at first.
    """

    conditions: list[Condition] | None = None
    router_ids: dict[str, int] | None = field(name="routerIDs", default=None)
    observed_generation: int = 0
    instances: list[InstanceStatus] | None = None
    virtual_ips: list[GroupVirtualIPStatus] | None = field(name="virtualIPs", default=None)
    nodes: NodesStatus | None = None
    drained_nodes: list[str] | None = None
    config_hash: str = ""
    metrics_port: int = 0


class KeepalivedGroup(Wire, frozen=True):
    """A KeepalivedGroup."""

    metadata: Metadata = Metadata()
    spec: GroupSpec = GroupSpec()
    status: GroupStatus = GroupStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.metadata.key

    @property
    def is_default(self) -> bool:
        """Whether the group is labelled as the default one."""
        return self.metadata.label(names.DEFAULT_GROUP_LABEL) == "true"

    @property
    def segment(self) -> str:
        """The segment over which VRIDs are unique; a group that names no segment has a segment of its own."""
        return self.spec.segment or f"group:{self.key}"

    @property
    def virtual_ips(self) -> tuple[Address, ...]:
        """The readable addresses of ``spec.virtualIPs``; a prefix length is not part of the address."""
        found = (read_address(entry.address.partition("/")[0]) for entry in self.spec.virtual_ips or ())
        return tuple(sorted({address for address in found if address}))

    @property
    def is_shared(self) -> bool:
        """Whether all VIPs of the group share ``spec.instances.count`` VRRP instances."""
        return self.spec.instances.mode == "Shared"
