"""What kavip makes for a group, as far as it reads it back, and the Deployment of others."""

from typing import Any

from kavip import names
from kavip.api.meta import Identity, Metadata, OwnerReference, Passthrough, Wire, field


class Container(Wire, frozen=True):
    """``spec.template.spec.containers[]``: only the names."""

    name: str = ""


class PodTemplateSpec(Wire, frozen=True):
    """``spec.template.spec``."""

    containers: list[Container] | None = None


class PodTemplate(Wire, frozen=True):
    """``spec.template``."""

    spec: PodTemplateSpec = PodTemplateSpec()


class DaemonSetSpec(Wire, frozen=True):
    """``spec``."""

    template: PodTemplate = PodTemplate()


class DaemonSet(Wire, frozen=True):
    """A DaemonSet; the API server raises ``metadata.generation`` with every change of its spec."""

    metadata: Metadata = Metadata()
    spec: DaemonSetSpec = DaemonSetSpec()


class DeploymentSpec(Wire, frozen=True):
    """``spec``; the API server writes 1 if *replicas* is absent."""

    replicas: int = 1


class DeploymentStatus(Wire, frozen=True):
    """``status``."""

    replicas: int = 0


class Deployment(Wire, frozen=True):
    """A Deployment."""

    metadata: Metadata = Metadata()
    spec: DeploymentSpec = DeploymentSpec()
    status: DeploymentStatus = DeploymentStatus()

    @property
    def is_running(self) -> bool:
        """Whether there are pods of it, or will be."""
        return bool(self.spec.replicas or self.status.replicas)


class ConfigMap(Wire, frozen=True):
    """A ConfigMap with text, and with bytes in base64."""

    metadata: Metadata = Metadata()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None

    @property
    def has_content(self) -> bool:
        """Whether it has data."""
        return bool(self.data or self.binary_data)


def without_content(configmap: ConfigMap) -> ConfigMap:
    """The same version of *configmap*, with the label of its group alone."""
    whole = configmap.metadata
    kept = {key: getattr(whole, key) for key in Identity.__struct_fields__}
    return ConfigMap(metadata=Metadata(**kept, labels={names.GROUP_LABEL: whole.label(names.GROUP_LABEL)}))


class ConfigMapIdentity(Wire, frozen=True):
    """A version of a ConfigMap, without its content."""

    metadata: Identity = Identity()


class ManagedFields(Wire, frozen=True):
    """``metadata.managedFields[]``: the fields that a manager owns."""

    manager: str = ""
    operation: str = ""
    subresource: str = ""
    fields: Passthrough | None = field(name="fieldsV1", default=None)


class WrittenMetadata(Metadata, frozen=True):
    """Metadata with the managers of the fields."""

    managed_fields: list[ManagedFields] | None = None


class Written(Wire, frozen=True):
    """A ConfigMap or DaemonSet with all its content, for a comparison."""

    metadata: WrittenMetadata = WrittenMetadata()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    spec: dict[str, Any] | None = None


class PodMonitor(Wire, frozen=True):
    """A PodMonitor of the Prometheus operator."""

    metadata: Metadata = Metadata()


class PolicyRule(Wire, frozen=True):
    """``rules[]`` of a Role; what kavip does not write is read too, so that it is taken away again."""

    api_groups: list[str] | None = None
    resources: list[str] | None = None
    resource_names: list[str] | None = None
    verbs: list[str] | None = None


class Role(Wire, frozen=True):
    """A Role."""

    metadata: Metadata = Metadata()
    rules: list[PolicyRule] | None = None


class RoleRef(Wire, frozen=True):
    """``roleRef``."""

    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(Wire, frozen=True):
    """``subjects[]``."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(Wire, frozen=True):
    """A RoleBinding."""

    metadata: Metadata = Metadata()
    role_ref: RoleRef = RoleRef()
    subjects: list[Subject] | None = None


def controller_of(metadata: Metadata) -> OwnerReference | None:
    """The owner that controls the object, or None."""
    return next((owner for owner in metadata.owner_references or () if owner.controller), None)
