"""
What ``kavip doctor`` has read of a cluster. A source that could not be read, or not wholly, has a gap.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from kavip.api.agent import AgentState, short_line
from kavip.api.installation import Definition, Heartbeat, PublishedConfig, Workload
from kavip.api.registration import WebhookConfiguration
from kavip.reconcile.observed.agent import node_state
from kavip.reconcile.observed.agentstates import NodeState
from kavip.snapshot import Object


class Source(StrEnum):
    """What is read, as the right that it needs."""

    VERSION = "get /version"
    DEFINITIONS = "get customresourcedefinitions"
    WEBHOOKS = "get mutatingwebhookconfigurations and validatingwebhookconfigurations"
    DRY_RUN = "create services in namespace default"
    WORKLOADS = "list deployments and daemonsets"
    REVIEWS = "create subjectaccessreviews"
    NODES = "list nodes"
    SERVICES = "list services"
    POOLS = "list vippools"
    GROUPS = "list keepalivedgroups"
    SERVICE_RANGES = "list servicecidrs"
    HEARTBEATS = "list leases in namespace kube-node-lease"
    CONFIGS = "get configmaps of groups"
    AGENTS = "list pods, and get pods/proxy"


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a source could not be read; *is_whole*: nothing of it."""

    reason: str
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class DryRun:
    """
    The answer to a Service that kavip refuses, as a dry run.

    *status*: the HTTP status, 201 if the API server would have stored it. *message*: why not.
    """

    status: int
    message: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """*account* (``ns/name``) may do *verb* with *resource* of the API *group*, in *namespace* ("": everywhere)."""

    account: str
    verb: str
    group: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        """As messages name it."""
        what = f"{self.verb} {self.resource}{f'.{self.group}' if self.group else ''}"
        return f"{what} in {f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """
    The answer of the agent of *group* on *node*. *mounted*: the hash of the configuration in its mount.

    *again*: a second answer, some seconds later, if it was asked twice.
    """

    group: str
    node: str
    state: NodeState
    mounted: str = ""
    again: NodeState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """
    What was read, *at* a time.

    *configurations*: by kind. *definitions*: by name. *denied*: the rights that accounts of
    kavip lack. *configs*: the ConfigMaps of groups, by key.
    """

    at: datetime
    objects: tuple[Object, ...] = ()
    version: str = ""
    definitions: Mapping[str, Definition] = field(default_factory=dict)
    configurations: Mapping[str, WebhookConfiguration] = field(default_factory=dict)
    dry_run: DryRun | None = None
    workloads: tuple[Workload, ...] = ()
    denied: tuple[Right, ...] = ()
    heartbeats: tuple[Heartbeat, ...] = ()
    configs: Mapping[str, PublishedConfig] = field(default_factory=dict)
    agents: tuple[AgentAnswer, ...] = ()
    gaps: Mapping[Source, Gap] = field(default_factory=dict)


def agent_answer(state: AgentState, *, group: str, node: str) -> AgentAnswer:
    """The answer *state* of the agent of *group* on *node*, cut to what the checks need."""
    return AgentAnswer(group, node, node_state(state), mounted=short_line(state.wanted_hash))
