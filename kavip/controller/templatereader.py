"""
Reads the ConfigMaps with templates that groups name.

Anybody who may create ConfigMaps may label any number of them as templates. So the watch has only their versions
(:class:`~kavip.api.workload.ConfigMapIdentity`), and the content is read when the group that names it is reconciled.
"""

from collections.abc import Mapping

from kavip.api.group import KeepalivedGroup
from kavip.errors import NotFound
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.reconcile.observed.templates import ConfigTemplates, is_template, template_key


class TemplateReader:
    """Keeps the content of the ConfigMaps that *groups* name in *templates*, and of no others."""

    def __init__(self, client: Client, templates: ConfigTemplates, groups: Mapping[str, KeepalivedGroup]) -> None:
        """Read nothing before :meth:`read`."""
        self._client, self._templates, self._groups = client, templates, groups

    async def read(self, group: str) -> None:
        """Read the ConfigMap that *group* names, unless this version of it is known. Raises :class:`ApiError`."""
        self._templates.prune(self._groups.values())
        found = self._groups.get(group)
        key = template_key(found) if found else ""
        if not self._templates.is_outdated(key):
            return
        try:
            configmap = await self._client.get(resources.CONFIGMAPS, key)
        except NotFound:
            return  # the watch will show it
        if is_template(configmap):
            self._templates.store(configmap)
