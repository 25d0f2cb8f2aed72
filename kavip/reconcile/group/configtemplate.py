"""
The configuration of a group with the lines of its template.

A template is rendered outside of the plan. Until the result for the current input is there, the plan waits for a
moment (:data:`PATIENCE`), and then goes on. A template that cannot be used never stops the group: instances that run
keep the lines of the last template that could be used, which the published text records, and new instances have none.
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from kavip.api.group import KeepalivedGroup
from kavip.api.refusal import Refusal
from kavip.memo import Memory
from kavip.names import Reason
from kavip.podtemplate.permissions import TemplatePermissions
from kavip.reconcile.group.configuration import GroupConfiguration
from kavip.reconcile.observed.templates import ConfigTemplates, digest_of, template_key
from kavip.vrrp import config
from kavip.vrrp.addedlines import published_lines
from kavip.vrrp.config import Config
from kavip.vrrp.configtemplate import FIELD, NO_LINES, AddedLines, RenderRequest, TemplateFault, request_of, with_lines
from kavip.vrrp.instances import Model

PATIENCE: Final = 3.0
"""Seconds for which the plan of a group waits for its template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatedConfiguration:
    """
    A *configuration* with the lines of a template.

    *request*: what to render now. *is_held*: nothing is written until the result is there. *problem*: why the template
    cannot be used.
    """

    configuration: GroupConfiguration
    request: RenderRequest | None = None
    is_held: bool = False
    problem: Refusal | None = None


@dataclass(frozen=True, slots=True)
class _Choice:
    """What is known of a template: its *lines* or its *fault*, and the *request* that is not answered yet."""

    lines: AddedLines | None = None
    fault: TemplateFault | None = None
    request: RenderRequest | None = None
    is_held: bool = False


def apply_template(
    group: KeepalivedGroup,
    configuration: GroupConfiguration,
    templates: ConfigTemplates,
    *,
    published: str,
    permissions: TemplatePermissions,
    memory: Memory,
    now: datetime,
) -> TemplatedConfiguration:
    """*configuration* with the lines of the template of *group*, whose nodes run the text *published*."""
    template = templates.text_of(group, permissions)
    if template is None or configuration.current is None:
        return TemplatedConfiguration(configuration=configuration)
    choice = _choose(group, template, configuration, templates, now=now)
    if choice.is_held:
        return TemplatedConfiguration(configuration=configuration, request=choice.request, is_held=True)
    kept = memory.last(published_lines, "", published)
    built, fault = configuration, choice.fault
    for lines in (choice.lines.over(kept) if choice.lines else kept, kept, NO_LINES):
        built = _built(group, configuration, lines, memory)
        oversized = next((each.oversized for each in (built.current, built.next) if each and each.oversized), None)
        if oversized is None:
            break
        fault = fault or TemplateFault(oversized.message)
    return TemplatedConfiguration(
        configuration=built, request=choice.request, problem=_problem(group, fault) if fault else None
    )


def _choose(
    group: KeepalivedGroup,
    template: str | TemplateFault,
    configuration: GroupConfiguration,
    templates: ConfigTemplates,
    *,
    now: datetime,
) -> _Choice:
    if isinstance(template, TemplateFault):
        return _Choice(fault=template)
    request, last = _request(group, template, configuration), templates.rendered.get(group.key)
    result = last.result if last else None
    lines, fault = (result, None) if isinstance(result, AddedLines) else (None, result)
    if last and request and last.digest == request.digest:
        return _Choice(lines, fault, request if fault and fault.is_temporary else None)
    if last and fault and last.template == digest_of(template):  # it most likely fails again
        return _Choice(None, fault, request)
    since = templates.asked_since.get(group.key)
    if since is None or 0 <= (now - since).total_seconds() < PATIENCE:  # the clock may have been set back
        return _Choice(request=request, is_held=True)
    return _Choice(lines, None, request)


def _request(group: KeepalivedGroup, template: str, configuration: GroupConfiguration) -> RenderRequest | None:
    """The request for the text that the group should run in the end."""
    model, text = _wanted(configuration)
    return request_of(group, template, model, text.text) if model and text else None


def _wanted(configuration: GroupConfiguration) -> tuple[Model | None, Config | None]:
    if configuration.next:
        return configuration.final, configuration.next
    return configuration.model, configuration.current


def _built(
    group: KeepalivedGroup, configuration: GroupConfiguration, lines: AddedLines, memory: Memory
) -> GroupConfiguration:
    """*configuration* with the texts of its models and *lines*."""

    def text(model: Model | None, own: Config | None) -> Config | None:
        if model is None or own is None:
            return own
        added = with_lines(group, model, lines)
        return own if added == model else config.render(added, own.target, memory=memory.part("template"))

    return replace(
        configuration,
        current=text(configuration.model, configuration.current),
        next=text(configuration.final, configuration.next),
    )


def _problem(group: KeepalivedGroup, fault: TemplateFault) -> Refusal:
    reference = group.spec.config_template_ref
    where = f"{FIELD}: ConfigMap {template_key(group)}, key {reference.key if reference else ''}"
    return Refusal(
        Reason.INVALID, f"{where}: {fault}; until it can be used, the lines of the last good template stay", FIELD
    )
