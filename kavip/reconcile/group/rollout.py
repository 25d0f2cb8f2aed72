"""
What to do now so that the nodes of a group come to run its configuration: publish, apply, replace pods, ask agents.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from kavip import names
from kavip.api.address import Address, read_address
from kavip.api.cluster import Node, Pod
from kavip.api.group import KeepalivedGroup
from kavip.api.instant import instant_text
from kavip.memo import Change
from kavip.reconcile.group import annotations
from kavip.reconcile.group.desired import Desired
from kavip.reconcile.group.existing import Existing
from kavip.reconcile.group.objects import ObjectsPlan, plan_objects
from kavip.reconcile.observed.observed import Observed
from kavip.reconcile.plan import CalledOffSwitch, ProbeTarget, ReconcileOptions
from kavip.reconcile.rollout.configmap import Revision, note_made, settings_of
from kavip.reconcile.rollout.difference import rolled_links
from kavip.reconcile.rollout.poollinks import PoolLinks
from kavip.reconcile.rollout.readiness import new_password_since, readiness_of
from kavip.reconcile.rollout.switchover import Switchover, plan_switchover
from kavip.reconcile.takeover.replacement import Replacement, plan_replacement
from kavip.vrrp.virtualips import VirtualIP


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """
    What to do now.

    *switchover*: the revisions to publish; None: there is no configuration. *objects*: what to apply. *replacement*:
    the pod of keepalived-operator to delete. *config_hash*: the configuration that the nodes should run. *target*:
    where the prober asks the agents. *called_off*: the last such switch.
    """

    switchover: Switchover | None
    objects: ObjectsPlan
    replacement: Replacement
    config_hash: str
    target: ProbeTarget | None
    called_off: CalledOffSwitch


def plan_rollout(
    group: KeepalivedGroup,
    observed: Observed,
    *,
    existing: Existing,
    desired: Desired,
    options: ReconcileOptions,
    now: datetime,
) -> Rollout:
    """Decide what to do now, from what is *existing* to what is *desired*."""
    switchover = _plan_switchover(group, observed, existing=existing, desired=desired, now=now)
    published, current = (switchover.published, desired.configuration.current) if switchover else (None, None)
    if published:
        note_made(published, existing.published, desired.members.memory)
    called_off = _called_off(group, observed, existing, switchover, now=now)
    objects = plan_objects(
        group,
        observed,
        existing=existing,
        desired=desired,
        published=published,
        called_off=called_off,
        options=options,
        now=now,
    )
    replacement = plan_replacement(
        existing.takeover,
        config_hash=current.hash if current else "",
        model=desired.configuration.model,
        last=observed.records.replaced.get(group.key),
        is_written=objects.is_current,
        refused=observed.records.pods.get(group.key),
        now=now,
    )
    config_hash = published.current.hash if published and objects.has_objects else group.status.config_hash
    return Rollout(
        switchover=switchover,
        objects=objects,
        replacement=replacement,
        config_hash=config_hash,
        target=target_of(existing, desired, switchover, config_hash) if config_hash else None,
        called_off=called_off,
    )


def _called_off(
    group: KeepalivedGroup, observed: Observed, existing: Existing, switchover: Switchover | None, *, now: datetime
) -> CalledOffSwitch:
    """The last switch that was called off: this plan drops its instant, or an earlier one did."""
    announced = existing.published.switch_at if existing.published else None
    if announced is None or switchover is None or switchover.published.switch_at == announced:
        return observed.records.group(group.key).called_off
    present = frozenset(each.metadata.annotation(names.CONFIG_HASH_ANNOTATION) for each in existing.pods)
    return CalledOffSwitch(present, observed.agents.at + (announced - now).total_seconds())


def _plan_switchover(
    group: KeepalivedGroup, observed: Observed, *, existing: Existing, desired: Desired, now: datetime
) -> Switchover | None:
    """Which revisions to publish."""
    configuration, running = desired.configuration, existing.running
    if configuration.current is None:
        return None
    pending = existing.published.next if existing.published else None
    was_renewed = (  # as the last leader has heard
        desired.awaits_agents
        and pending is not None
        and pending.renewed
        and replace(pending.settings, renewals=0) == settings_of(group)
    )
    renewed = was_renewed or new_password_since(group.key, observed.agents) is not None
    settings = replace(settings_of(group), renewals=(running.settings.renewals if running else 0) + renewed)
    wanted = configuration.next or configuration.current
    following = Revision(
        wanted.content,
        wanted.hash,
        settings,
        renewed,
        desired.links,
        wanted.is_packed,
        configuration.final if configuration.next else configuration.model,
    )
    current = Revision(
        configuration.current.content,
        configuration.current.hash,
        running.settings if running else settings,
        links=_current_links(running, following, desired),
        is_packed=configuration.current.is_packed,
        model=configuration.model,
    )
    is_new = (
        configuration.next is not None
        or following.settings != current.settings
        or following.links.routes != current.links.routes
        or renewed
    )
    if existing.takeover.is_active:
        is_new = False  # pods of keepalived-operator cannot switch, and they decide what may run with them
    ask = partial(
        readiness_of,
        running=running or current,
        group=group.key,
        nodes=desired.all_nodes,
        observed=observed,
        now=now,
    )
    return plan_switchover(
        existing.published,
        current=current,
        following=following if is_new else None,
        ask=ask,
        annotating=len(existing.pods) * annotations.INTERVAL,  # what prepared them has spent the burst
        now=now,
    )


def _current_links(running: Revision | None, following: Revision, desired: Desired) -> PoolLinks:
    """What the nodes need of pools until all have switched to *following*."""
    if running is None:
        return following.links
    model = desired.configuration.model
    named = frozenset[str]().union(*(each.interfaces for each in model.instances)) if model else frozenset[str]()
    known = {*running.links.interfaces, *following.links.interfaces}
    return replace(rolled_links(running, following), interfaces=tuple(sorted(named & known)))


# --- where the agents are asked ---------------------------------------------------------------------------------------
def target_of(existing: Existing, desired: Desired, switchover: Switchover | None, config_hash: str) -> ProbeTarget:
    """Where the agents are asked for what they run and prepare, with *config_hash* as the newest configuration."""
    published, takeover = switchover.published if switchover else None, existing.takeover
    return ProbeTarget(
        _hosts(existing.pods, desired),
        desired.port,
        config_hash,
        old=frozenset(takeover.old) if takeover.is_active else frozenset(),
        instances=takeover.instances,
        prepared=published.next.digest if published and published.next else "",
        switch_at=instant_text(published.switch_at) if published else "",
        vips=_wanted_vips(desired),
    )


def _wanted_vips(desired: Desired) -> tuple[Mapping[str, Address], ...]:
    """The VIPs of *desired* by text, before and after a switch: a part for each instance, which stays the same."""
    memory, model, final = desired.members.memory, desired.configuration.model, desired.configuration.final
    models = ((memory, model), (memory.part("final"), final if final is not model else None))
    return tuple(
        part.follow(_texts, _texts_after, each.name, each.virtual_ips)
        for part, one in models
        if one is not None
        for each in one.instances
    )


def _texts(vips: Iterable[VirtualIP]) -> Mapping[str, Address]:
    return {str(each.address): each.address for each in vips}


def _texts_after(before: Mapping[str, Address], change: Change[VirtualIP]) -> Mapping[str, Address]:
    found = dict(before)
    for each in _texts(change.left):
        del found[each]
    found.update(_texts(change.come))
    return found


def _hosts(pods: Sequence[Pod], desired: Desired) -> Mapping[str, str]:
    """The host of each node's agent; nodes without a known address are absent."""
    model = desired.configuration.model
    sources = model.instances[0].sources if model and model.instances else ()
    return desired.members.memory.last(_hosts_of, "", tuple(pods), desired.all_nodes, sources)


def _hosts_of(
    pods: tuple[Pod, ...], nodes: tuple[Node, ...], sources: tuple[tuple[str, Address], ...]
) -> Mapping[str, str]:
    host_ips, known = {pod.spec.node_name: read_address(pod.status.host_ip) for pod in pods}, dict(sources)
    named = ((node.metadata.name, node) for node in nodes)
    hosts = {name: _host(node, host_ips.get(name), known.get(name)) for name, node in named}
    return {name: host for name, host in hosts.items() if host}


def _host(node: Node, host_ip: Address | None, source: Address | None) -> str:
    """
    The host of the agent on *node*, as URLs write it; "" if it is unknown.

    It is the *host_ip* of its pod where the node has that address, else an address of the node. The last resort is the
    *source* of its adverts.
    """
    listed = node.host_addresses
    address = host_ip if host_ip in listed else next(iter(listed), source)
    if address is None:
        return ""
    return f"[{address}]" if address.family == 6 else str(address)
