"""
The patch of the pod template of every group: the file that ``KEEPALIVEDGROUP_TEMPLATE_FILE_NAME`` names.

The chart mounts it from the ConfigMap of the value ``keepalivedTemplateFromConfigMap``, which passes no admission of
kavip. So each fault in it is a message with line and column. In keepalived-operator the file is a Go template of whole
objects. kavip makes its objects itself, so the file is YAML with the fields of ``spec.podTemplate``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from kavip.api import yamldocuments
from kavip.api.yamldocuments import Document
from kavip.errors import BadFile

MOST_BYTES: Final = 64 * 1024
ROOT: Final = "$"
"""How paths of the patch begin."""

_FIELDS: Final = ("metadata", "spec")
_GO_TEMPLATE: Final = re.compile(r"\{\{")
_WANT: Final = "want one YAML object with metadata, spec or both, as in spec.podTemplate of a group"
_WORD: Final = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_IDENTITIES: Final = ("name", "mountPath")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DefaultTemplate:
    """
    The *patch* of every group, from the file *where*; None if there is none.

    *fault*: why the file cannot be used, with line and column. *document*: the file, for the places of other faults.
    """

    where: str = ""
    patch: Json | None = field(default=None, hash=False)
    fault: str = ""
    document: Document | None = field(default=None, compare=False)

    def message(self, path: str, problem: str) -> str:
        """*problem* at *path* of the patch, as conditions show it."""
        node = self.document.node if self.document else None
        return _at(self.where, *(_place(node, path) if node else (1, 1)), problem)


NO_TEMPLATE: Final = DefaultTemplate()


def read(where: str, content: bytes) -> DefaultTemplate:
    """The template in *content* of the file *where*."""
    if len(content) > MOST_BYTES:
        return _fault(where, 1, 1, f"want at most {MOST_BYTES:,} bytes")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        return _fault(where, before.count(b"\n") + 1, error.start - before.rfind(b"\n"), "want UTF-8")
    if found := _GO_TEMPLATE.search(text):
        before_it = text[: found.start()]
        problem = f"a Go template, as for keepalived-operator; kavip makes the objects itself: {_WANT}"
        return _fault(where, before_it.count("\n") + 1, found.start() - before_it.rfind("\n"), problem)
    try:
        documents = list(yamldocuments.read_yaml(where, text))
    except BadFile as error:
        return _fault(where, error.line or 1, error.column or 1, error.problem)
    if not documents:
        return DefaultTemplate(where)
    for document in documents[1:]:
        return _fault(where, document.first, 1, f"a second document; {_WANT}")
    return _template(where, documents[0])


def unreadable(where: str, error: OSError) -> DefaultTemplate:
    """The template of a file that cannot be read."""
    return DefaultTemplate(where, fault=f"{where}: cannot be read: {error.strerror or type(error).__name__}")


def _template(where: str, document: Document) -> DefaultTemplate:
    found = DefaultTemplate(where, document.content, document=document)
    for path, problem in _shape(document.content):
        return DefaultTemplate(where, fault=found.message(path, problem))
    return found


def _shape(content: Any) -> Iterator[tuple[str, str]]:
    """What the form of the file has against it."""
    if not isinstance(content, dict):
        yield ROOT, _WANT
        return
    for name, value in content.items():
        path = f"{ROOT}[{name}]"
        if name not in _FIELDS:
            yield path, f"{str(name)[:64]!r}: unknown field; {_WANT}"
        elif not isinstance(value, dict):
            yield path, f"{name}: want an object"


# --- places -----------------------------------------------------------------------------------------------------------
def _fault(where: str, line: int, column: int, problem: str) -> DefaultTemplate:
    return DefaultTemplate(where, fault=_at(where, line, column, problem))


def _at(where: str, line: int, column: int, problem: str) -> str:
    return f"{where}: line {line}, column {column}: {problem}"


def _place(node: yaml.Node, path: str) -> tuple[int, int]:
    """Line and column of *path*, or of the nearest part above it that *node* has."""
    mark = node.start_mark
    for word in _WORD.findall(path.removeprefix(ROOT)):
        name = word.strip("[]")
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if pair[0].value == name), None)
            if pair is None:
                break
            mark, node = pair[0].start_mark, pair[1]
        elif isinstance(node, yaml.SequenceNode):
            item = next((item for number, item in enumerate(node.value) if _is(item, number, name)), None)
            if item is None:
                break
            mark, node = item.start_mark, item
    return mark.line + 1, mark.column + 1


def _is(item: yaml.Node, number: int, name: str) -> bool:
    """Whether *item*, the one of this *number*, is the one that a path names by number or by identity."""
    if name == str(number):
        return True
    pairs = item.value if isinstance(item, yaml.MappingNode) else ()
    return any(key.value in _IDENTITIES and value.value == name for key, value in pairs)
