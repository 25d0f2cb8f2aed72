"""
What a patch may make of the containers of a group's pods: kavip's own stay, others get no more privileges than they.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, Final

from kavip import names
from kavip.api.refusal import Refusal
from kavip.errors import BadInput
from kavip.names import Reason
from kavip.podtemplate.permissions import PRIVILEGES_VALUE, Privilege

Json = dict[str, Any]

LISTS: Final = ("initContainers", "containers")
ADDED_FIELDS: Final = frozenset(
    {
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resources",
        "restartPolicy",
        "securityContext",
        "startupProbe",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "volumeMounts",
        "workingDir",
    }
)
"""Fields that a container of a patch may have."""
CONTEXT_FIELDS: Final = frozenset(
    {
        "allowPrivilegeEscalation",
        "capabilities",
        "privileged",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
    }
)
CAPABILITIES: Final = frozenset({"NET_ADMIN", "NET_RAW"})
HOOKS: Final = frozenset({"exec", "sleep"})

OWN_NAMES: Final = frozenset({names.AGENT_CONTAINER, names.KEEPALIVED_CONTAINER, names.SETUP_CONTAINER})
RESERVED_NAMES: Final = OWN_NAMES | {names.OLD_AGENT_CONTAINER}
"""Names that an added container may not have: with the last one, pods would pass for keepalived-operator's."""

_LABEL: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_CHANGEABLE: Final = frozenset({"imagePullPolicy", "resources"})
_EXTENSIBLE: Final = {"env": "name", "volumeMounts": "mountPath"}
"""Lists of kavip's own containers that a patch may extend, with the key of their entries."""


def check_containers(own: Json, outcome: Json, path: str, *, privileges: frozenset[str]) -> Iterator[Refusal]:
    """What is wrong with the containers of the pod *outcome* at *path*, which kavip made as *own*."""
    for field in LISTS:
        mine = {each["name"]: each for each in own.get(field, ())}
        there = outcome.get(field, ())
        for name in sorted(mine.keys() - {each["name"] for each in there}):
            yield refuse(f"{path}.{field}[{name}]", None, "kavip needs this container; remove it from the patch")
        yield from check_repeated(there, "name", f"{path}.{field}")
        for index, container in enumerate(there):
            name = container["name"]
            where = f"{path}.{field}[{name}]"
            if not _LABEL.fullmatch(name):
                yield refuse(f"{path}.{field}[{index}].name", name, "want up to 63 lower-case letters, digits or '-'")
            elif name in mine:
                yield from _own(mine[name], container, where)
            elif name in RESERVED_NAMES:
                yield refuse(f"{where}.name", name, "kavip has a meaning for this name; want another one")
            else:
                yield from _added(container, where, privileges)


def check_repeated(items: Iterable[Json], key: str, path: str) -> Iterator[Refusal]:
    """Items of a list that have the same value of *key*; the API server wants it once."""
    seen = set()
    for each in items:
        if each[key] in seen:
            yield refuse(f"{path}[{each[key]}]", each[key], "occurs twice; want it once")
        seen.add(each[key])


def _own(own: Json, outcome: Json, path: str) -> Iterator[Refusal]:
    for field in sorted({*own, *outcome} - _CHANGEABLE - _EXTENSIBLE.keys()):
        if own.get(field) != outcome.get(field):
            remedy = "kavip sets this field of its own containers; remove it from the patch"
            if field == "image":
                name = "image" if own["name"] == names.KEEPALIVED_CONTAINER else "agentImage"
                remedy = f"set spec.{name} of the group"
            yield refuse(f"{path}.{field}", outcome.get(field), remedy)
    for field, key in _EXTENSIBLE.items():
        there = outcome.get(field, ())
        yield from check_repeated(there, key, f"{path}.{field}")
        for each in own.get(field, ()):
            if each not in there:
                found = next((other for other in there if other[key] == each[key]), None)
                remedy = "kavip needs this entry; remove it from the patch"
                yield refuse(f"{path}.{field}[{each[key]}]", found, remedy)
    yield from _added_env(own, outcome, f"{path}.env")
    mounts = [each["mountPath"] for each in own.get("volumeMounts", ())]
    for each in outcome.get("volumeMounts", ()):
        if each["mountPath"] not in mounts and any(_overlap(each["mountPath"], known) for known in mounts):
            remedy = f"want a path apart from kavip's own: {', '.join(mounts)}"
            yield refuse(f"{path}.volumeMounts[{each['mountPath']}]", each.get("name"), remedy)


def _added_env(own: Json, outcome: Json, path: str) -> Iterator[Refusal]:
    known = {each["name"] for each in own.get("env", ())}
    for each in outcome.get("env", ()):
        if each["name"] not in known and each["name"].startswith(f"{names.ENV_PREFIX}_"):
            yield refuse(f"{path}[{each['name']}]", each.get("value"), "kavip sets its own variables; remove it")


def _overlap(one: str, other: str) -> bool:
    """Whether one of the two paths contains the other."""
    first, second = (PurePosixPath(posixpath.normpath("/" + each.lstrip("/"))) for each in (one, other))
    return first.is_relative_to(second) or second.is_relative_to(first)


def _added(container: Json, path: str, privileges: frozenset[str]) -> Iterator[Refusal]:
    for field in sorted(container.keys() - ADDED_FIELDS):
        yield refuse(f"{path}.{field}", container[field], f"want only {', '.join(sorted(ADDED_FIELDS))}")
    if not container.get("image"):
        yield refuse(f"{path}.image", container.get("image"), "want the image of this container")
    if Privilege.PRIVILEGED not in privileges and not _is_confined(container.get("securityContext", {})):
        remedy = (
            "want allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities with drop: [ALL] and at "
            f"most {' and '.join(sorted(CAPABILITIES))}, no other field but runAsUser, runAsGroup and runAsNonRoot; or "
            f"{Privilege.PRIVILEGED} in the chart value {PRIVILEGES_VALUE}"
        )
        yield refuse(f"{path}.securityContext", container.get("securityContext"), remedy)
    for hook, action in sorted(container.get("lifecycle", {}).items()):
        if not action.keys() <= HOOKS:
            yield refuse(f"{path}.lifecycle.{hook}", action, f"want {' or '.join(sorted(HOOKS))}")


def _is_confined(context: Json) -> bool:
    """Whether a container with this ``securityContext`` has no more privileges than kavip's own."""
    capabilities = context.get("capabilities")
    if not isinstance(capabilities, dict) or not context.keys() <= CONTEXT_FIELDS:
        return False
    added = capabilities.get("add", [])
    privileged = context.get("privileged", False)
    return (
        privileged is False
        and context.get("allowPrivilegeEscalation") is False
        and context.get("readOnlyRootFilesystem") is True
        and capabilities.get("drop") == ["ALL"]
        and isinstance(added, list)
        and all(isinstance(each, str) and each in CAPABILITIES for each in added)
    )


def refuse(field: str, value: object, remedy: str) -> Refusal:
    """The refusal of *value* at *field*; None: it is missing."""
    if value is None:
        return Refusal(Reason.INVALID, f"{field}: missing: {remedy}", field)
    return Refusal.of(Reason.INVALID, BadInput(field, value, remedy))
