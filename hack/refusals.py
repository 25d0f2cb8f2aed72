"""
The table of refusals: ``tests/refusals/*.yaml``, a list of cases to a file; all are asked of ``cluster.yaml``.

A case::

    rule: group_exists                  # the check function; what the CRD itself refuses (by: crd): any name
    when: a group that does not exist   # what it is about, in a few words
    operation: CREATE                   # or UPDATE, DELETE; CREATE where it is left out
    old: {...}                          # what an UPDATE starts from; left out: the object of that key in the cluster
    given: [{...}]                      # what the cluster has besides
    settings: {external_ips_scope: all} # of kavip, where they are not the default ones
    exempt: true                        # who asks may create services/externalips
    asked: {...}                        # the manifest, as a user writes it
    causes: {FIELD: MESSAGE}            # exactly these, in this order; several of one field: a list
    warnings: [...]                     # exactly these; a case without causes is accepted with them
    code: 422                           # or 403
    by: kavip                           # or crd: the schema or its CEL refuses it, also while kavip is down
                                        # or check: so says kavip check; at the API server the schema is faster
    passes: {...}                       # a merge patch (null removes) that makes *asked* acceptable, without a warning

What is made of it: unit tests (``tests/admission/test_refusals.py``), the page ``docs/reference/refusals.md``, and
tests with real kubectl. For those: let the webhook judge by :func:`snapshot` of the case, apply :attr:`Case.asked`,
and look for ``FIELD: MESSAGE`` in what kubectl prints. Before an UPDATE or a DELETE create :attr:`Case.old` while no
webhook is registered, or through a Snapshot that lets it pass; objects of the cluster need not stand in the API server.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from kavip.admission import groups, pools, services
from kavip.admission.chain import Check, Options
from kavip.api.review import Operation
from kavip.settings import listed
from kavip.snapshot import KINDS, Object, Snapshot

FOLDER: Final = Path(__file__).parents[1] / "tests" / "refusals"
CLUSTER: Final = FOLDER / "cluster.yaml"
CHAINS: Final[Mapping[str, tuple[Check[Any], ...]]] = {
    "Service": (*services.CHAIN, *services.UNMANAGED),
    "KeepalivedGroup": (*groups.CHAIN, *groups.DELETION),
    "VIPPool": (*pools.CHAIN, *pools.DELETION),
}
"""Every rule of the policy, by the kind that it is asked of."""
_TYPES: Final[dict[str, type]] = {name: kind for kind, name in KINDS.items()}
_HOMES: Final = "group_namespaces"  # a setting of the Snapshot; the others are the policy's
_OPTIONAL: Final = frozenset({"operation", "old", "given", "settings", "exempt", "causes", "warnings", "code", "by"})

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of the table; see the head of this module."""

    rule: str
    when: str
    asked: Manifest
    passes: Manifest
    causes: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    operation: Operation
    old: Manifest | None
    given: tuple[Manifest, ...]
    settings: Mapping[str, str]
    exempt: bool
    code: int
    by: str

    @property
    def kind(self) -> str:
        """The kind of the object that is asked for."""
        return str(self.asked["kind"])

    @property
    def options(self) -> Options:
        """The settings, as the policy takes them."""
        return Options(**{name: value for name, value in self.settings.items() if name != _HOMES})

    @property
    def words(self) -> str:
        """How what kubectl prints of a refusal ends: of a 422 it is all there is."""
        causes = [f"{field}: {message}" for field, message in self.causes]
        if self.code == 403:
            told = causes[0] if len(causes) == 1 else f"{len(causes)} problems: {'; '.join(causes)}"
            place = "/".join(filter(None, map(self.asked["metadata"].get, ("namespace", "name"))))
            return f" denied the request: {self.kind} {place}: {told}\n"
        told = f"{causes[0]}\n" if len(causes) == 1 else "\n" + "".join(f"* {each}\n" for each in causes)
        return f'The {self.kind} "{self.asked["metadata"]["name"]}" is invalid: {told}'

    def __str__(self) -> str:
        """As tests are called."""
        return f"{self.rule}: {self.when}"


@cache
def cases() -> tuple[Case, ...]:
    """All cases, file by file."""
    return tuple(
        _case(row, path.name)
        for path in sorted(FOLDER.glob("*.yaml"))
        if path != CLUSTER
        for row in yaml.load(path.read_text(), yaml.CSafeLoader)
    )


@cache
def cluster() -> tuple[Manifest, ...]:
    """The objects of the cluster, statuses included."""
    return tuple(yaml.load_all(CLUSTER.read_text(), yaml.CSafeLoader))


def read(manifest: Manifest) -> Object:
    """*manifest* as kavip reads it."""
    found: Object = msgspec.convert(manifest, _TYPES[manifest["kind"]])
    return found


def snapshot(case: Case | None = None) -> Snapshot:
    """What *case* is judged by: the cluster, what is given besides, and what an UPDATE or DELETE starts from."""
    found = [*cluster(), *case.given, *([case.old] if case.old else [])] if case else cluster()
    homes = listed(case.settings.get(_HOMES, "")) if case else ()
    return Snapshot.from_objects(map(read, found), group_namespaces=homes)


def _case(row: dict[str, Any], file: str) -> Case:
    if wrong := (set(row) - _OPTIONAL) ^ {"rule", "when", "asked", "passes"}:
        raise ValueError(f"{file}: {row.get('when')}: {sorted(wrong)}")
    asked, given = row["asked"], tuple(row.get("given", ()))
    operation = Operation(row.get("operation", "CREATE"))
    return Case(
        rule=row["rule"],
        when=row["when"],
        asked=asked,
        passes=_merged(asked, row["passes"]),
        causes=tuple(_causes(row.get("causes", {}))),
        warnings=tuple(row.get("warnings", ())),
        operation=operation,
        old=None if operation is Operation.CREATE else row.get("old") or _found(asked, (*cluster(), *given)),
        given=given,
        settings=row.get("settings", {}),
        exempt=row.get("exempt", False),
        code=row.get("code", 422),
        by=row.get("by", "kavip"),
    )


def _causes(row: Mapping[str, str | Sequence[str]]) -> Iterator[tuple[str, str]]:
    for field, messages in row.items():
        yield from ((field, message) for message in ([messages] if isinstance(messages, str) else messages))


def _found(asked: Manifest, objects: Sequence[Manifest]) -> Manifest:
    """The object that *asked* is a change of."""
    (old,) = (each for each in objects if _key(each) == _key(asked))
    return old


def _key(manifest: Manifest) -> tuple[str, ...]:
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def _merged(value: Any, patch: Any) -> Any:
    """*value* after the merge patch *patch* (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    base = value if isinstance(value, dict) else {}
    merged = {**base, **{key: _merged(base.get(key), each) for key, each in patch.items()}}
    return {key: each for key, each in merged.items() if each is not None}
