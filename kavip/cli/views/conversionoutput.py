"""
The output of ``kavip convert external-ips``: the changes of each Service as a diff, and what is left as it is.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import yaml

from kavip import names
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.api.text import one_line, printable
from kavip.cli.views.apply import LAST_APPLIED
from kavip.cli.views.conversion import NOT_SERVED, ConversionPlan, Row
from kavip.convert.steps import Json
from kavip.ipam.ranges import Range
from kavip.reconcile.mergepatch import patched


def diff(service: Service, patch: Json) -> str:
    """What *patch* changes in *service*, as a unified diff of its annotations and of the fields that it names."""
    whole = msgspec.to_builtins(service)
    whole["spec"] = {"type": service.spec.type, **whole.get("spec", {})}  # a default is not written
    before = _part(whole, patch)
    annotations = {key: text for key, text in (service.metadata.annotations or {}).items() if key != LAST_APPLIED}
    before = {name: part for name, part in {**before, "metadata": {"annotations": annotations}}.items() if part}
    return unified(_yaml(before), _yaml(patched(before, patch)), f"Service {service.key}")


def unified(before: str, after: str, subject: str) -> str:
    """The unified diff of two texts of *subject*; "" if they are equal."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"now: {subject}", f"converted: {subject}", lineterm=""
    )
    return "\n".join(map(printable, lines))


def diffs(plan: ConversionPlan) -> Iterator[str]:
    """The diff of each Service that can be converted."""
    sharing = dict(plan.sharing)
    for row in plan.converted:
        if row.conversion:
            patch = row.conversion.patch
            if key := sharing.get(row.key):
                annotations = {names.SHARING_KEY_ANNOTATION: key, **patch.get("metadata", {}).get("annotations", {})}
                patch = {**patch, "metadata": {"annotations": annotations}}
            yield diff(_without(row.service, sharing), patch)


def remarks(plan: ConversionPlan) -> list[str]:
    """One line for each refusal and remark, and for each Service that is left as it is."""
    lines = [f"{row.key}: not converted: {cause(each)}" for row in plan.refused for each in row.refusals]
    lines += [f"{row.key}: {each}" for row in plan.converted for each in row.remarks]
    converted = {row.key for row in plan.converted}
    lines += [
        f"{key}: gets the annotation {names.SHARING_KEY_ANNOTATION}={text} too"
        for key, text in plan.sharing
        if key not in converted
    ]
    lines += [f"{key}: left as it is: {NOT_SERVED}" for key in plan.left]
    if plan.without_pool:
        ranges = ", ".join(map(str, plan.without_pool))
        lines.append(f"in no VIPPool: {ranges}; --pool NAME prints a pool for them")
    return lines


def data(plan: ConversionPlan) -> dict[str, Any]:
    """*plan* for programs."""
    return {
        "converted": [
            {
                **_identity(row),
                "addresses": [str(each) for each in row.conversion.addresses],
                "patch": row.conversion.patch,
                "remarks": list(row.remarks),
            }
            for row in plan.converted
            if row.conversion
        ],
        "sharing": [{"service": key, "sharingKey": text} for key, text in plan.sharing],
        "refused": [
            {
                **_identity(row),
                "causes": [
                    {"field": each.field, "reason": each.reason, "message": each.message} for each in row.refusals
                ],
            }
            for row in plan.refused
        ],
        "left": list(plan.left),
        "withoutPool": [str(each) for each in plan.without_pool],
    }


def pool(name: str, ranges: Iterable[Range]) -> str:
    """A VIPPool with *ranges*, for Services that ask for these addresses by name."""
    body = {
        "apiVersion": f"{names.KAVIP_GROUP}/{names.VERSION}",
        "kind": names.VIP_POOL,
        "metadata": {"name": name},
        "spec": {"addresses": [str(each) for each in ranges], "autoAssign": False},
    }
    return _yaml(body)


def _identity(row: Row) -> dict[str, str]:
    meta = row.service.metadata
    return {"namespace": meta.namespace, "name": meta.name, "group": row.service.declared_group}


def cause(refusal: Refusal) -> str:
    """One line: field and message."""
    field, message = refusal.field, one_line(refusal.message)
    return f"{field}: {message}" if field and field not in message else message


def _without(service: Service, sharing: Mapping[str, str]) -> Service:
    """*service* as it is in the cluster: without the sharing key that the plan has added."""
    if service.key not in sharing:
        return service
    kept = {
        key: text for key, text in (service.metadata.annotations or {}).items() if key != names.SHARING_KEY_ANNOTATION
    }
    metadata = msgspec.structs.replace(service.metadata, annotations=kept or None)
    return msgspec.structs.replace(service, metadata=metadata)


def _part(value: Any, patch: Mapping[str, Any]) -> Any:
    """The fields of *value* that *patch* names."""
    if not isinstance(value, Mapping):
        return {}
    return {
        key: _part(value[key], each) if isinstance(each, Mapping) else value[key]
        for key, each in patch.items()
        if key in value
    }


def _yaml(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=True, default_flow_style=False, width=1000))
