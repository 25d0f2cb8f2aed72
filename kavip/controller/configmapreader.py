"""
Reads the content of ConfigMaps that the watches leave out: of templates that groups name, and of groups that came late.

Anybody who may create ConfigMaps may label any number of them as templates, or as those of groups. So the watch of
templates has only their versions (:class:`~kavip.api.workload.ConfigMapIdentity`), and that of groups keeps the content
only if the group exists. What a group needs is read when it is reconciled.
"""

from collections.abc import Callable

from kavip.api.workload import ConfigMap
from kavip.errors import NotFound
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.templates import ConfigTemplates, is_template, template_key
from kavip.snapshot import Snapshot


class ConfigMapReader:
    """Keeps the content of the ConfigMaps that the groups of *snapshot* name in *templates*, and of no others."""

    def __init__(
        self,
        client: Client,
        *,
        snapshot: Snapshot,
        templates: ConfigTemplates,
        objects: OwnedObjects,
        store_published: Callable[[ConfigMap], None],
    ) -> None:
        """
        Read nothing before :meth:`read`.

        *store_published* puts the ConfigMap of a group into *objects*, with its content.
        """
        self._client, self._groups = client, snapshot.groups
        self._templates, self._objects, self._store_published = templates, objects, store_published

    async def read(self, group: str) -> None:
        """
        Read the template that *group* names, unless this version of it is known, and what groups have published.

        That is read of all groups: an address or a VRID that is new in one waits for those that others run. Raises
        :class:`ApiError`.
        """
        await self._read_published()
        await self._read_template(group)

    async def _read_published(self) -> None:
        configmaps = self._objects.configmaps
        for key in [each for each in self._groups if each in configmaps and not configmaps[each].has_content]:
            configmap = await self._get(key)
            if configmap is not None and configmap.has_content:
                self._store_published(configmap)

    async def _read_template(self, group: str) -> None:
        self._templates.prune(self._groups.values())
        found = self._groups.get(group)
        key = template_key(found) if found else ""
        if not self._templates.is_outdated(key):
            return
        configmap = await self._get(key)
        if configmap is not None and is_template(configmap):
            self._templates.store(configmap)

    async def _get(self, key: str) -> ConfigMap | None:
        """The ConfigMap with *key*; None if there is none, which the watch will show."""
        try:
            return await self._client.get(resources.CONFIGMAPS, key)
        except NotFound:
            return None
