"""The reader of ConfigMaps: it reads what groups name, once for each version, and keeps nothing else."""

from typing import cast
from unittest.mock import AsyncMock

import msgspec

from kavip import names
from kavip.api.group import ConfigTemplateRef
from kavip.api.meta import Identity, Metadata
from kavip.api.workload import ConfigMap, ConfigMapIdentity, without_content
from kavip.controller.configmapreader import ConfigMapReader
from kavip.errors import NotFound
from kavip.kube.client import Client
from kavip.reconcile.observed.objects import OwnedObjects
from kavip.reconcile.observed.templates import ConfigTemplates
from kavip.snapshot import Snapshot
from tests.support import build


class ConfigMaps:
    """A reader, and the ConfigMaps of a fake API server that counts what is read."""

    def __init__(self) -> None:
        """No group and no ConfigMap."""
        self.stored: dict[str, ConfigMap] = {}
        self.snapshot, self.objects = Snapshot(), OwnedObjects()
        self.groups = self.snapshot.groups
        self.get = AsyncMock(side_effect=self._get)
        self.known = ConfigTemplates()
        self.reader = ConfigMapReader(
            cast(Client, self),
            snapshot=self.snapshot,
            templates=self.known,
            objects=self.objects,
            store_published=self.publish,
        )

    async def _get(self, _resource: object, key: str) -> ConfigMap:
        if key not in self.stored:
            raise NotFound(404, "NotFound", key)
        return self.stored[key]

    def put(self, name: str, version: str, *, label: bool = True) -> None:
        """Write the ConfigMap *name*, with other data beside it; the watch shows it."""
        labels = {names.CONFIG_TEMPLATE_LABEL: ""} if label else {}
        notes = {"note": "long"}
        metadata = Metadata(
            name=name, namespace="lb", resource_version=version, labels=labels, annotations=notes, uid="u"
        )
        data = {names.CONFIG_KEY: f"{name} {version}"}
        self.stored[f"lb/{name}"] = ConfigMap(metadata=metadata, data=data, binary_data={"more": "AAAA"})
        self.known.note(None, ConfigMapIdentity(metadata=Identity(name=name, namespace="lb", resource_version=version)))

    async def name(self, group: str, template: str) -> None:
        """Let *group* name *template*, "" for none, and reconcile it."""
        reference = ConfigTemplateRef(template) if template else None
        self.groups[f"lb/{group}"] = build.group(f"lb/{group}", config_template_ref=reference)
        await self.reader.read(f"lb/{group}")

    def publish(self, configmap: ConfigMap) -> None:
        """Let the cache have *configmap* as that of a group."""
        self.objects.store(self.objects.configmaps.get(configmap.metadata.key), configmap)

    def kept(self) -> list[str | None]:
        """The texts in memory."""
        return [(each.data or {}).get(names.CONFIG_KEY) for _, each in sorted(self.known.configmaps.items())]


async def test_only_what_groups_name_is_kept() -> None:
    """However many ConfigMaps carry the label; what no group names any more is dropped, of deleted groups too."""
    configmaps = ConfigMaps()
    for number in range(1000):
        configmaps.put(f"t{number}", "1")
    await configmaps.name("plain", "")
    assert configmaps.kept() == []
    await configmaps.name("a", "t1")
    await configmaps.name("b", "t2")
    assert configmaps.kept() == ["t1 1", "t2 1"]
    (kept, _) = configmaps.known.configmaps.values()
    assert (kept.binary_data, kept.metadata.annotations) == (None, None)
    await configmaps.name("b", "t3")
    assert configmaps.kept() == ["t1 1", "t3 1"]
    del configmaps.groups["lb/a"]
    await configmaps.reader.read("lb/a")
    assert configmaps.kept() == ["t3 1"]
    assert configmaps.get.await_count == 3


async def test_each_version_is_read_once() -> None:
    """A reconcile without a new version reads nothing; a ConfigMap that is gone or lost its label is not kept."""
    configmaps = ConfigMaps()
    await configmaps.name("a", "t")
    assert configmaps.get.await_count == 0, "the watch shows no such ConfigMap"
    configmaps.put("t", "1")
    for _ in range(3):
        await configmaps.reader.read("lb/a")
    assert (configmaps.kept(), configmaps.get.await_count) == (["t 1"], 1)
    configmaps.put("t", "2")
    await configmaps.reader.read("lb/a")
    assert (configmaps.kept(), configmaps.get.await_count) == (["t 2"], 2)
    configmaps.known.note(ConfigMapIdentity(metadata=Identity(name="t", namespace="lb")), None)
    assert (configmaps.kept(), configmaps.known.versions) == ([], {})
    configmaps.put("t", "3", label=False)
    await configmaps.reader.read("lb/a")
    del configmaps.stored["lb/t"]
    await configmaps.reader.read("lb/a")
    assert configmaps.kept() == []


async def test_what_groups_published_is_read_if_they_come_late() -> None:
    """Of all groups that exist, before any of them is reconciled; of no others, and once."""
    configmaps = ConfigMaps()
    whole = ConfigMap(metadata=build.metadata("lb/late", resource_version="7"), data={names.CONFIG_KEY: "text"})
    for name in ("late", "stranger", "empty"):
        configmaps.stored[f"lb/{name}"] = msgspec.structs.replace(whole, metadata=build.metadata(f"lb/{name}"))
        configmaps.publish(without_content(configmaps.stored[f"lb/{name}"]))
    configmaps.stored["lb/empty"] = without_content(configmaps.stored["lb/empty"])
    for name in ("late", "empty", "other"):
        configmaps.snapshot.put(build.group(f"lb/{name}"))
    await configmaps.reader.read("lb/other")
    assert [configmaps.objects.published_text(f"lb/{name}") for name in ("late", "stranger", "empty")] == [
        "text",
        "",
        "",
    ]
    await configmaps.reader.read("lb/late")
    read = [call.args[1] for call in configmaps.get.await_args_list]
    assert sorted(read) == ["lb/empty", "lb/empty", "lb/late"]
    del configmaps.stored["lb/empty"]
    await configmaps.reader.read("lb/late")
    assert configmaps.objects.published_text("lb/late") == "text"
