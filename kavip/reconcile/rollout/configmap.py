"""
What the ConfigMap of a group publishes to its nodes: the current revision, and the one to which all of them switch.

The ConfigMap is the record: it says what the nodes run, and a new controller reads it back.
"""

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from kavip import names
from kavip.api.agentconfig import AgentConfig, RevisionConfig, decode_config
from kavip.api.group import KeepalivedGroup
from kavip.api.instant import instant_text, read_instant
from kavip.api.workload import ConfigMap
from kavip.memo import Memory, recent
from kavip.reconcile.rollout.poollinks import NO_LINKS, PoolLinks
from kavip.vrrp import packed
from kavip.vrrp.compact import Unreadable, in_full
from kavip.vrrp.config import HASH_LENGTH
from kavip.vrrp.groupspec import has_password
from kavip.vrrp.instances import Model
from kavip.vrrp.packed import compressed, decompressed, pack, unpacked
from kavip.vrrp.running import RunningInstance, has_instances, instances_of, is_read_in_full, running_instances

MARGIN: Final = 1.0
"""Seconds after the instant at which the next text is published as the current one."""
LARGEST: Final = 1 << 20
"""Bytes of a ConfigMap."""

_TEXTS: Final = 4  # the current one, the next one, and those before them


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """
    What nodes need in addition to the text: how they find their interface, and the key of the Secret with the password.

    *renewals*: how often all nodes have switched to a new content of that key. It shows a node that it missed one.
    """

    interface_from_ip: str = ""
    secret: str = ""
    secret_key: str = ""
    renewals: int = 0

    @property
    def authentication(self) -> bool:
        """Whether there is a password."""
        return bool(self.secret)

    @property
    def password(self) -> str:
        """The file with the password, relative to the folder of all passwords."""
        return f"{secret_folder(self.secret)}/{self.secret_key}" if self.secret else ""


@dataclass(frozen=True)
class Revision:
    """
    A text with its *settings* and the *links* of pools.

    *content*: the text as the ConfigMap has it, maybe in the compact notation (:mod:`kavip.vrrp.compact`); if
    *is_packed*, what the ConfigMap has unpacked (:mod:`kavip.vrrp.packed`). *renewed*: with the password that is
    mounted now, whichever one nodes run. *model*: what the text was rendered from; then it need not be read.
    """

    content: str
    hash: str
    settings: NodeSettings = NodeSettings()
    renewed: bool = False
    links: PoolLinks = NO_LINKS
    is_packed: bool = False
    model: Model | None = field(default=None, compare=False, repr=False)

    @property
    def written(self) -> str:
        """The text as the ConfigMap has it."""
        return pack(self.content) if self.is_packed else self.content

    @property
    def digest(self) -> str:
        """The name under which agents report that they are prepared for it."""
        settings, links = self.settings, self.links
        whole = [self.hash, settings.interface_from_ip, settings.secret, settings.secret_key, self.renewed]
        if links != NO_LINKS:  # without any, the digest is that of earlier versions
            whole += [links.interfaces, links.routes]
        return hashlib.sha256(msgspec.json.encode(whole)).hexdigest()[:HASH_LENGTH]

    @property
    def text(self) -> str:
        """The text in full."""
        return in_full(self.content)

    @cached_property
    def compressed(self) -> bytes:
        """*content* compressed, as the next text is published: the same bytes for the same text."""
        return compressed(self.content)

    @cached_property
    def running(self) -> Mapping[str, RunningInstance]:
        """The VRRP instances of the text, by name."""
        return _running(self.content) if self.model is None else instances_of(self.model)

    @property
    def has_instances(self) -> bool:
        """Whether the text has any; in less time than to read them."""
        return has_instances(self.content)

    @property
    def has_form(self) -> bool:
        """Whether the text has the form that kavip writes."""
        return is_read_in_full(self.content, self.running)


@recent(most=2)  # the current text and the next one
def _running(content: str) -> Mapping[str, RunningInstance]:
    return running_instances(content)


@dataclass(frozen=True, slots=True)
class PublishedRevisions:
    """
    The revisions in the ConfigMap. *switch_at*: when *next* replaces *current*.

    *aborts*: how many announcements were called off. *abort_cause*: the node, and why, of the last one.
    """

    current: Revision
    next: Revision | None = None
    switch_at: datetime | None = None
    aborts: int = 0
    abort_cause: str = ""

    @property
    def secrets(self) -> frozenset[str]:
        """The Secrets that pods have to mount."""
        found = {each.settings.secret for each in (self.current, self.next) if each}
        return frozenset(found - {""})

    def at(self, now: datetime) -> "PublishedRevisions":
        """The revisions as nodes run them at *now*: after the instant, the next one is the current one."""
        is_past = self.next and self.switch_at and (now - self.switch_at).total_seconds() >= MARGIN
        return PublishedRevisions(replace(self.next, renewed=False)) if self.next and is_past else self


def settings_of(group: KeepalivedGroup) -> NodeSettings:
    """What nodes need in addition to the text of *group*."""
    password = group.spec.password_auth
    if password is None or not has_password(group.spec):
        return NodeSettings(group.spec.interface_from_ip)
    return NodeSettings(group.spec.interface_from_ip, password.secret_ref.name, password.secret_key)


def read_published(configmap: ConfigMap | None, wanted: NodeSettings) -> PublishedRevisions | None:
    """
    The revisions in *configmap*; None if kavip did not write it. A next text that cannot be read is left out.

    Earlier versions of kavip did not write the name of the Secret: it was that of *wanted*.
    """
    found = read_as_written(configmap, wanted)
    return found if found is None or found.next is None or found.next.content else PublishedRevisions(found.current)


def read_as_written(configmap: ConfigMap | None, wanted: NodeSettings) -> PublishedRevisions | None:
    """The same for :func:`undamaged`: a next text that cannot be read is ""."""
    data = (configmap.data if configmap else None) or {}
    config = decode_config(data.get(names.AGENT_KEY, ""))
    if config is None:  # another client with access to ConfigMaps may have written it
        return None
    text = data.get(names.TAKE_OVER_KEY, data.get(names.CONFIG_KEY, ""))
    settings = _settings(config)
    if config.authentication and not settings.secret:
        settings = replace(settings, secret=wanted.secret, secret_key=wanted.secret_key)
    content, is_packed = unpacked(text), packed.is_packed(text)
    current = Revision(content, config.config_hash, settings, links=_links(config), is_packed=is_packed)
    binary = ((configmap.binary_data if configmap else None) or {}).get(names.NEXT_KEY, "")
    if config.next is None:
        return PublishedRevisions(current)
    later = (_decompressed(binary) or "") if binary else content
    following = Revision(
        later, config.next.config_hash, _settings(config.next), config.next.renewed, _links(config.next), is_packed
    )
    return PublishedRevisions(current, following, read_instant(config.switch_at), config.tries, config.blame)


def note_made(published: PublishedRevisions, before: PublishedRevisions | None, memory: Memory) -> None:
    """Note in *memory* the texts of *published* that this controller has made, which *before* does not have."""
    texts = memory.state(_Texts)
    for each in (published.current, published.next):
        if each is not None and (before is None or (each is not before.current and each is not before.next)):
            texts.keep(each)


def undamaged(published: PublishedRevisions, memory: Memory) -> PublishedRevisions | None:
    """
    *published*, as it is written, without what somebody has edited; None: the text that nodes run is not known.

    Agents refuse a text that does not have its hash, or not the form that kavip writes, and keep theirs.
    """
    texts, following = memory.state(_Texts), published.next
    current = texts.corrected(published.current)
    if current is None:
        return None
    if following is not None and (corrected := texts.corrected(following)) is not None:
        return replace(published, current=current, next=corrected)
    return replace(published, current=current) if following and following.content else PublishedRevisions(current)


def _hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_LENGTH]


class _Text(NamedTuple):
    """The text of a revision."""

    content: str
    is_packed: bool


@dataclass(slots=True)
class _Texts:
    """The last texts of a group by their hashes, which take milliseconds for a large one."""

    by_hash: dict[str, _Text] = field(default_factory=dict)

    def corrected(self, revision: Revision) -> Revision | None:
        """*revision* with the text of its hash, or the hash of its text; None if neither is known."""
        known = self.by_hash.get(revision.hash)
        same = next((each for each, text in self.by_hash.items() if text.content == revision.content), None)
        if same is not None and same != revision.hash:
            return replace(revision, hash=same)
        if same is None and (_hash_of(revision.text) != revision.hash or not revision.has_form):
            return replace(revision, content=known.content, is_packed=known.is_packed) if known else None
        self.keep(revision)
        return revision

    def keep(self, revision: Revision) -> None:
        """Know the text of *revision*, whose hash is right."""
        self.by_hash.pop(revision.hash, None)
        self.by_hash[revision.hash] = _Text(revision.content, revision.is_packed)
        while len(self.by_hash) > _TEXTS:
            del self.by_hash[next(iter(self.by_hash))]


def secret_folder(secret: str) -> str:
    """A name for the mount and the volume of a Secret, whose own name may be too long or have dots."""
    return hashlib.sha256(secret.encode()).hexdigest()[:8]


def agent_config(published: PublishedRevisions) -> AgentConfig:
    """The part of ``agent.json`` that describes *published*."""
    current, following = published.current, published.next
    return AgentConfig(
        config_hash=current.hash,
        interface_from_ip=current.settings.interface_from_ip,
        authentication=current.settings.authentication,
        secret=current.settings.secret,
        secret_key=current.settings.secret_key,
        password=current.settings.password,
        renewals=current.settings.renewals,
        pool_interfaces=current.links.interfaces,
        routes=current.links.routes,
        switch_at=instant_text(published.switch_at) if following else "",
        tries=published.aborts if following else 0,
        blame=published.abort_cause if following else "",
        next_hash=following.digest if following else "",
        next=RevisionConfig(
            config_hash=following.hash,
            interface_from_ip=following.settings.interface_from_ip,
            secret=following.settings.secret,
            secret_key=following.settings.secret_key,
            password=following.settings.password,
            renewals=following.settings.renewals,
            renewed=following.renewed,
            pool_interfaces=following.links.interfaces,
            routes=following.links.routes,
        )
        if following
        else None,
    )


def _settings(config: RevisionConfig) -> NodeSettings:
    return NodeSettings(config.interface_from_ip, config.secret, config.secret_key, config.renewals)


def _links(config: RevisionConfig) -> PoolLinks:
    return PoolLinks(config.pool_interfaces, config.routes)


def _decompressed(binary: str) -> str | None:
    try:
        found = decompressed(base64.b64decode(binary, validate=True))
    except ValueError:
        return None
    return None if isinstance(found, Unreadable) else found
