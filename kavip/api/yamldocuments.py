"""
The documents of a YAML or JSON text, with the line of each of their parts.

The text is not trusted: the size of YAML is measured before anything is built. A key that occurs twice in an object and
a tag of a type that JSON does not have are refused. :class:`BadFile` names the document and the line that cannot be
read.
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import yaml

from kavip.api import yamlscalars
from kavip.api.text import one_line
from kavip.errors import BadFile

_DEEPEST: Final = 200  # levels; Kubernetes' own objects have less than 30
_MOST_NODES: Final = 4_000_000  # of one text; a List of 20,000 Services with managedFields has 3.7 million
_MOST_ALIASED: Final = 100_000  # nodes that the aliases of one document may repeat
_MOST_DIGITS: Final = 1000  # of a number in any base; Python cannot write one of more than 4,300 decimal digits
_BLANKS: Final = " \t\r\n"
_STEP: Final = re.compile(r"\.([^.\[]+)|\[([^\]]*)\]")
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_ESCAPE: Final = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|u([dD][89a-fA-F]..)|.)", re.DOTALL)
_TEMPLATE: Final = re.compile(r"(?:^\s*|[:-] +)\{\{", re.MULTILINE)  # YAML would read {{ here as a map that is a key


@dataclass(frozen=True, slots=True)
class Document:
    """The *number*-th document of a text, from line *first*; *node*: its parts with their lines, None for JSON."""

    number: int
    content: Any
    first: int
    node: yaml.Node | None = None

    def line(self, path: str, keys: Iterable[str | int] = ()) -> int:
        """The line of *keys* below *path*, or of the nearest part above it with a known line."""
        if self.node is None:
            return self.first
        return int(_nearest(self.node, (*keys_of(path), *keys))[0].start_mark.line) + 1

    def scalar(self, path: str, keys: Iterable[str | int]) -> str:
        """The scalar at *keys* below *path* as it is written, without quotes; "" if it is not known."""
        found, is_whole = _nearest(self.node, (*keys_of(path), *keys)) if self.node else (None, False)
        return str(found.value) if is_whole and isinstance(found, yaml.ScalarNode) else ""


_NUMBERS: Final = frozenset((yamlscalars.BOOL, yamlscalars.INT, yamlscalars.FLOAT))
_COLLECTIONS: Final = {
    yaml.SequenceStartEvent: f"{yamlscalars.PREFIX}seq",
    yaml.MappingStartEvent: f"{yamlscalars.PREFIX}map",
}
_MERGE: Final = f"{yamlscalars.PREFIX}merge"
_TAGS: Final = frozenset((yamlscalars.STR, yamlscalars.NULL, _MERGE, *_NUMBERS, *_COLLECTIONS.values()))
_LONGEST_TAG: Final = 100  # characters of one that is shown


class _Loader(yamlscalars.Resolver, yaml.CSafeLoader):
    """YAML as Kubernetes reads it (:mod:`.yamlscalars`); keys that look like numbers or booleans are text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        node.value = [(self._as_text(key), value) for key, value in node.value]
        texts = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        found = super().construct_mapping(node, deep)
        if len(set(texts)) < len(texts) or not all(isinstance(key, str) for key in found):
            problem = "a key is no text, number or boolean, or occurs twice in one object"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return found

    def _as_text(self, key: yaml.Node) -> yaml.Node:
        """*key*, as text if it is a number or a boolean: as in JSON."""
        if key.tag not in _NUMBERS or not isinstance(key, yaml.ScalarNode):
            return key
        text = str(key.value)
        text = str(yamlscalars.bool_of(text)).lower() if key.tag == yamlscalars.BOOL else yamlscalars.key_of(text)
        return yaml.ScalarNode(yamlscalars.STR, text, key.start_mark, key.end_mark)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        """The number *node*, if JSON has it."""
        value = yamlscalars.number_of(str(self.construct_scalar(node)))
        if value is None:
            raise yaml.constructor.ConstructorError(None, None, "JSON has no such number", node.start_mark)
        return value

    def construct_text(self, node: yaml.ScalarNode) -> str:
        """The text *node*."""
        return str(self.construct_scalar(node))

    def construct_any_bool(self, node: yaml.ScalarNode) -> bool:
        """The boolean *node*."""
        return yamlscalars.bool_of(str(self.construct_scalar(node)))


_Loader.add_constructor(yamlscalars.INT, _Loader.construct_number)
_Loader.add_constructor(yamlscalars.FLOAT, _Loader.construct_number)
_Loader.add_constructor(yamlscalars.BOOL, _Loader.construct_any_bool)
for _tag in (_MERGE, f"{yamlscalars.PREFIX}value"):  # of << and =, which mean something as keys only
    _Loader.add_constructor(_tag, _Loader.construct_text)


def _fitting_tags(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> tuple[str, ...]:
    """The tags that *event* may have: those of its collection, or of its text as it is read without a tag."""
    if not isinstance(event, yaml.ScalarEvent):
        return (_COLLECTIONS[type(event)],)
    implied = yamlscalars.tag_of(event.value)
    others = {yamlscalars.INT: (yamlscalars.FLOAT,), yamlscalars.STR: (_MERGE,) if event.value == "<<" else ()}
    return (yamlscalars.STR, implied, *others.get(implied, ()))


def read(where: str, text: str) -> Iterator[Document]:
    """The documents of *text* from the file or stream *where*, without empty ones."""
    found = _json(where, text) if text.lstrip(_BLANKS).startswith("{") else None
    return iter(found) if found is not None else read_yaml(where, text)


def _json(where: str, text: str) -> list[Document] | None:
    """The JSON documents of *text*, in sequence; None if it is YAML that begins like JSON."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_duplicate_keys)
    documents: list[Document] = []
    at, line = 0, 1
    while True:
        begin = at
        while text[begin : begin + 1] and text[begin] in _BLANKS:
            begin += 1
        line += text.count("\n", at, begin)
        if begin == len(text):
            return documents
        number = len(documents) + 1
        try:
            content, at = decoder.raw_decode(text, begin)
        except json.JSONDecodeError:
            return None
        except ValueError:  # a number with more digits than Python reads
            raise BadFile(where, "a number has too many digits", document=number, line=line) from None
        except RecursionError:
            raise BadFile(where, f"nested more than {_DEEPEST} levels deep", document=number, line=line) from None
        except KeyError as error:
            problem = f'the key "{one_line(error.args[0])}" occurs twice in one object'
            raise BadFile(where, problem, document=number, line=line) from None
        if (half := _lone_surrogate(text, begin, at)) is not None:
            line += text.count("\n", begin, half)
            raise BadFile(where, "a text holds half of a character (a lone surrogate)", document=number, line=line)
        documents.append(Document(number, content, line))
        line += text.count("\n", begin, at)


def _lone_surrogate(text: str, begin: int, end: int) -> int | None:
    """Where the JSON in *text* has an escape of one half of a character; Python reads it, but cannot write it."""
    if _SURROGATE.search(text, begin, end) is None:
        return None
    return next((each.start() for each in _ESCAPE.finditer(text, begin, end) if each[1]), None)


def _without_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise KeyError(next(key for key, count in counts.items() if count > 1))
    return found


def read_yaml(where: str, text: str) -> Iterator[Document]:
    """The documents of *text* with their nodes, also where it is JSON, which YAML contains."""
    size, number = _Size(where), 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            size.add(event)
        loader, number = _Loader(text), 1
        while loader.check_node() and (node := loader.get_node()) is not None:
            if (content := loader.construct_document(node)) is not None:
                yield Document(number, content, node.start_mark.line + 1, node)
            number += 1
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        if template := _TEMPLATE.search(text):
            problem = "a template of Helm; render it first: helm template ... | kavip check -f -"
            raise BadFile(where, problem, line=text.count("\n", 0, template.end()) + 1) from None
        problem = " ".join(str(error.problem or error.context).split())
        line = min(mark.line, text.rstrip().count("\n")) + 1 if mark else 0
        column = mark.column + 1 if mark else 0
        raise BadFile(
            where, f"not YAML: {problem}", document=number or size.document, line=line, column=column
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise BadFile(where, f"not YAML: {error.reason}", line=line) from None
    except ValueError as error:  # such as 0x_, which is a number by its form
        raise BadFile(where, f"not YAML: {error}", document=number) from None


def keys_of(path: str) -> list[str]:
    """The names and indexes in *path*, such as ``$.spec.ports[0]``."""
    return [name or key for name, key in _STEP.findall(path)]


def node_at(node: yaml.Node, path: str) -> yaml.Node | None:
    """The part of *node* at *path*, such as ``$.items[0]``; None if there is none."""
    found, is_whole = _nearest(node, keys_of(path))
    return found if is_whole else None


def _nearest(node: yaml.Node, keys: Iterable[str | int]) -> tuple[yaml.Node, bool]:
    """The part of *node* at *keys*, or the nearest part above it; and whether it is the former."""
    for each in map(str, keys):
        is_index = isinstance(node, yaml.SequenceNode) and each.isdecimal() and len(each) <= _MOST_DIGITS
        if is_index and int(each) < len(node.value):
            node = node.value[int(each)]
            continue
        found = [value for key, value in node.value if key.value == each] if isinstance(node, yaml.MappingNode) else []
        if not found:
            return node, False
        node = found[0]
    return node, True


# --- limits -----------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Open:
    """An open collection: its nodes so far, and its keys if it is a mapping."""

    anchor: str
    keys: set[str] | None
    nodes: int = 1
    awaits_key: bool = True


@dataclass(slots=True)
class _Size:
    """
    The size of the documents in the stream *where*, counted from the events of the parser.

    The loader recurses in C, so deep nesting would end the process. The size of an alias shows only when its content is
    read. If a key occurs twice, the loader takes the last value without an error. :meth:`add` raises :class:`BadFile`
    at the first event that exceeds a limit.
    """

    where: str
    document: int = 0
    nodes: int = 0
    aliased: int = 0
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, int] = field(default_factory=dict)

    def add(self, event: Any) -> None:
        """Count one *event* of the parser."""
        if isinstance(event, yaml.NodeEvent):
            self.nodes += 1
            if self.nodes > _MOST_NODES:
                self._refuse(event, f"more than {_MOST_NODES} nodes in one file; split it")
        match event:
            case yaml.DocumentStartEvent():
                self.document, self.aliased, self.anchors = self.document + 1, 0, {}
            case yaml.CollectionStartEvent():
                self._check_tag(event)
                keys: set[str] | None = set() if isinstance(event, yaml.MappingStartEvent) else None
                self.stack.append(_Open(event.anchor or "", keys))
                if len(self.stack) > _DEEPEST:
                    self._refuse(event, f"nested more than {_DEEPEST} levels deep")
            case yaml.CollectionEndEvent():
                done = self.stack.pop()
                self._count(done.nodes, anchor=done.anchor)
            case yaml.ScalarEvent():
                self._check_tag(event)
                self._add_key(event)
                self._count(1, anchor=event.anchor or "")
            case yaml.AliasEvent():
                self._count(self._repeated(event))

    def _repeated(self, event: yaml.AliasEvent) -> int:
        """The nodes to which an alias refers."""
        if any(each.anchor == event.anchor for each in self.stack):
            self._refuse(event, f"the alias *{event.anchor} is in the collection to which it refers")
        nodes = self.anchors.get(event.anchor or "", 1)  # the loader reports an unknown alias
        self.aliased += nodes
        if self.aliased > _MOST_ALIASED:
            self._refuse(event, f"aliases repeat more than {_MOST_ALIASED} nodes")
        return nodes

    def _check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        """Refuse the tag of a type that JSON does not have, or that does not fit what is written."""
        if event.tag in (None, "!"):
            return
        shown = one_line(event.tag.replace(yamlscalars.PREFIX, "!!", 1))[:_LONGEST_TAG]
        if event.tag not in _TAGS:
            self._refuse(event, f"the tag {shown} is of no type of JSON; remove it")
        if event.tag not in _fitting_tags(event):
            self._refuse(event, f"the tag {shown} does not fit its value")

    def _add_key(self, event: yaml.ScalarEvent) -> None:
        """Note the key of a mapping, or refuse its second occurrence."""
        keys = self.stack[-1].keys if self.stack and self.stack[-1].awaits_key else None
        if keys is None:
            return
        if event.value in keys:
            self._refuse(event, f'the key "{one_line(event.value)}" occurs twice in one object')
        keys.add(event.value)

    def _count(self, nodes: int, *, anchor: str = "") -> None:
        """Add *nodes* to the open collection, and note them for *anchor*."""
        if anchor:
            self.anchors[anchor] = nodes
        if self.stack:
            self.stack[-1].nodes += nodes
            self.stack[-1].awaits_key = not self.stack[-1].awaits_key

    def _refuse(self, event: Any, problem: str) -> NoReturn:
        mark = event.start_mark
        raise BadFile(self.where, problem, document=self.document, line=mark.line + 1, column=mark.column + 1)
