"""
Objects of other load balancers, from files or a cluster, and which Services they still announce.

In a cluster a kind that does not exist has no objects, and one that the user may not list is a note.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api import kubevip, metallb
from kavip.api.handover import HandedService
from kavip.api.metallb import ForeignObject, ServiceL2Status
from kavip.api.typeproblem import short
from kavip.api.yamldocuments import read
from kavip.cli.sources.files import converted, files_in, flattened, text_of
from kavip.convert.metallb import BGP, OTHERS, POOL
from kavip.convert.provider import Provider
from kavip.errors import BadFile, Forbidden, NotFound
from kavip.kube.client import Client
from kavip.kube.resources import SERVICES, Resource

HANDED: Final = Resource(SERVICES.api_version, SERVICES.plural, SERVICES.kind, HandedService)
"""Services with what a hand-over needs to know of them."""

_L2_STATUS: Final = Resource(metallb.VERSION, "servicel2statuses", "ServiceL2Status", ServiceL2Status)
_METALLB: Final = (
    Resource(metallb.VERSION, "ipaddresspools", POOL, ForeignObject),
    Resource(metallb.VERSION, "l2advertisements", "L2Advertisement", ForeignObject),
    Resource(metallb.VERSION, "bgpadvertisements", BGP, ForeignObject),
    Resource(f"{metallb.GROUP}/v1beta2", "bgppeers", OTHERS[0], ForeignObject),
    Resource(metallb.VERSION, "bfdprofiles", OTHERS[1], ForeignObject),
    Resource(metallb.VERSION, "communities", OTHERS[2], ForeignObject),
)
_CONFIG_MAPS: Final = Resource("v1", "configmaps", names.CONFIG_MAP, ForeignObject)
_DAEMON_SETS: Final = Resource("apps/v1", "daemonsets", names.DAEMON_SET, ForeignObject)
_PODS: Final = Resource("v1", "pods", names.POD, ForeignObject)
_KUBE_VIP_KINDS: Final = {("v1", names.CONFIG_MAP), ("apps/v1", names.DAEMON_SET), ("v1", names.POD)}
_SETTLE: Final = 3.0
"""Seconds to wait for a load balancer that shows nothing about what it announces."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """The objects that were found, and what could not be read."""

    objects: tuple[ForeignObject, ...] = ()
    notes: tuple[str, ...] = ()
    unread: tuple[BadFile, ...] = ()


# --- files ------------------------------------------------------------------------------------------------------------
def read_files(provider: str, paths: Iterable[Path]) -> Foreign:
    """The objects of *provider* in manifests. An error hides no other object."""
    found: list[ForeignObject] = []
    unread: list[BadFile] = []
    files: dict[Path, None] = {}
    for path in paths:
        try:
            files.update(dict.fromkeys(files_in(path)))
        except BadFile as error:
            unread.append(error)
    for file in files:
        try:
            for each in _objects(provider, file):
                if isinstance(each, BadFile):
                    unread.append(each)
                else:
                    found.append(each)
        except BadFile as error:
            unread.append(error)
    return Foreign(tuple(found), unread=tuple(unread))


def _objects(provider: str, file: Path) -> Iterator[ForeignObject | BadFile]:
    where, text = text_of(file)
    for document in read(where, text):
        for path, content in flattened(document.content):
            if not isinstance(content, dict) or not _is_theirs(provider, content):
                continue
            try:
                yield converted(
                    ForeignObject, content, where, document, path=path, subject=short(str(content.get("kind", "")))
                )
            except BadFile as error:
                yield error


def _is_theirs(provider: str, content: dict[str, Any]) -> bool:
    version, kind = str(content.get("apiVersion", "")), str(content.get("kind", ""))
    if provider == "metallb":
        return version.rpartition("/")[0] == metallb.GROUP
    return (version, kind) in _KUBE_VIP_KINDS


# --- a cluster --------------------------------------------------------------------------------------------------------
async def list_objects(provider: str, client: Client) -> Foreign:
    """The objects of *provider* in the cluster."""
    if provider == "metallb":
        return _together(await asyncio.gather(*(_listed(client, each) for each in _METALLB)))
    parts = await asyncio.gather(
        _listed(client, _CONFIG_MAPS, namespace=kubevip.NAMESPACE, fields=f"metadata.name={kubevip.CONFIG_MAP}"),
        _listed(client, _DAEMON_SETS),
        _listed(client, _PODS, namespace=kubevip.NAMESPACE),
    )
    found = _together(parts)
    owned = (each for each in found.objects if not (each.kind == names.POD and _is_owned(each)))
    return Foreign(tuple(owned), found.notes)


def _is_owned(pod: ForeignObject) -> bool:
    """Whether a DaemonSet made *pod*: that is read already. The mirror of a static pod belongs to its Node."""
    return any(each.kind == names.DAEMON_SET for each in pod.metadata.owner_references or ())


async def _listed(
    client: Client, resource: Resource[ForeignObject], *, namespace: str = "", fields: str = ""
) -> Foreign:
    try:
        items, _ = await client.list(resource, namespace=namespace, fields=fields, on_malformed=lambda _: None)
    except NotFound:
        return Foreign()
    except Forbidden:
        where = f" in namespace {namespace}" if namespace else ""
        return Foreign(notes=(f"you may not list {resource.plural}{where}: what they say is not imported",))
    return Foreign(tuple(msgspec.structs.replace(each, kind=resource.kind) for each in items))


def _together(parts: Iterable[Foreign]) -> Foreign:
    parts = tuple(parts)
    notes = tuple(note for part in parts for note in part.notes)
    return Foreign(tuple(each for part in parts for each in part.objects), notes)


async def list_services(client: Client, namespaces: Collection[str]) -> Sequence[HandedService]:
    """All Services, or those of *namespaces* if the user may list only these."""
    try:
        found, _ = await client.list(HANDED, on_malformed=lambda _: None)
    except Forbidden:
        parts = [await client.list(HANDED, namespace=each, on_malformed=lambda _: None) for each in sorted(namespaces)]
        return [each for items, _ in parts for each in items]
    return found


# --- what is announced ------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Announcements:
    """
    What shows that *provider* announces a Service still.

    MetalLB 0.14 and later write a ServiceL2Status for each Service that a speaker announces. Where nothing shows it,
    the Service waits for some seconds.
    """

    client: Client
    provider: Provider
    has_status: bool = False
    _nodes: dict[str, str] = field(default_factory=dict)
    _since: dict[str, float] = field(default_factory=dict)

    async def refresh(self) -> None:
        """Look again."""
        if self.provider.name != "MetalLB":
            return
        try:
            found, _ = await self.client.list(_L2_STATUS, on_malformed=lambda _: None)
        except (NotFound, Forbidden):
            self.has_status = False
            return
        self.has_status = True
        self._nodes = {each.service: each.status.node for each in found}

    def of(self, service: HandedService) -> str:
        """Why *service*, whose type has changed, may be announced still; "" if it is not."""
        for mark in self.provider.marks:
            if self.provider.name == "MetalLB" and self.provider.annotation(service, mark):
                return f"MetalLB's controller has not released it: its annotation {mark} stays"
        if service.key in self._nodes:
            return f"MetalLB still announces it on node {self._nodes[service.key]} (ServiceL2Status)"
        if self.has_status:
            return ""
        left = _SETTLE - (time.monotonic() - self._since.setdefault(service.key, time.monotonic()))
        return f"{self.provider.name} has {left:.0f} s to withdraw it" if left > 0 else ""
