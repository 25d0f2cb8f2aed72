"""
The pod template of a group after the patches of the administrator and of the group.

If a patch cannot be used, the DaemonSet stays as it is, with the last patch that could, and ``Accepted`` says why. The
ConfigMap does not wait for it, so Services still get their VIPs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.names import Reason
from kavip.podtemplate.containers import LISTS, OWN_NAMES
from kavip.podtemplate.defaulttemplate import ROOT, DefaultTemplate
from kavip.podtemplate.guard import FIELD, PatchedTemplate, apply_patch
from kavip.reconcile.group.manifests import Manifest
from kavip.reconcile.plan import ReconcileOptions


@dataclass(frozen=True, slots=True)
class PatchedDaemonSet:
    """The DaemonSet to apply; None with the *problem* that prevents it."""

    body: Manifest | None
    problem: Refusal | None = None


def patched_daemon_set(
    group: KeepalivedGroup, body: Manifest, default: DefaultTemplate, options: ReconcileOptions
) -> PatchedDaemonSet:
    """The DaemonSet *body* of *group* after both patches; *default* is the administrator's, and comes first."""
    patch, own = group.spec.pod_template, body["spec"]["template"]
    if default.fault:
        return _refused(default.fault)
    if patch is not None and (problem := options.templates.problem(group.metadata.namespace)):
        return _refused(f"{FIELD}: {problem}")
    outcome = PatchedTemplate(own)
    for field, patches in _steps(default, patch):
        outcome = apply_patch(own, *patches, privileges=options.templates.privileges, path=field)
        found = next(chain(outcome.refusals, _unlisted(outcome.template, field, options)), None)
        if found is not None and field == ROOT:
            return _refused(default.message(found.field, found.message.removeprefix(f"{ROOT}.")))
        if found is not None:
            return PatchedDaemonSet(None, found)
    if outcome.template is own:
        return PatchedDaemonSet(body)
    return PatchedDaemonSet({**body, "spec": {**body["spec"], "template": outcome.template}})


def _steps(
    default: DefaultTemplate, patch: Mapping[str, Any] | None
) -> Iterator[tuple[str, tuple[Mapping[str, Any], ...]]]:
    """The patches, each with those before it, and the name of the last one."""
    before = () if default.patch is None else (default.patch,)
    if before:
        yield ROOT, before
    if patch is not None:
        yield FIELD, (*before, patch)


def _unlisted(template: Manifest, path: str, options: ReconcileOptions) -> Iterator[Refusal]:
    """The images of added containers that the list of the administrator does not have."""
    listed = options.policy_images
    for field in LISTS if listed else ():
        for each in template["spec"].get(field, ()):
            image = each.get("image", "")
            if each["name"] not in OWN_NAMES and image not in options.related_images:
                where = f"{path}.spec.{field}[{each['name']}].image"
                message = f"{where}: {image!r}: want an image of the chart value policies.images"
                yield Refusal(Reason.INVALID, message, where)


def _refused(message: str) -> PatchedDaemonSet:
    return PatchedDaemonSet(None, Refusal(Reason.INVALID, message))
