"""
The configuration of a group: what fits into one ConfigMap, and which part of it may roll from node to node now.

What all nodes must change together is the next configuration (:mod:`kavip.reconcile.rollout.switchover`). Until then,
instances keep their identity, and VIPs stay in the instance that runs them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kavip.api.address import Address
from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.errors import UnsafeValue
from kavip.memo import Memory
from kavip.names import Reason
from kavip.reconcile.group.links import links_of
from kavip.reconcile.group.localpolicy import reserved_bytes
from kavip.reconcile.group.routerids import RouterIDs
from kavip.reconcile.group.sizing import Fitted, fit
from kavip.snapshot import Snapshot
from kavip.vrrp import config, instances, keys
from kavip.vrrp.coexistence import Coexistence
from kavip.vrrp.config import IN_FULL, Config, Notations, Target
from kavip.vrrp.homes import PlacedUnits
from kavip.vrrp.instances import Instance, Model
from kavip.vrrp.members import Member, Peer
from kavip.vrrp.running import RunningInstance
from kavip.vrrp.sharding import Shards
from kavip.vrrp.staging import STAGED, stage


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfiguration:
    """
    What the nodes of a group should run.

    *model* and *current*: the model that may roll from node to node now, and its text. *final*: the model after all
    nodes have switched. *next*: the text of that; None: no switch. There is no text if *refusal* says why.
    *excluded*: by Service, why the ConfigMap has no room for it.
    """

    model: Model | None = None
    final: Model | None = None
    current: Config | None = None
    next: Config | None = None
    refusal: Refusal | None = None
    excluded: Mapping[str, Refusal] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class ConfigurationBuilder:
    """
    Builds the configuration of *group* for the nodes *peers*, which now run the instances *running*.

    *placed*: the units that keep their place. *dead*: the nodes that are dead. *candidates*: by instance, the nodes
    that can take over from a drained one. *notations*: those that the text may be in.
    """

    snapshot: Snapshot
    group: KeepalivedGroup
    peers: tuple[Peer, ...]
    running: Mapping[str, RunningInstance]
    coexistence: Coexistence
    placed: PlacedUnits
    dead: frozenset[str] = frozenset()
    candidates: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    notations: Notations = IN_FULL

    def build(self, members: Shards, router_ids: RouterIDs) -> GroupConfiguration:
        """The configuration with *members*."""
        try:
            fitted = self._fit(members, router_ids)
        except UnsafeValue as error:
            return GroupConfiguration(refusal=Refusal.of(Reason.INVALID, error))
        model, text, excluded = fitted.model, fitted.config, fitted.excluded
        if refusal := text.oversized:
            return GroupConfiguration(model=model, final=model, refusal=refusal, excluded=excluded)
        if self.coexistence.old:  # pods of keepalived-operator decide what may run with them
            return GroupConfiguration(model=model, final=model, current=text, excluded=excluded)
        kept = members.map(lambda _: None, excluded.keys())
        complete = model  # with the instances, too, whose VRIDs are not persisted yet
        if router_ids.persisted.keys() != router_ids.assigned.keys():
            complete = self._model(kept, router_ids.assigned, members.memory)
        staged = self._stage(model, complete, kept, router_ids)
        if staged is model:
            return GroupConfiguration(model=model, final=model, current=text, excluded=excluded)
        return GroupConfiguration(
            model=staged,
            final=model,
            current=config.render(staged, Target(notations=self.notations), memory=members.memory.part(STAGED)),
            next=text if self._keeps_addresses(model, complete) else None,
            excluded=excluded,
        )

    def _fit(self, members: Shards, router_ids: RouterIDs) -> Fitted:
        """The model and text of those members that fit into the ConfigMap."""
        link_bytes = 2 * links_of(self.snapshot, members).size  # those that run, and the next ones

        def build(kept: Iterable[Member]) -> tuple[Model, Config]:
            model = self._model(kept, router_ids.persisted, members.memory)
            agent_bytes = link_bytes + reserved_bytes(self.snapshot, self.group, model)
            target = Target(notations=self.notations, agent_bytes=agent_bytes)
            return model, config.render(model, target, memory=members.memory)

        return fit(members, build)

    def _stage(self, model: Model, complete: Model, members: Shards, router_ids: RouterIDs) -> Model:
        """
        The part of *model* that may roll from node to node now; *model* itself if all of it may.

        A VIP that moves to an instance of *complete* whose VRID is not persisted yet stays where it runs.
        """
        staged = stage(
            complete, self.running, group=self.group, members=members, peers=self.peers, memory=members.memory
        )
        if staged is model:
            return model
        staged = self.coexistence.adapt(self._with_successors(staged), self.peers)
        there = tuple(
            each for each in staged.instances if each.name in self.running or _key_of(each) in router_ids.persisted
        )
        return model if there == model.instances else replace(model, instances=there)

    def _keeps_addresses(self, model: Model, complete: Model) -> bool:
        """Whether *model* has every address of *complete* that runs now: a switch must lose none."""
        if complete is model:
            return True
        running = frozenset[Address]().union(*(each.carried for each in self.running.values()))
        return _addresses(complete) & running <= _addresses(model)

    def _model(self, members: Iterable[Member], router_ids: Mapping[str, int], memory: Memory) -> Model:
        anchors = {name: each.identity.anchor.address for name, each in self.running.items()}
        model = instances.model_of(
            self.group,
            members,
            self.peers,
            router_ids,
            anchors=anchors,
            dead=self.dead,
            placed=self.placed,
            memory=memory,
        )
        return self.coexistence.adapt(self._with_successors(model), self.peers)

    def _with_successors(self, model: Model) -> Model:
        """*model*, each of its instances with the first of its candidates."""
        if not self.candidates:
            return model
        return replace(model, instances=tuple(map(self._with_successor, model.instances)))

    def _with_successor(self, instance: Instance) -> Instance:
        """*instance* with the first of its candidates."""
        candidates = self.candidates.get(instance.name, ())
        ranked = [(number, node) for node, number in instance.priorities if node in candidates]
        if not ranked or instance.successor == max(ranked)[1]:
            return instance
        return replace(instance, successor=max(ranked)[1])


def _key_of(instance: Instance) -> str:
    return keys.unit_name(instance.name, instance.family)


def _addresses(model: Model) -> frozenset[Address]:
    return frozenset[Address]().union(*(each.carried for each in model.instances))
