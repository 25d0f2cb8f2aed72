"""
The output of ``kavip import``: manifests that can be applied, the changes of Services as comments, and remarks.
"""

from typing import Any

import yaml

from kavip.api.text import one_line
from kavip.cli.views.conversionoutput import cause, diff
from kavip.cli.views.importing import ImportPlan
from kavip.cli.views.structured import structured
from kavip.convert.imported import Imported, Remark


def manifests(plan: ImportPlan) -> str:
    """A YAML stream: namespaces, groups and pools, then what the hand-over changes in each Service, as comments."""
    documents = [_yaml(each) for each in plan.imported.bodies()]
    changes = [
        f"# {line}".rstrip()
        for row in plan.rows
        if not row.refusals
        for line in diff(row.service, row.patch).split("\n")
    ]
    return "---\n".join([*documents, "\n".join([*changes, ""])] if changes else documents)


def remarks(plan: ImportPlan) -> list[str]:
    """One line for each remark, and for each refused Service."""
    return [*map(_line, plan.remarks), *_refused(plan)]


def service_remarks(plan: ImportPlan) -> list[str]:
    """The same without remarks about the manifests: at the hand-over these are applied, and may have been edited."""
    made = set(plan.imported.remarks)
    return [*(_line(each) for each in plan.remarks if each not in made), *_refused(plan)]


def assigning(imported: Imported, provider: str) -> list[str]:
    """A line if *provider* could assign an address again that the hand-over gives to kavip."""
    if not imported.assigning:
        return []
    what = f"IPAddressPool {', '.join(imported.assigning)}, also addresses that kavip has by then"
    return [f"{provider} still assigns from {what}: set spec.autoAssign of each to false"]


def data(plan: ImportPlan) -> dict[str, Any]:
    """*plan* for programs."""
    return {
        "objects": list(plan.imported.bodies()),
        "services": [
            {
                "namespace": row.service.metadata.namespace,
                "name": row.service.metadata.name,
                "group": row.goal.group,
                "sharingKey": row.goal.sharing_key,
                "patch": row.patch,
                "causes": [
                    {"field": each.field, "reason": each.reason, "message": each.message} for each in row.refusals
                ],
            }
            for row in plan.rows
        ],
        "remarks": [{"subject": each.subject, "field": each.field, "message": each.text} for each in plan.remarks],
    }


def text(plan: ImportPlan, form: str) -> str:
    """*plan* as *form*: ``text``, or what :func:`structured` makes."""
    return manifests(plan).rstrip("\n") if form == "text" else structured(data(plan), form)


def _line(remark: Remark) -> str:
    return one_line(str(remark))


def _refused(plan: ImportPlan) -> list[str]:
    return [f"{row.key}: not handed over: {cause(each)}" for row in plan.refused for each in row.refusals]


def _yaml(value: object) -> str:
    return str(yaml.safe_dump(value, sort_keys=False, default_flow_style=False, width=1000))
