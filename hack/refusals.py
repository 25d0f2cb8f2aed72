"""
The table of refusals: ``tests/refusals/*.yaml``, lists of cases; each is evaluated against ``cluster.yaml``.

A case::

    rule: group_exists                  # the function of the check; with "by: crd" any name
    when: a group that does not exist   # the mistake in a few words
    operation: CREATE                   # the default; or UPDATE, DELETE
    old: {...}                          # the object before an UPDATE; default: the object with this key in the cluster
    cluster: [{...}]                    # further objects of the cluster
    settings: {external_ips_scope: all} # of kavip, where they differ from the defaults
    exempt: true                        # the user may create services/externalips, and daemonsets for a group
    object: {...}                       # the manifest as a user writes it
    causes: {FIELD: MESSAGE}            # exactly these, in this order; several of one field: a list
    warnings: {FIELD: MESSAGE}          # exactly these; a case without causes is accepted
    exempted: {FIELD: MESSAGE}          # causes that are warnings because of "exempt"
    code: 422                           # the default; or 403
    by: kavip                           # the default; or crd: the schema or its CEL refuses it
                                        # or check: kavip check reports it; the API server's schema refuses it earlier
    passes: {...}                       # a merge patch (null removes) that makes *object* valid without a warning

Its users: unit tests (``tests/admission/test_refusals.py``), the page ``docs/reference/refusals.md``, and tests with a
real kubectl. Those let the webhook use the :func:`snapshot` of the case, apply :attr:`Case.object`, and compare what
kubectl prints with :attr:`Case.printed`. Before an UPDATE or a DELETE they create :attr:`Case.old` while the webhook
accepts everything. The objects of the cluster need not exist in the API server.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from kavip.admission import groups, pools, services
from kavip.admission.chain import PolicyOptions, Rule
from kavip.admission.verdict import EXEMPTED
from kavip.api.review import Operation
from kavip.settings import split_names
from kavip.snapshot import KINDS, Object, Snapshot

FOLDER: Final = Path(__file__).parents[1] / "tests" / "refusals"
CLUSTER: Final = FOLDER / "cluster.yaml"
CHAINS: Final[Mapping[str, tuple[Rule[Any], ...]]] = {
    "Service": (*services.CHAIN, *services.UNMANAGED),
    "KeepalivedGroup": (*groups.CHAIN, *groups.DELETION),
    "VIPPool": (*pools.CHAIN, *pools.DELETION),
}
"""All rules of the policy by kind."""
_TYPES: Final[dict[str, type]] = {name: kind for kind, name in KINDS.items()}
_GROUP_NAMESPACES: Final = "group_namespaces"  # a setting of the Snapshot; the others belong to the policy
_REQUIRED: Final = frozenset({"rule", "when", "object", "passes"})
_OPTIONAL: Final = frozenset(
    {"operation", "old", "cluster", "settings", "exempt", "causes", "warnings", "exempted", "code", "by"}
)

Manifest = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case; the docstring of this module describes the fields."""

    rule: str
    when: str
    object: Manifest
    passes: Manifest
    causes: tuple[tuple[str, str], ...]
    warnings: tuple[tuple[str, str], ...]
    exempted: tuple[tuple[str, str], ...]
    operation: Operation
    old: Manifest | None
    cluster: tuple[Manifest, ...]
    settings: Mapping[str, str]
    exempt: bool
    code: int
    by: str

    @property
    def kind(self) -> str:
        """The kind of the object."""
        return str(self.object["kind"])

    @property
    def options(self) -> PolicyOptions:
        """The settings of the policy."""
        given = {"template_namespaces": "", "template_privileges": "", **self.settings}
        return PolicyOptions.of(**{name: value for name, value in given.items() if name != _GROUP_NAMESPACES})

    @property
    def warning_texts(self) -> tuple[str, ...]:
        """The warnings of the response."""
        found = tuple(f"{field}: {message}" if field else message for field, message in self.warnings)
        return (*found, *(f"{EXEMPTED}{field}: {message}" for field, message in self.exempted))

    @property
    def printed(self) -> str:
        """The end of what kubectl prints of a refusal; of a 422 all of it."""
        causes = [f"{field}: {message}" for field, message in self.causes]
        if self.code == 403:
            summary = causes[0] if len(causes) == 1 else f"{len(causes)} problems: {'; '.join(causes)}"
            key = "/".join(filter(None, map(self.object["metadata"].get, ("namespace", "name"))))
            return f" denied the request: {self.kind} {key}: {summary}\n"
        listing = f"{causes[0]}\n" if len(causes) == 1 else "\n" + "".join(f"* {each}\n" for each in causes)
        return f'The {self.kind} "{self.object["metadata"]["name"]}" is invalid: {listing}'

    def __str__(self) -> str:
        """The name of its tests."""
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
    """*manifest* as kavip decodes it."""
    found: Object = msgspec.convert(manifest, _TYPES[manifest["kind"]])
    return found


def snapshot(case: Case | None = None) -> Snapshot:
    """The Snapshot that *case* is evaluated against: both clusters, and the old object of an UPDATE or DELETE."""
    found = [*cluster(), *case.cluster, *([case.old] if case.old else [])] if case else cluster()
    namespaces = split_names(case.settings.get(_GROUP_NAMESPACES, "")) if case else ()
    return Snapshot.from_objects(map(read, found), group_namespaces=namespaces)


def _case(row: dict[str, Any], file: str) -> Case:
    if wrong := (set(row) - _OPTIONAL) ^ _REQUIRED:
        raise ValueError(f"{file}: {row.get('when')}: missing or unknown keys: {sorted(wrong)}")
    manifest, extra = row["object"], tuple(row.get("cluster", ()))
    operation = Operation(row.get("operation", "CREATE"))
    return Case(
        rule=row["rule"],
        when=row["when"],
        object=manifest,
        passes=_merged(manifest, row["passes"]),
        causes=tuple(_by_field(row.get("causes", {}))),
        warnings=tuple(_by_field(row.get("warnings", {}))),
        exempted=tuple(_by_field(row.get("exempted", {}))),
        operation=operation,
        old=None if operation is Operation.CREATE else row.get("old") or _with_key(manifest, (*cluster(), *extra)),
        cluster=extra,
        settings=row.get("settings", {}),
        exempt=row.get("exempt", False),
        code=row.get("code", 422),
        by=row.get("by", "kavip"),
    )


def _by_field(row: Mapping[str, str | Sequence[str]]) -> Iterator[tuple[str, str]]:
    for field, messages in row.items():
        yield from ((field, message) for message in ([messages] if isinstance(messages, str) else messages))


def _with_key(manifest: Manifest, objects: Sequence[Manifest]) -> Manifest:
    """The one of *objects* with the kind and key of *manifest*."""
    (old,) = (each for each in objects if _key(each) == _key(manifest))
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
