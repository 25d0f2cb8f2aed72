"""The reader of templates: it reads what groups name, once for each version, and keeps nothing else."""

from typing import cast
from unittest.mock import AsyncMock

from kavip import names
from kavip.api.group import ConfigTemplateRef, KeepalivedGroup
from kavip.api.meta import Identity, Metadata
from kavip.api.workload import ConfigMap, ConfigMapIdentity
from kavip.controller.templatereader import TemplateReader
from kavip.errors import NotFound
from kavip.kube.client import Client
from kavip.reconcile.observed.templates import ConfigTemplates
from tests.support import build


class Templates:
    """A reader, and the ConfigMaps of a fake API server that counts what is read."""

    def __init__(self) -> None:
        """No group and no ConfigMap."""
        self.stored: dict[str, ConfigMap] = {}
        self.groups: dict[str, KeepalivedGroup] = {}
        self.get = AsyncMock(side_effect=self._get)
        self.known = ConfigTemplates()
        self.reader = TemplateReader(cast(Client, self), self.known, self.groups)

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

    def kept(self) -> list[str | None]:
        """The texts in memory."""
        return [(each.data or {}).get(names.CONFIG_KEY) for _, each in sorted(self.known.configmaps.items())]


async def test_only_what_groups_name_is_kept() -> None:
    """However many ConfigMaps carry the label; what no group names any more is dropped, of deleted groups too."""
    templates = Templates()
    for number in range(1000):
        templates.put(f"t{number}", "1")
    await templates.name("plain", "")
    assert templates.kept() == []
    await templates.name("a", "t1")
    await templates.name("b", "t2")
    assert templates.kept() == ["t1 1", "t2 1"]
    (kept, _) = templates.known.configmaps.values()
    assert (kept.binary_data, kept.metadata.annotations) == (None, None)
    await templates.name("b", "t3")
    assert templates.kept() == ["t1 1", "t3 1"]
    del templates.groups["lb/a"]
    await templates.reader.read("lb/a")
    assert templates.kept() == ["t3 1"]
    assert templates.get.await_count == 3


async def test_each_version_is_read_once() -> None:
    """A reconcile without a new version reads nothing; a ConfigMap that is gone or lost its label is not kept."""
    templates = Templates()
    await templates.name("a", "t")
    assert templates.get.await_count == 0, "the watch shows no such ConfigMap"
    templates.put("t", "1")
    for _ in range(3):
        await templates.reader.read("lb/a")
    assert (templates.kept(), templates.get.await_count) == (["t 1"], 1)
    templates.put("t", "2")
    await templates.reader.read("lb/a")
    assert (templates.kept(), templates.get.await_count) == (["t 2"], 2)
    templates.known.note(ConfigMapIdentity(metadata=Identity(name="t", namespace="lb")), None)
    assert (templates.kept(), templates.known.versions) == ([], {})
    templates.put("t", "3", label=False)
    await templates.reader.read("lb/a")
    del templates.stored["lb/t"]
    await templates.reader.read("lb/a")
    assert templates.kept() == []
