"""
What becomes of the pools and groups that the chart's values name.

Helm cannot create objects of kinds whose definitions come with the same release. So the chart writes its values into a
ConfigMap, and the leader applies them server-side as its own field manager. It applies them once for each revision of
the release: an upgrade overwrites edits of the fields that the values set, and between upgrades edits stay. A list is
one such field. A name that the values no longer contain is not deleted, because with a group its VIPs would go.

An entry that is not applied has a condition that says why. One bad entry does not stop the others.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.chartvalues import ChartValues, Entry, EntryCondition
from kavip.api.group import GroupSpec
from kavip.api.pool import PoolSpec
from kavip.api.unknownfields import unknown_fields
from kavip.errors import ApiError, BadInput, Forbidden, KavipError, Rejected
from kavip.names import Reason
from kavip.reconcile.observed.operator import WritesBlocked
from kavip.reconcile.plan import ConditionState, Json

EntryName = tuple[str, str, str]
"""Kind, namespace and name; the path of an entry that has no valid name."""

MAX_ENTRIES: Final = 64
"""Pools, and as many groups; values.schema.json has the same limit."""
_HASH: Final = 16
_TEMPLATES: Final = frozenset({"podTemplate", "configTemplateRef"})
_MESSAGE: Final = 1_000  # characters; an object's annotations may have 256 KiB together
_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")
APPLIED: Final = ConditionState("True", Reason.APPLIED, "applied")


@dataclass(frozen=True, slots=True)
class Wanted:
    """
    One object of the values, at *path*.

    *key*: ``ns/name`` of a group, the name of a pool. *problem*: why it cannot be applied as it is.
    """

    path: str
    kind: str
    key: str
    body: Json = field(default_factory=dict, hash=False)
    problem: str = ""

    @property
    def namespace(self) -> str:
        """The namespace of a group."""
        return self.key.rpartition("/")[0]

    @property
    def entry(self) -> EntryName:
        """As :attr:`EntryCondition.entry`."""
        return self.kind, self.namespace, self.key.rpartition("/")[2]


def observed(text: str) -> str:
    """The hash of the values *text*, which contains the revision."""
    return hashlib.sha256(text.encode()).hexdigest()[:_HASH]


def read(text: str) -> tuple[Wanted, ...]:
    """The objects of the values *text*, pools first; raises :class:`BadInput` if it is no JSON of this form."""
    try:
        values = msgspec.json.decode(text, type=ChartValues)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(names.VALUES_KEY, str(error), "want what the chart writes; run helm upgrade") from error
    found: dict[EntryName, Wanted] = {}
    pools = _entries("pools", names.VIP_POOL, values.pools)
    for each in (*pools, *_entries("groups", names.KEEPALIVED_GROUP, values.groups)):
        first = found.get(each.entry)
        one = each if first is None else _unusable(each.path, each.kind, f".name: {each.key!r} is {first.path} already")
        found[one.entry] = one
    return tuple(found.values())


def _unusable(path: str, kind: str, problem: str) -> Wanted:
    """An entry that names no object."""
    return Wanted(path, kind, path, problem=path + problem)


def _entries(path: str, kind: str, given: Sequence[msgspec.Raw]) -> Iterator[Wanted]:
    for number, raw in enumerate(given[:MAX_ENTRIES]):
        yield _entry(f"{path}[{number}]", kind, raw)
    if len(given) > MAX_ENTRIES:
        yield _unusable(path, kind, f": {len(given)} entries; want at most {MAX_ENTRIES}")


def _entry(path: str, kind: str, raw: msgspec.Raw) -> Wanted:
    try:
        entry = msgspec.json.decode(raw, type=Entry)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _unusable(path, kind, _mistyped(str(error)))
    is_group = kind == names.KEEPALIVED_GROUP
    if bool(entry.namespace) != is_group:
        want = "want the namespace of the group" if is_group else "a VIPPool has none; remove it"
        return _unusable(path, kind, f".namespace: {entry.namespace!r}: {want}")
    key = f"{entry.namespace}/{entry.name}" if is_group else entry.name
    unknown = next(unknown_fields(entry.spec, GroupSpec if is_group else PoolSpec, path=f"{path}.spec"), None)
    if unknown is not None:
        where, meant = unknown
        return Wanted(
            path, kind, key, problem=f"{where}: unknown field" + (f"; did you mean {meant}?" if meant else "")
        )
    for name in sorted(_TEMPLATES & entry.spec.keys()) if is_group else ():
        problem = f"{path}.spec.{name}: kavip would set it with its own rights; create this group with kubectl"
        return Wanted(path, kind, key, problem=problem)
    metadata = {"labels": entry.labels, "annotations": entry.annotations}
    return Wanted(path, kind, key, {"metadata": metadata, "spec": entry.spec})


def _mistyped(error: str) -> str:
    """The path below an entry, and msgspec's *error*."""
    if (unknown := _UNKNOWN.search(error)) is not None:
        return f".{unknown[1]}: unknown field; want {', '.join(Entry.__struct_fields__)}"
    problem, _, where = error.partition(" - at ")
    return f"{where.strip('`').removeprefix('$')}: {problem}"


def surplus(wanted: Json, found: Json) -> dict[str, Any]:
    """
    The merge patch of *found* that removes the items that its lists have beside those of *wanted*; {}: there are none.

    Server-side apply merges sets, such as the addresses of a pool, with the items of other field managers. A write that
    only removes items makes its field manager the owner of none.
    """
    patch: dict[str, Any] = {}
    for key, value in wanted.items():
        match value, found.get(key):
            case list(), list(items) if len(items) > len(value):
                patch[key] = value
            case dict(), dict(inner) if below := surplus(value, inner):
                patch[key] = below
    return patch


# --- conditions ---------------------------------------------------------------------------------------------------
def stored(annotation: str) -> dict[EntryName, EntryCondition]:
    """The conditions in the ConfigMap's annotation; none if it cannot be read."""
    try:
        found = msgspec.json.decode(annotation or "[]", type=list[EntryCondition])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    return {each.entry: each for each in found}


def state(
    wanted: Wanted,
    old: EntryCondition | None,
    *,
    values: str,
    namespaces: Collection[str],
    blocked: WritesBlocked | None,
) -> ConditionState | None:
    """
    The state of *wanted* if it is known without a request: it is applied, or something stands in the way.

    *old*: its condition. *values*: the hash of the values. *blocked*: keepalived-operator would serve a new group too.
    """
    if wanted.problem:
        return ConditionState("False", Reason.INVALID, wanted.problem)
    if old is not None and old.status == "True" and old.observed == values:
        return APPLIED
    if blocked:
        return blocked.accepted
    if (namespace := wanted.namespace) and namespace not in namespaces:
        text = f"{wanted.path}.namespace: {namespace!r} does not exist; run kubectl create namespace {namespace}"
        return ConditionState("False", Reason.NAMESPACE_NOT_FOUND, text)
    return None


def failure(wanted: Wanted, error: ApiError | BadInput) -> ConditionState:
    """The state of *wanted* after an attempt that failed."""
    match error:
        case BadInput():
            reason, text = Reason.INVALID, str(error)
        case Rejected() | Forbidden():
            reason, text = Reason.REFUSED, error.message
        case _:
            reason, text = Reason.PENDING, error.message or str(error)
    return ConditionState("False", reason, f"{wanted.path}: {text}"[:_MESSAGE])


def unsent(wanted: Wanted, old: EntryCondition | None) -> ConditionState:
    """The state of *wanted* until the next attempt: that of the last one."""
    if old is None or old.status == "True":
        return ConditionState("False", Reason.PENDING, f"{wanted.path}: not applied yet")
    return ConditionState(old.status, old.reason, old.message)


def are_settled(found: Iterable[EntryCondition]) -> bool:
    """Whether only other values can change something."""
    return all(each.reason in (Reason.APPLIED, Reason.INVALID) for each in found)


def unreadable(error: KavipError) -> dict[EntryName, ConditionState]:
    """The states if the values cannot be read at all: one, of the ConfigMap."""
    name = names.VALUES_CONFIGMAP_NAME
    return {(names.CONFIG_MAP, "", name): ConditionState("False", Reason.INVALID, str(error)[:_MESSAGE])}


def conditions(
    states: Mapping[EntryName, ConditionState],
    before: Mapping[EntryName, EntryCondition],
    *,
    values: str,
    now: str,
) -> dict[EntryName, EntryCondition]:
    """The condition of each entry; *before* are those that are stored."""
    found = {}
    for entry, state in states.items():
        old = before.get(entry)
        kind, namespace, name = entry
        since = old.last_transition_time if old is not None and old.status == state.status else now
        found[entry] = EntryCondition(
            kind=kind,
            namespace=namespace,
            name=name,
            type=names.ConditionType.APPLIED,
            status=state.status,
            reason=state.reason,
            message=state.message,
            observed=values,
            last_transition_time=since,
        )
    return found
