"""
The templates of ``keepalived.conf`` that groups name, and what came out of them, as last observed.

kavip reads ConfigMaps with the label ``kavip.io/config-template`` only. Their content passes no admission of kavip, so
each fault in it is a condition of the group. Any user who may create ConfigMaps may set the label, so only the content
of those that groups name is kept.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Metadata
from kavip.api.workload import ConfigMap, ConfigMapIdentity
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

    By ``ns/name``: *versions*, the resourceVersions of the ConfigMaps with the label; *configmaps*, those that groups
    name, with content. By group: *rendered*, the last result; *asked_since*, since when a group waits for a result.
    """

    configmaps: dict[str, ConfigMap] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    rendered: dict[str, RenderedTemplate] = field(default_factory=dict)
    asked_since: dict[str, datetime] = field(default_factory=dict)

    def note(self, old: ConfigMapIdentity | None, new: ConfigMapIdentity | None) -> None:
        """Replace the version *old* by *new*; without *new* the content is gone too."""
        if new is not None:
            self.versions[new.metadata.key] = new.metadata.resource_version
        elif old is not None:
            self.versions.pop(old.metadata.key, None)
            self.configmaps.pop(old.metadata.key, None)

    def store(self, configmap: ConfigMap) -> None:
        """Keep the text of *configmap*."""
        metadata = configmap.metadata
        kept = Metadata(name=metadata.name, namespace=metadata.namespace, resource_version=metadata.resource_version)
        self.configmaps[metadata.key] = ConfigMap(metadata=kept, data=configmap.data)

    def is_outdated(self, configmap: str) -> bool:
        """Whether the content of *configmap* that is kept is not that of the version which exists."""
        version, kept = self.versions.get(configmap), self.configmaps.get(configmap)
        return version is not None and (kept is None or kept.metadata.resource_version != version)

    def prune(self, groups: Iterable[KeepalivedGroup]) -> None:
        """Drop the content that none of *groups* names."""
        for key in self.configmaps.keys() - set(map(template_key, groups)):
            del self.configmaps[key]

    def users_of(self, configmap: str, groups: Iterable[KeepalivedGroup]) -> list[str]:
        """The keys of those of *groups* that name *configmap*, sorted."""
        return sorted(group.key for group in groups if template_key(group) == configmap)

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
