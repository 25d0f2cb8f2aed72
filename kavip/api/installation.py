"""What only ``kavip doctor`` and ``collect`` read: CRDs, workloads, heartbeats, times of writes, and whole objects."""

from typing import Any

from kavip.api.meta import Condition, Metadata, Wire, field


class TimedFields(Wire, frozen=True):
    """``metadata.managedFields[]``: when a manager last wrote, by the clock of the API server, in whole seconds."""

    time: str = ""


class TimedMetadata(Metadata, frozen=True):
    """``metadata`` with the times of the writes."""

    managed_fields: list[TimedFields] | None = None

    @property
    def written(self) -> str:
        """When the object was last written; "" if that is unknown."""
        return max((each.time for each in self.managed_fields or ()), default="")


class HeartbeatSpec(Wire, frozen=True):
    """``spec``; the holder writes *renew_time* by its own clock."""

    renew_time: str | None = None


class Heartbeat(Wire, frozen=True):
    """``coordination.k8s.io/v1`` Lease in ``kube-node-lease``, which kubelet renews."""

    metadata: TimedMetadata = TimedMetadata()
    spec: HeartbeatSpec = HeartbeatSpec()


class PublishedConfig(Wire, frozen=True):
    """The ConfigMap of a group."""

    metadata: TimedMetadata = TimedMetadata()
    data: dict[str, str] | None = None


class Schema(Wire, frozen=True):
    """A part of ``openAPIV3Schema``; *keeps_unknown*: fields without a schema are not dropped."""

    properties: "dict[str, Schema] | None" = None
    keeps_unknown: bool = field(name="x-kubernetes-preserve-unknown-fields", default=False)


class VersionSchema(Wire, frozen=True):
    """``spec.versions[].schema``."""

    root: Schema = field(name="openAPIV3Schema", default=Schema())


class DefinedVersion(Wire, frozen=True):
    """``spec.versions[]``."""

    name: str
    served: bool = False
    schema: VersionSchema = VersionSchema()


class DefinitionSpec(Wire, frozen=True):
    """``spec``."""

    versions: list[DefinedVersion] | None = None


class DefinitionStatus(Wire, frozen=True):
    """``status``."""

    conditions: list[Condition] | None = None


class Definition(Wire, frozen=True):
    """A CustomResourceDefinition."""

    metadata: Metadata = Metadata()
    spec: DefinitionSpec = DefinitionSpec()
    status: DefinitionStatus = DefinitionStatus()


class Variable(Wire, frozen=True):
    """``env[]`` of a container."""

    name: str = ""
    value: str = ""


class Program(Wire, frozen=True):
    """``containers[]``: what it runs."""

    name: str = ""
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[Variable] | None = None

    def variable(self, name: str) -> str:
        """The value of an environment variable; "" if it is not set as text."""
        return next((each.value for each in self.env or () if each.name == name), "")


class WorkloadPodSpec(Wire, frozen=True):
    """``spec.template.spec``."""

    service_account_name: str = ""
    containers: list[Program] | None = None


class WorkloadTemplate(Wire, frozen=True):
    """``spec.template``."""

    spec: WorkloadPodSpec = WorkloadPodSpec()


class WorkloadSpec(Wire, frozen=True):
    """``spec``; a DaemonSet has no *replicas*."""

    replicas: int = 1
    template: WorkloadTemplate = WorkloadTemplate()


class WorkloadStatus(Wire, frozen=True):
    """``status``."""

    ready_replicas: int = 0


class Workload(Wire, frozen=True):
    """A Deployment or a DaemonSet."""

    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def containers(self) -> list[Program]:
        """The containers of its pods."""
        return self.spec.template.spec.containers or []


class WholeObject(Wire, frozen=True):
    """Any object with all of its ``spec`` and ``status``, and without ``managedFields``."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] | None = None
    status: dict[str, Any] | None = None
