"""
What a patch may make of the pod template of a group: kavip's own parts stay, and what is added has no more privileges.

The outcome is judged, not the patch, because a patch can be written in many ways. Admission policies of the chart judge
the outcome again, whichever program of kavip's accounts writes it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.meta import Passthrough, Wire
from kavip.api.naming import check_annotations
from kavip.api.refusal import MAX_FINDINGS, Refusal
from kavip.api.selector import check_labels
from kavip.errors import BadInput
from kavip.names import Reason
from kavip.podtemplate.containers import LISTS, check_containers, check_repeated, refuse
from kavip.podtemplate.permissions import PRIVILEGES_VALUE, Privilege
from kavip.podtemplate.podschema import POD_TEMPLATE
from kavip.podtemplate.strategicmerge import Json, merge

FIELD: Final = "spec.podTemplate"
POD_FIELDS: Final = frozenset(
    {
        *LISTS,
        "dnsConfig",
        "dnsPolicy",
        "hostAliases",
        "imagePullSecrets",
        "priorityClassName",
        "terminationGracePeriodSeconds",
        "volumes",
    }
)
"""Fields of the pod that a patch may change."""
SOURCES: Final = frozenset({"configMap", "downwardAPI", "emptyDir", "projected", "secret"})
"""Kinds of volumes that a patch may add."""
PROJECTED: Final = frozenset({"configMap", "downwardAPI", "secret"})
MOST_VALUES, MOST_ITEMS, DEEPEST, LONGEST_NAME = 2048, 128, 24, 1024
"""Bounds of a patch: values, items of a list, levels, characters of a name. Each finding repeats the names above it."""
SHORTEST_GRACE, LONGEST_GRACE = 30, 300
"""Seconds: kavip hands VIPs over within 30."""
HARMFUL_ANNOTATION: Final = re.compile(
    r"[.]security[.](alpha|beta)[.]kubernetes[.]io/|^(seccomp[.]security[.]alpha[.])?kubernetes[.]io/|^io[.](kubernetes|katacontainers)[.]"
    r"|(^|[.])(cdi[.]k8s|nri|crio|cri-o)[.]io/|inject"
)
"""Annotations with which Kubernetes, a runtime or an injector changes the pod; the policy has the same expression."""
HARMLESS_VALUES: Final = frozenset({"runtime/default", "false", "disabled"})

IDENTITIES: Final = ("name", "mountPath")
"""Fields by whose value paths name an item of a list."""

_WANT: Final = "want metadata and spec only"
_OWN_ANNOTATIONS: Final = f"{names.KAVIP_GROUP}/"
RESERVED_VOLUMES: Final = re.compile(r"ca|config|run|password-.*")
"""Names of volumes that kavip adds, or may add later."""
_INSTEAD: Final[Mapping[str, str]] = {
    "affinity": "set spec.affinity of the group",
    "nodeName": "set spec.nodeSelector of the group",
    "nodeSelector": "set spec.nodeSelector of the group",
    "serviceAccountName": "set spec.serviceAccountName of the group",
    "tolerations": "set spec.tolerations of the group",
}
"""Fields for which the group has one of its own, because kavip must know the value."""


@dataclass(frozen=True, slots=True)
class PatchedTemplate:
    """The outcome of a patch, and why it may not be used."""

    template: Json
    refusals: tuple[Refusal, ...] = ()


def apply_patch(
    own: Mapping[str, Any], *patches: Mapping[str, Any], privileges: frozenset[str], path: str = FIELD
) -> PatchedTemplate:
    """
    kavip's *own* template after *patches*, one after the other.

    *privileges*: what the administrator permits in addition. *path*: how messages name the last patch.
    """
    outcome: Json = dict(own)
    try:
        for patch in patches:
            _check_size(patch, path)
            outcome = _without_null(merge(outcome, patch, POD_TEMPLATE, path=path))
        _check_types(outcome, path)
    except BadInput as error:
        return PatchedTemplate(dict(own), (Refusal.of(Reason.INVALID, error),))
    found = chain(
        _unused_directives(outcome, path),
        (refuse(f"{path}.{name}", outcome[name], _WANT) for name in sorted(outcome.keys() - own.keys())),
        _check_metadata(own["metadata"], outcome["metadata"], f"{path}.metadata"),
        _check_pod(own["spec"], outcome["spec"], f"{path}.spec"),
        check_containers(own["spec"], outcome["spec"], f"{path}.spec", privileges=privileges),
        _check_volumes(own["spec"], outcome["spec"], f"{path}.spec.volumes", privileges),
    )
    return PatchedTemplate(outcome, tuple(islice(found, MAX_FINDINGS)))


def _check_size(patch: Mapping[str, Any], path: str) -> None:
    """Raise :class:`BadInput` for a patch that costs too much: a merge compares each item of a list with each."""
    level: list[Any] = [patch]
    count = depth = 0
    while level:
        below: list[Any] = []
        for each in level:
            if isinstance(each, Mapping) and max(map(len, _names_of(each)), default=0) > LONGEST_NAME:
                raise BadInput(path, f"a name of more than {LONGEST_NAME:,} characters", "want a shorter one")
            items = each.values() if isinstance(each, Mapping) else each if isinstance(each, list) else ()
            count += len(items)
            if isinstance(each, list) and len(each) > MOST_ITEMS:
                raise BadInput(path, f"a list of {len(each):,} items", f"want at most {MOST_ITEMS}")
            if count > MOST_VALUES:
                raise BadInput(path, f"more than {MOST_VALUES:,} values", "want fewer")
            below += items
        level, depth = below, depth + 1
        if depth > DEEPEST:
            raise BadInput(path, f"more than {DEEPEST} levels", "want fewer")


def _names_of(value: Mapping[str, Any]) -> Iterator[str]:
    """The keys of *value*, and what tells it from other items of a list."""
    yield from value
    yield from (each for key in IDENTITIES if isinstance(each := value.get(key), str))


def _without_null(value: Any) -> Any:
    """*value* without what has no value: a merge leaves that where a patch adds an item to a list."""
    if isinstance(value, dict):
        return {name: _without_null(each) for name, each in value.items() if each is not None}
    return [_without_null(each) for each in value] if isinstance(value, list) else value


def _unused_directives(value: Any, path: str) -> Iterator[Refusal]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name.startswith("$"):
                yield refuse(f"{path}.{name}", each, "this directive has no effect here; remove it")
            yield from _unused_directives(each, f"{path}.{name}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _unused_directives(each, f"{path}[{index}]")


# --- types ------------------------------------------------------------------------------------------------------------
class _Item(Wire, frozen=True):
    name: str


class _Mount(Wire, frozen=True):
    mount_path: str


class _Container(Wire, frozen=True):
    name: str
    image: str = ""
    env: list[_Item] | None = None
    volume_mounts: list[_Mount] | None = None
    security_context: Passthrough | None = None
    lifecycle: dict[str, Passthrough] | None = None


class _Projected(Wire, frozen=True):
    sources: list[Passthrough] | None = None


class _Volume(Wire, frozen=True):
    name: str
    projected: _Projected | None = None


class _Pod(Wire, frozen=True):
    containers: list[_Container]
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None
    termination_grace_period_seconds: int | None = None


class _Metadata(Wire, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Template(Wire, frozen=True):
    """What the checks read; the API server checks all other types."""

    metadata: _Metadata
    spec: _Pod


def _check_types(outcome: Json, path: str) -> None:
    """Raise :class:`BadInput` for a part of another type than the checks read."""
    try:
        msgspec.convert(outcome, _Template)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).removesuffix("`").partition(" - at `$")
        place, value = _located(outcome, place, str if "`str`" in problem else dict)
        raise BadInput(f"{path}{place}", value, problem) from None


def _located(outcome: Json, place: str, wanted: type) -> tuple[str, Any]:
    """*place* as msgspec writes it, with the key of a map in place of ``[...]``, and the value that is not *wanted*."""
    value: Any = outcome
    try:
        for part in re.findall(r"\w+", place):
            value = value[int(part)] if isinstance(value, list) else value[part]
        if not place.endswith("[...]"):
            return place, value
        key = next(each for each in value if not isinstance(value[each], wanted))
    except (LookupError, StopIteration, TypeError, ValueError):
        return place, "malformed"
    return f"{place.removesuffix('...]')}{key}]", value[key]


# --- metadata and pod -------------------------------------------------------------------------------------------------
def _check_metadata(own: Json, outcome: Json, path: str) -> Iterator[Refusal]:
    for name in sorted(outcome.keys() - {"annotations", "labels"}):
        yield refuse(f"{path}.{name}", outcome[name], "want labels and annotations only")
    labels, annotations = outcome.get("labels", {}), outcome.get("annotations", {})
    if labels.get(names.GROUP_LABEL) != own["labels"][names.GROUP_LABEL]:
        remedy = "the DaemonSet finds its pods by this label; remove it from the patch"
        yield refuse(f"{path}.labels[{names.GROUP_LABEL}]", labels.get(names.GROUP_LABEL), remedy)
    yield from check_labels(labels, f"{path}.labels")
    yield from check_annotations(annotations, f"{path}.annotations")
    for key, value in sorted(annotations.items() - own.get("annotations", {}).items()):
        if key.startswith(_OWN_ANNOTATIONS):
            yield refuse(f"{path}.annotations[{key}]", value, "kavip writes this annotation itself; remove it")
        elif HARMFUL_ANNOTATION.search(key.lower()) and value not in HARMLESS_VALUES:
            remedy = "Kubernetes, a runtime or an injector changes the pod by this annotation; remove it"
            yield refuse(f"{path}.annotations[{key}]", value, remedy)


def _check_pod(own: Json, outcome: Json, path: str) -> Iterator[Refusal]:
    for name in sorted({*own, *outcome} - POD_FIELDS):
        if own.get(name) != outcome.get(name):
            remedy = _INSTEAD.get(name) or f"want only {', '.join(sorted(POD_FIELDS))}"
            yield refuse(f"{path}.{name}", outcome.get(name), remedy)
    grace = outcome.get("terminationGracePeriodSeconds", SHORTEST_GRACE)
    if not SHORTEST_GRACE <= grace <= LONGEST_GRACE:
        yield refuse(f"{path}.terminationGracePeriodSeconds", grace, f"want {SHORTEST_GRACE} to {LONGEST_GRACE}")


# --- volumes ----------------------------------------------------------------------------------------------------------
def _check_volumes(own: Json, outcome: Json, path: str, privileges: frozenset[str]) -> Iterator[Refusal]:
    mine = {each["name"]: each for each in own.get("volumes", ())}
    there = {each["name"]: each for each in outcome.get("volumes", ())}
    yield from check_repeated(outcome.get("volumes", ()), "name", path)
    for name, volume in mine.items():
        if there.get(name) != volume:
            yield refuse(f"{path}[{name}]", there.get(name), "kavip needs this volume; remove it from the patch")
    for name in [each for each in there if each not in mine]:
        if RESERVED_VOLUMES.fullmatch(name):
            yield refuse(f"{path}[{name}].name", name, "kavip may use this name itself; want another one")
        yield from _check_sources(there[name], SOURCES, Privilege.HOST_PATH, f"{path}[{name}]", privileges)
        for index, source in enumerate(there[name].get("projected", {}).get("sources", ())):
            where = f"{path}[{name}].projected.sources[{index}]"
            yield from _check_sources(source, PROJECTED, Privilege.SERVICE_ACCOUNT_TOKEN, where, privileges)


def _check_sources(
    volume: Json, allowed: frozenset[str], privileged: Privilege, path: str, privileges: frozenset[str]
) -> Iterator[Refusal]:
    """The sources of *volume* that are not *allowed*, except *privileged* if the administrator permits it."""
    for source in sorted(volume.keys() - {"name"} - allowed - ({privileged.value} & privileges)):
        remedy = f"want {', '.join(sorted(allowed))}; or {privileged} in the chart value {PRIVILEGES_VALUE}"
        yield refuse(f"{path}.{source}", volume[source], remedy)
