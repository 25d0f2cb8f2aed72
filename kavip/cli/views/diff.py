"""
The changes that files would make in a cluster: ``kavip plan --diff``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kavip import names
from kavip.api.address import Address
from kavip.api.text import printable
from kavip.cli.views.listing import Listing
from kavip.cli.views.objectdiff import diffs_of
from kavip.cli.views.simulate import Simulation
from kavip.cli.views.switchover import GroupSwitchover, switchover_of
from kavip.podtemplate.permissions import TemplatePermissions
from kavip.reconcile.plan import ReconcileOptions
from kavip.snapshot import Snapshot
from kavip.vrrp.keys import holding_keys


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One value of *subject* (``Kind ns/name``) that would change: *field*, *before* and *after*; "" is none."""

    subject: str
    field: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ClusterDiff:
    """
    All changes, sorted: single values, and texts as unified diffs by ``Kind ns/name`` and key.

    *switchovers*: the changes that all nodes of a group would make at one instant. *pending*: those for which the
    cluster already waits.
    """

    changes: tuple[FieldChange, ...]
    diffs: tuple[tuple[str, str], ...]
    switchovers: tuple[GroupSwitchover, ...] = ()
    pending: tuple[GroupSwitchover, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything would change."""
        return bool(self.changes or self.diffs)


def diff_of(simulated: Simulation, cluster: Listing) -> ClusterDiff:
    """The changes in *cluster* if the files of *simulated* were applied."""
    before, after = Snapshot.from_objects(cluster.objects), simulated.snapshot
    diffs: dict[str, str] = {}
    switchovers: list[GroupSwitchover] = []
    for body in simulated.objects:
        key = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
        found, group = cluster.written.get(f"{body['kind']} {key}"), after.groups.get(key)
        diffs |= dict(diffs_of(body, found, group))
        if body["kind"] == names.CONFIG_MAP and found is not None and group is not None:
            switchovers += filter(None, [switchover_of(group, found, body)])
    changes = sorted([*_addresses(before, after), *_router_ids(before, after)], key=lambda change: change.subject)
    return ClusterDiff(
        tuple(changes),
        tuple(sorted(diffs.items())),
        switchovers=tuple(each for each in switchovers if not each.is_pending),
        pending=tuple(each for each in switchovers if each.is_pending),
    )


def text(diff: ClusterDiff) -> str:
    """*diff* for people: values and switchovers, then unified diffs."""
    lines = [
        f"{each.subject}: {each.field}: {each.before or 'none'} -> {each.after or 'none'}" for each in diff.changes
    ]
    lines += map(str, diff.switchovers)
    return "\n".join(map(printable, [*lines, *(line for _, each in diff.diffs for line in each.split("\n"))]))


def data(diff: ClusterDiff) -> dict[str, Any]:
    """*diff* for programs."""
    return {
        "changes": [
            {"subject": each.subject, "field": each.field, "before": each.before, "after": each.after}
            for each in diff.changes
        ],
        "diffs": [{"subject": subject, "diff": unified} for subject, unified in diff.diffs],
        "together": [{"group": each.group, "what": each.what} for each in diff.switchovers],
        "waits": [{"group": each.group, "what": each.what} for each in diff.pending],
    }


def settings_of(cluster: Listing, *, ipam: str, templates: TemplatePermissions) -> ReconcileOptions:
    """The settings of the kavip that runs in *cluster*, read from its DaemonSets; the defaults if there is none."""
    groups = Snapshot.from_objects(cluster.objects).groups
    for what, daemonset in sorted(cluster.written.items()):
        kind, key = what.split(" ", 1)
        pod = ((daemonset.spec or {}).get("template") or {}).get("spec") or {}
        agents = [each for each in pod.get("containers") or () if each.get("name") == names.AGENT_CONTAINER]
        spec = groups[key].spec if key in groups else None
        if kind != names.DAEMON_SET or not agents or (spec and spec.agent_image):
            continue
        agent, own_secrets = agents[0], (spec and spec.image_pull_secrets) or []
        environment = {each["name"]: each.get("value", "") for each in agent.get("env", ())}
        return ReconcileOptions(
            image=agent["image"],
            pull_policy=agent.get("imagePullPolicy", names.PULL_POLICY),
            pull_secrets=tuple(each["name"] for each in pod.get("imagePullSecrets") or () if each not in own_secrets),
            ipam=ipam,
            templates=templates,
            agent_allowed_cidrs=environment.get("KAVIP_AGENT_ALLOWED_CIDRS", ""),
            agent_metrics=environment.get("KAVIP_AGENT_METRICS", names.Exporter.GEN2BRAIN.value),
        )
    return ReconcileOptions(ipam=ipam, templates=templates)


def _addresses(before: Snapshot, after: Snapshot) -> Iterator[FieldChange]:
    for key, service in sorted(after.services.items()):
        old = before.services.get(key)
        had, has = (_joined(each.ingress_addresses) if each else "" for each in (old, service))
        if had != has:
            yield FieldChange(f"{names.SERVICE} {key}", "status.loadBalancer.ingress", had, has)


def _joined(addresses: tuple[Address, ...]) -> str:
    return ",".join(map(str, addresses))


def _router_ids(before: Snapshot, after: Snapshot) -> Iterator[FieldChange]:
    for key, group in sorted(after.groups.items()):
        old = before.groups.get(key)
        had = holding_keys((old.status.router_ids if old else None) or {})
        has = group.status.router_ids or {}
        for name in sorted(had.keys() | has.keys()):
            if had.get(name) != has.get(name):
                numbers = (str(each) if each else "" for each in (had.get(name), has.get(name)))
                yield FieldChange(f"{names.KEEPALIVED_GROUP} {key}", f"status.routerIDs[{name}]", *numbers)
