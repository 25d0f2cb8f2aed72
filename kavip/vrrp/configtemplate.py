"""
A user's template of ``keepalived.conf``: its input, and the lines that it adds.

The template gets the finished text of kavip in parts (:func:`context_of`), and another process renders it
(:mod:`kavip.rendering`). kavip takes from the outcome only the lines that were added
(:mod:`kavip.vrrp.addedlines`), and writes them itself, at the end of their block, behind a comment. So a published text
says which lines came from a template.
"""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kavip.api.group import KeepalivedGroup
from kavip.api.text import one_line
from kavip.vrrp import keywords
from kavip.vrrp.globaldefs import NAMES_INTERFACES
from kavip.vrrp.grammar import Line
from kavip.vrrp.instances import Instance, Model, tracked_anyway

FIELD: Final = "spec.configTemplateRef"
MOST_TEMPLATE: Final = 64 * 1024
"""Most characters of a template."""
MARK: Final = "# kavip: template"
"""The line before those of a template, in each block."""

_LONGEST: Final = 500
_GLOBALS: Final = "global_defs {\n"
_INSTANCE: Final = "vrrp_instance "
_CLOSE: Final = "}\n"


@dataclass(frozen=True, slots=True)
class AddedLines:
    """The lines that a template adds: to ``global_defs``, and by name to instances."""

    globals: tuple[Line, ...] = ()
    instances: Mapping[str, tuple[Line, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def over(self, before: "AddedLines") -> "AddedLines":
        """These lines, and those *before* for instances that these do not know."""
        return replace(self, instances=MappingProxyType({**before.instances, **self.instances}))


NO_LINES: Final = AddedLines()


@dataclass(frozen=True)
class RenderRequest:
    """
    A *template*, its *context*, which is JSON, and kavip's *own* text.

    *interfaces*: those that each instance tracks anyway. *allowed*: the group's ``allowVerbatim``.
    """

    template: str
    context: bytes
    own: str
    interfaces: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()

    @cached_property
    def digest(self) -> str:
        """Identifies everything that the outcome depends on."""
        found = hashlib.sha256()
        names = (",".join(sorted(each)).encode() for each in (self.interfaces, self.allowed))
        for part in (self.template.encode(errors="surrogatepass"), self.context, self.own.encode(), *names):
            found.update(len(part).to_bytes(8, "big") + part)
        return found.hexdigest()


@dataclass(frozen=True, slots=True)
class TemplateFault:
    """
    What is wrong with a template, at *line* and *column* of it, counted from 1; 0 if the place is unknown.

    *is_temporary*: the same template may work later.
    """

    message: str
    line: int = 0
    column: int = 0
    is_temporary: bool = False

    def __str__(self) -> str:
        """One line, as conditions show it."""
        place = f"line {self.line}, column {self.column}: " if self.line else ""
        return f"{place}{one_line(self.message)[:_LONGEST].removesuffix('.')}"


def context_of(group: KeepalivedGroup, model: Model, text: str) -> bytes:
    """The context of a template for *group*, whose finished *text* is that of *model*, as JSON."""
    head, *blocks = text.split(f"\n{_INSTANCE}")
    header, _, rest = f"{head}\n".partition(_GLOBALS)
    global_defs, _, track_files = rest.partition(_CLOSE)
    metadata = group.metadata
    context = {
        "group": {"name": metadata.name, "namespace": metadata.namespace, "labels": metadata.labels or {}},
        "header": header.rstrip("\n"),
        "global_defs": global_defs.rstrip("\n"),
        "track_files": track_files.rstrip("\n"),
        "instances": [_instance(each, block) for each, block in zip(model.instances, blocks, strict=True)],
    }
    return msgspec.json.encode(context, order="sorted")


def _instance(instance: Instance, rest: str) -> Mapping[str, Any]:
    """What a template learns of *instance*; *rest* is its text behind the first keyword."""
    block = f"{_INSTANCE}{rest}".rstrip("\n")
    return {
        "name": instance.name,
        "family": instance.family,
        "interface": instance.interface,
        "router_id": instance.router_id,
        "services": sorted(instance.services),
        "virtual_ips": [str(each.address) for each in instance.virtual_ips],
        "lines": block.partition("\n")[2].rpartition("\n")[0],
        "text": block,
    }


def request_of(group: KeepalivedGroup, template: str, model: Model, text: str) -> RenderRequest:
    """The request to render *template* for *group*, whose finished *text* is that of *model*."""
    allowed = frozenset(group.spec.allow_verbatim or ())
    return RenderRequest(template, context_of(group, model, text), text, tracked_anyway(group.spec), allowed)


def with_lines(group: KeepalivedGroup, model: Model, added: AddedLines) -> Model:
    """The *model* of *group* with the lines that *added* has for it, except those that do not fit beside its own."""
    allowed, anyway = group.spec.allow_verbatim or (), tracked_anyway(group.spec)

    def templated(each: Instance) -> Instance:
        lines = [line for line in added.instances.get(each.name, ()) if may_add(line.keyword, allowed)]
        return replace(each, added=_fitting(lines, each.lines, each.interfaces | anyway | {each.interface}))

    instances = tuple(map(templated, model.instances))
    return replace(model, instances=instances, added=_fitting(added.globals, model.globals, frozenset()))


def _fitting(added: Collection[Line], own: Collection[Line], interfaces: frozenset[str]) -> tuple[Line, ...]:
    """A template may be older than the *own* lines, and other programs may have edited a published text."""
    there, found = {line.keyword for line in own}, list[Line]()
    for line in added:
        if not conflict(line, there, interfaces):
            found.append(line)
            there.add(line.keyword)
    return tuple(found)


def may_add(keyword: str, allowed: Collection[str]) -> bool:
    """Whether a template may add *keyword* to an instance: what any Service may, and what the group *allowed*."""
    return keyword in allowed or not (keyword in keywords.ALLOWABLE or keyword in NAMES_INTERFACES)


def conflict(line: Line, others: Collection[str], interfaces: Collection[str]) -> str:
    """
    Why *line* cannot stand in a block with the keywords *others*; "" if it can.

    *interfaces*: those of the instance.
    """
    if line.keyword in others:
        return "is set already; remove this line"
    if line.keyword == "track_interface" and line.block[0] in interfaces:
        return "keepalived tracks this interface anyway; remove the line"
    excluded = {each for pair in keywords.EXCLUSIVE if line.keyword in pair for each in pair} - {line.keyword}
    clash = sorted(excluded.intersection(others))
    return f"{clash[0]} is set, and both exclude each other; remove one" if clash else ""
