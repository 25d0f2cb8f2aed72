"""
The plan of one group.

Pure: Snapshot, agents' answers and owned objects in, Plan out. The order of things is what keeps VIPs where they are:
VRIDs and port stand in status before an object uses them, the ConfigMap is written before the pods are told, and an
object that is not kavip's is left alone, with a condition that says whose it is. What concerns one Service only, a bad
line or a VRID that is not left, never stops the group.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.address import Address, read_address
from kavip.api.cluster import Node, Pod
from kavip.api.group import GroupStatus, KeepalivedGroup
from kavip.api.instant import instant_text
from kavip.api.workload import controller_of
from kavip.reconcile.group import monitoring
from kavip.reconcile.group.accepted import Trouble, accepted, is_served
from kavip.reconcile.group.desired import Roster, roster_of
from kavip.reconcile.group.inactive import accepted_events, plan_outside
from kavip.reconcile.group.manifests import Manifest
from kavip.reconcile.group.members import judge
from kavip.reconcile.group.objects import RECHECK, Belongings, bodies_of
from kavip.reconcile.group.pods import NUDGE, errands, lacks_password
from kavip.reconcile.group.status import View, status_of
from kavip.reconcile.mergepatch import merge_patch
from kavip.reconcile.migration.progress import Takeover, takeover_of
from kavip.reconcile.migration.replacement import plan_replacement, with_leaders
from kavip.reconcile.observed import neighbours
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import (
    Apply,
    GroupPlan,
    GroupRecord,
    Key,
    KeyKind,
    PodAnnotation,
    ProbeTarget,
    ReconcileOptions,
    StatusPatch,
    timestamp,
)
from kavip.reconcile.rollout import peers
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, settings_of
from kavip.reconcile.rollout.peers import Scene, scene_of
from kavip.reconcile.rollout.readiness import Assembly, since, voters_of
from kavip.reconcile.rollout.switchover import Switching, Voter, decide
from kavip.reconcile.service.vips import ServingGroup
from kavip.snapshot import Snapshot

_SEEN: Final = Observed()
_DEFAULTS: Final = ReconcileOptions()
_NEEDED: Final = (names.CONFIG_MAP, names.DAEMON_SET)


def plan_group(
    snapshot: Snapshot,
    key: str,
    *,
    now: datetime,
    observed: Observed = _SEEN,
    options: ReconcileOptions = _DEFAULTS,
) -> GroupPlan:
    """What is to be written for the group with *key*, and which of its Services have to be looked at again."""
    group = snapshot.any_group(key)
    if group is None:
        return GroupPlan(also=tuple(Key(KeyKind.SERVICE, service.key) for service in snapshot.members(key)))
    if group.metadata.deletion_timestamp:
        return GroupPlan()  # what it owns is being collected
    if key in snapshot.outside:
        return plan_outside(snapshot, group, observed.objects.pods_of(key), now=now)
    taken = _takeover(snapshot, group, observed)
    return _plan(snapshot, Belongings(group, observed, now, taken), observed, options)


def _takeover(snapshot: Snapshot, group: KeepalivedGroup, observed: Observed) -> Takeover:
    seen = observed.objects.configmaps.get(group.key)
    owner = controller_of(seen.metadata) if seen else None
    ours = seen if owner is not None and owner.uid == group.metadata.uid else None
    pods, states = observed.objects.pods_of(group.key), observed.agents.states_of(group.key)
    found = takeover_of(snapshot, group, configmap=ours, pods=pods, states=states)
    return with_leaders(found)


def _plan(snapshot: Snapshot, owned: Belongings, observed: Observed, options: ReconcileOptions) -> GroupPlan:
    group, objects, now = owned.group, observed.objects, owned.now
    published = owned.published
    roster = _worked_out(snapshot, owned, observed, options)
    switching = _switching(owned, published, roster, observed)
    in_the_way = owned.in_the_way(_NEEDED)
    wanted = switching.published if switching else None
    is_ours = in_the_way is None and is_served(group)
    bodies = bodies_of(group, roster, options, wanted, owned.taken) if is_ours else ()
    needed = Trouble(in_the_way, owned.refused(bodies))
    if needed.refused:
        bodies = ()
    monitored, watched = _monitoring(owned, options) if bodies else (Trouble(None, ""), ())
    serving = ServingGroup.of(snapshot, group.key, observed)
    pods = objects.pods_of(group.key)
    mastership = serving.mastership(observed)
    judged = judge(serving, roster, mastership, observed.records.group(group.key))
    config_hash = wanted.current.hash if wanted and bodies else group.status.config_hash
    applies = owned.applies((*bodies, *watched)) if roster.is_settled else ()
    is_written = bool(bodies) and roster.is_settled and not applies
    replacement = plan_replacement(
        owned.taken,
        config_hash=roster.config.hash if roster.config else "",
        model=roster.model,
        last=observed.records.replaced.get(group.key),
        is_written=is_written,
    )
    view = View(
        snapshot=snapshot,
        group=group,
        roster=roster,
        states=observed.agents.states_of(group.key),
        pods=pods,
        accepted=accepted(snapshot, group, roster, needed=needed, monitored=monitored),
        config_hash=config_hash,
        complaint=objects.failure_of(group.key),
        mastership=mastership,
        doubts=judged.doubts,
        taking_over=replacement.programmed,
        switching=switching.message if switching else "",
    )
    pauses = _pauses(view, needed=bool(needed or monitored), look=switching.look if switching else None)
    return GroupPlan(
        writes=(
            *applies,
            *_errands(view, bodies, applies, owned),
            *((replacement.delete,) if replacement.delete else ()),
            *_status(view, now),
        ),
        events=accepted_events(group, view.accepted),
        record=GroupRecord(roster.reserved, roster.left_out, judged.doubts, judged.obstructed),
        target=_target(roster, config_hash, wanted, owned.taken, pods) if config_hash else None,
        requeue_after=min((*judged.waits, *pauses), default=None),
        also=judged.wrong,
        also_low_priority=judged.reworded,
    )


def _pauses(view: View, *, needed: bool, look: float | None) -> tuple[float, ...]:
    """After how many seconds to look again for what no watch tells; *look*: at a switch."""
    rolling = (
        *((peers.RECHECK,) if view.roster.is_rolling else ()),
        *((neighbours.RECHECK,) if view.roster.is_waiting else ()),
    )
    found = (NUDGE,) if lacks_password(view) else (RECHECK,) if needed else ()
    return (*rolling, *found) if look is None else (*rolling, *found, look)


def _scene(snapshot: Snapshot, owned: Belongings, observed: Observed) -> Scene:
    group, pods = owned.group, observed.objects.pods.get(owned.group.key, {})
    runs = owned.runs
    text, config_hash = (runs.text, runs.hash) if runs else ("", "")
    return scene_of(snapshot, group, pods, observed.agents, text=text, config_hash=config_hash, now=owned.now)


def _worked_out(snapshot: Snapshot, owned: Belongings, observed: Observed, options: ReconcileOptions) -> Roster:
    """What the group is to run."""
    group, running = owned.group, owned.runs.text if owned.runs else ""
    return roster_of(
        snapshot,
        group,
        reserved=observed.records.reserved,
        running=running,
        options=options,
        scene=_scene(snapshot, owned, observed),
        coexistence=owned.taken.coexistence,
        elsewhere=neighbours.elsewhere_of(snapshot, observed.objects, group),
    )


def _switching(
    owned: Belongings, published: PublishedRevisions | None, roster: Roster, observed: Observed
) -> Switching | None:
    """What to publish of the *roster*; None where there is nothing."""
    group, now, states = owned.group, owned.now, observed.agents.states_of(owned.group.key)
    if roster.config is None:
        return None
    contacts = observed.agents.contacts_of(group.key)
    before, renewed = published.at(now) if published else None, since(states, contacts) is not None
    settings = replace(settings_of(group), renewals=(before.current.settings.renewals if before else 0) + renewed)
    wanted = roster.next or roster.config
    following = Revision(wanted.text, wanted.hash, settings, renewed=renewed)
    current = Revision(roster.config.text, roster.config.hash, before.current.settings if before else settings)
    is_new = roster.next is not None or following.settings != current.settings or following.renewed
    if owned.taken.is_active:
        is_new = False  # old daemons cannot switch; what runs beside them is decided by them

    def vote(on: Revision) -> Sequence[Voter]:
        assembly = Assembly(
            nodes=roster.crew,
            pods=observed.objects.pods_of(group.key),
            states=states,
            hearings=contacts,
            runs=(published.current if published else current).hash,
        )
        return voters_of(assembly, on, now=now)

    return decide(published, current, following if is_new else None, vote=vote, now=now)


def _monitoring(owned: Belongings, options: ReconcileOptions) -> tuple[Trouble, tuple[Manifest, ...]]:
    """The objects for Prometheus, where its operator is installed, and what is wrong with them."""
    if not owned.observed.objects.has_pod_monitors:
        return Trouble(None, ""), ()
    in_the_way = owned.in_the_way(monitoring.KINDS)
    bodies = monitoring.bodies_of(owned.group, account=options.prometheus_account) if in_the_way is None else ()
    refused = owned.refused(bodies)
    return Trouble(in_the_way, refused), () if refused else bodies


def _errands(
    view: View, bodies: Sequence[Manifest], applies: Sequence[Apply], owned: Belongings
) -> tuple[PodAnnotation, ...]:
    """Tell the pods, once the ConfigMap is as it should be or about to be."""
    if not bodies:
        return ()
    data: Mapping[str, str] = bodies[0]["data"]
    is_written = any(each.kind == names.CONFIG_MAP for each in applies)
    if not is_written and not owned.holds(data):
        return ()  # VRIDs first
    return errands(view, data, now=owned.now)


def _status(view: View, now: datetime) -> tuple[StatusPatch, ...]:
    old, new = view.group.status, status_of(view, now=timestamp(now))
    if new.router_ids is old.router_ids:  # thousands in Shared mode
        old, new = (msgspec.structs.replace(each, router_ids=None) for each in (old, new))
    changes = merge_patch(_json(old), _json(new))
    if not changes:
        return ()
    body = {"metadata": {"resourceVersion": view.group.metadata.resource_version}, "status": changes}
    return (StatusPatch(KeyKind.GROUP, view.group.key, body),)


def _json(status: GroupStatus) -> Mapping[str, Any]:
    body: dict[str, Any] = msgspec.to_builtins(status)
    return body


def _target(
    roster: Roster, config_hash: str, published: PublishedRevisions | None, taken: Takeover, pods: Iterable[Pod]
) -> ProbeTarget:
    speaks = dict(roster.model.instances[0].sources) if roster.model and roster.model.instances else {}
    heeds = {pod.spec.node_name: read_address(pod.status.host_ip) for pod in pods}
    named = ((node.metadata.name, node) for node in roster.crew)
    hosts = ((name, _host(node, heeds.get(name), speaks.get(name))) for name, node in named)
    following = published.next if published else None
    return ProbeTarget(
        {name: host for name, host in hosts if host},
        roster.port,
        config_hash,
        old=frozenset(taken.old) if taken.is_active else frozenset(),
        instances=taken.instances,
        prepared=following.digest if following else "",
        switch_at=instant_text(published.switch_at) if published else "",
    )


def _host(node: Node, own: Address | None, speaks: Address | None) -> str:
    """
    Where the agent of *node* listens, as URLs write it; "" where nobody says.

    At the *own* address that its pod was told, if that is one of the node's; a node without any *speaks* from one.
    """
    listed = node.host_addresses
    address = own if own in listed else next(iter(listed), speaks)
    if address is None:
        return ""
    return f"[{address}]" if address.family == 6 else str(address)
