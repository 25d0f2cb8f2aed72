"""The pages of kavip's kinds, from their CRDs: each field with type, default, limits and meaning; and conditions."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from kavip.names import ConditionType, Reason

BASES: Final = Path(__file__).parents[1] / "config" / "crd" / "bases"
CONDITIONS: Final[Mapping[str, Mapping[ConditionType, tuple[Reason, ...]]]] = {
    "KeepalivedGroup": {
        ConditionType.ACCEPTED: (
            Reason.ACCEPTED,
            Reason.INVALID,
            Reason.OBJECT_CONFLICT,
            Reason.DUPLICATE_DEFAULT,
            Reason.OLD_OPERATOR_RUNNING,
        ),
        ConditionType.PROGRAMMED: (Reason.PROGRAMMED, Reason.PENDING, Reason.REFUSED_BY_AGENT, Reason.SECRET_MISSING),
        ConditionType.READY: (Reason.READY, Reason.NO_NODES, Reason.PODS_NOT_READY, Reason.VRID_COLLISION),
    },
    "VIPPool": {
        ConditionType.ACCEPTED: (Reason.ACCEPTED, Reason.OVERLAP, Reason.INVALID),
        ConditionType.READY: (Reason.READY, Reason.EXHAUSTED, Reason.NO_ADDRESSES),
    },
}
"""The reasons of the conditions of each kind, in the order of the page of conditions; a test compares them."""
KUBERNETES: Final = frozenset(
    {
        "allowedNamespaces",
        "conditions",
        "imagePullSecrets",
        "namespaceSelector",
        "resources",
        "serviceSelector",
        "tolerations",
        "updateStrategy",
    }
)
"""Fields whose parts are those that Kubernetes has everywhere; the CRDs do not describe these parts."""
_PATTERNS: Final = {
    "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$": "lower-case letters, digits and dashes",
    "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$": "lower-case letters, digits, dashes and dots",
    "^[a-z][a-z0-9_]*$": "lower-case letters, digits and underscores",
}
_REFUSALS: Final = "[refusals.md](refusals.md) has the exact message for each value that is refused."
_SHORT: Final = 40
"""Longer patterns are those of Kubernetes' own names and values."""
_FORMAT: Final = re.compile(r"is no [^;]+; want ([^'%]+)")
"""In the message of a rule: what a value looks like. The other rules compare values."""


def page(crd: str) -> str:
    """The page of the kind that the file *crd* defines."""
    definition = yaml.safe_load((BASES / f"{crd}.yaml").read_text())["spec"]
    kind, version = definition["names"]["kind"], definition["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    scope = "namespaced" if definition["scope"] == "Namespaced" else "cluster-scoped"
    names = (definition["names"]["plural"], *definition["names"].get("shortNames", ()))
    commands = " or ".join(f"`kubectl get {each}`" for each in names)
    group = f"{definition['group']}/{version['name']}"
    return "\n\n".join(
        [
            f"# {kind}",
            schema["description"],
            f"`apiVersion: {group}`, {scope}, {commands}. {_REFUSALS}",
            *_part("spec", schema["properties"]["spec"]),
            *_part("status", schema["properties"]["status"]),
            "## Conditions",
            "[conditions.md](conditions.md) says what each reason means, and what to do.",
            _conditions(kind),
            "## Columns of kubectl get",
            "`-o wide` adds the columns that are not always there.",
            _columns(version["additionalPrinterColumns"]),
        ]
    )


def undocumented(crd: str) -> list[str]:
    """The paths of fields without a meaning."""
    definition = yaml.safe_load((BASES / f"{crd}.yaml").read_text())["spec"]
    properties = definition["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    fields = (each for top in ("spec", "status") for each in _walk(properties[top]["properties"], f"{top}."))
    return [path for path, each, _ in fields if not _meaning(path, each)]


def _part(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """A table of the fields of *name*, and one for each field with parts."""
    properties = schema["properties"]
    required = schema.get("required", ())
    yield f"## {name}"
    yield schema["description"]
    yield _table([(field, each, field in required) for field, each in properties.items()], name)
    for field, each in properties.items():
        if parts := list(_walk(_properties(each), "", _object(each).get("required", ()))):
            yield f"### {name}.{field}{_brackets(each)}"
            yield _table(parts, f"{name}.{field}")


def _walk(
    properties: Mapping[str, Any], prefix: str, required: Iterable[str] = ()
) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """Each field below *properties* with its path, and whether it is required; those with parts before their parts."""
    for field, each in properties.items():
        yield f"{prefix}{field}", each, field in required
        yield from _walk(_properties(each), f"{prefix}{field}{_brackets(each)}.", _object(each).get("required", ()))


def _object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    items: Mapping[str, Any] = schema.get("items", schema)
    return items


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = _object(schema).get("properties", {})
    return found


def _brackets(schema: Mapping[str, Any]) -> str:
    return "[]" if "items" in schema else ""


def _table(fields: Iterable[tuple[str, Mapping[str, Any], bool]], parent: str) -> str:
    rows = ["| field | type | default and limits | meaning |", "|---|---|---|---|"]
    for path, each, is_required in fields:
        default = [f"default `{_yaml(each['default'])}`"] if "default" in each else ["required"] if is_required else []
        cells = (f"`{path}`", _type(each), "; ".join([*default, *_limits(each)]), _meaning(f"{parent}.{path}", each))
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows)


def _type(schema: Mapping[str, Any]) -> str:
    if "items" in schema:
        return f"list of {_type(schema['items'])}s"
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if isinstance(values := schema.get("additionalProperties"), Mapping):
        return f"map to {_type(values)}"
    name: str = schema["type"]
    return "time" if schema.get("format") == "date-time" else name


def _limits(schema: Mapping[str, Any]) -> Iterator[str]:
    """What the CRD demands of a value: of a list, also what it demands of each entry."""
    if "enum" in schema:
        yield ", ".join(f"`{each}`" for each in schema["enum"])
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        yield f"{low} to {high}"
    elif low is not None:
        yield f"at least {low}"
    if "multipleOf" in schema:
        yield f"a multiple of {schema['multipleOf']}"
    for least, most, what in (
        ("minLength", "maxLength", "characters"),
        ("minItems", "maxItems", "entries"),
        ("minProperties", "maxProperties", "keys"),
    ):
        if most in schema:
            yield f"{f'{schema[least]} to' if least in schema else 'at most'} {schema[most]} {what}"
    if len(pattern := schema.get("pattern", "")) in range(1, _SHORT):
        yield _PATTERNS[pattern]
    for rule in schema.get("x-kubernetes-validations", ()):
        if found := _FORMAT.search(" ".join((rule.get("message") or rule["messageExpression"]).split())):
            yield found[1]
    entry = schema.get("items", schema.get("additionalProperties", {}))
    if entry and "properties" not in entry and (limits := "; ".join(_limits(entry))):
        yield f"each: {limits}"


def _meaning(path: str, schema: Mapping[str, Any]) -> str:
    """The description; for a part of what Kubernetes has everywhere, this."""
    text: str = schema.get("description", "")
    return text or ("as in Kubernetes" if KUBERNETES & set(re.split(r"[.\[\]]+", path)) else "")


def _yaml(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True).removesuffix("\n").removesuffix("\n...")


def _conditions(kind: str) -> str:
    rows = ["| condition | reasons |", "|---|---|"]
    for condition, reasons in CONDITIONS[kind].items():
        rows.append(f"| `{condition}` | {', '.join(f'`{each}`' for each in reasons)} |")
    return "\n".join(rows)


def _columns(columns: Iterable[Mapping[str, Any]]) -> str:
    rows = [f"| {each['name']} | {'' if each.get('priority') else 'yes'} | `{each['jsonPath']}` |" for each in columns]
    return "\n".join(["| column | always | field |", "|---|---|---|", *rows])
