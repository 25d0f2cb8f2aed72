"""
The templates of ``keepalived.conf`` that groups name, and what came out of them, as last observed.

kavip reads ConfigMaps with the label ``kavip.io/config-template`` only. Their content passes no admission of kavip, so
each fault in it is a condition of the group.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.workload import ConfigMap
from kavip.podtemplate.permissions import TemplatePermissions
from kavip.vrrp.configtemplate import AddedLines, RenderRequest, TemplateFault


@dataclass(frozen=True, slots=True)
class RenderedTemplate:
    """The *result* of the request with *digest*, whose template has the digest *template*."""

    digest: str
    template: str
    result: AddedLines | TemplateFault


@dataclass(slots=True)
class ConfigTemplates:
    """
    The templates, as last observed.

    *configmaps*: those with the label, by ``ns/name``. By group: *rendered*, the last result; *asked_since*, since when
    a group waits for a result.
    """

    configmaps: dict[str, ConfigMap] = field(default_factory=dict)
    rendered: dict[str, RenderedTemplate] = field(default_factory=dict)
    asked_since: dict[str, datetime] = field(default_factory=dict)

    def store(self, old: ConfigMap | None, new: ConfigMap | None) -> None:
        """Replace *old* by *new*."""
        if old is not None:
            self.configmaps.pop(old.metadata.key, None)
        if new is not None:
            self.configmaps[new.metadata.key] = new

    def users_of(self, configmap: ConfigMap, groups: Iterable[KeepalivedGroup]) -> list[str]:
        """The keys of those of *groups* that name *configmap*, sorted."""
        return sorted(group.key for group in groups if template_key(group) == configmap.metadata.key)

    def text_of(self, group: KeepalivedGroup, permissions: TemplatePermissions) -> str | TemplateFault | None:
        """The template that *group* names; None if it names none."""
        reference = group.spec.config_template_ref
        if reference is None:
            return None
        if problem := permissions.problem(group.metadata.namespace):
            return TemplateFault(problem)
        found = self.configmaps.get(template_key(group))
        if found is None:
            label = names.CONFIG_TEMPLATE_LABEL
            return TemplateFault(f"no such ConfigMap with the label {label}: create it, or set the label")
        if reference.key not in (found.data or {}):
            return TemplateFault("the ConfigMap has no such key in its data: add it, or name another")
        return (found.data or {})[reference.key]


def template_key(group: KeepalivedGroup) -> str:
    """``ns/name`` of the ConfigMap that *group* names; "" for none."""
    reference = group.spec.config_template_ref
    return f"{group.metadata.namespace}/{reference.name}" if reference else ""


def is_template(configmap: ConfigMap) -> bool:
    """Whether groups may name *configmap*."""
    return names.CONFIG_TEMPLATE_LABEL in (configmap.metadata.labels or {})


def digest_of(template: str) -> str:
    """Identifies the text of a template."""
    return hashlib.sha256(template.encode(errors="surrogatepass")).hexdigest()


def rendered(request: RenderRequest, result: AddedLines | TemplateFault) -> RenderedTemplate:
    """The record of the *result* of *request*."""
    return RenderedTemplate(request.digest, digest_of(request.template), result)
