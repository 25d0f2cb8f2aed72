"""
The documents of a YAML or JSON text, each with the lines on which its parts stand.

Nothing in a text may harm the reader: YAML is measured before it is built, and a key that stands twice is refused, not
settled by order. What cannot be read is a :class:`BadFile` that names document and line.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kavip.cli.sources.yamlsize import DEEPEST, Measure
from kavip.errors import BadFile

_BLANKS: Final = " \t\r\n"
_TEMPLATE: Final = re.compile(r"(?:^\s*|[:-] +)\{\{", re.MULTILINE)  # where YAML would begin a map whose key is a map


@dataclass(frozen=True, slots=True)
class Document:
    """The *number*-th document of a text, which begins on line *first*; *node* tells of YAML where its parts stand."""

    number: int
    content: Any
    first: int
    node: yaml.Node | None = None

    def line(self, path: str) -> int:
        """The line of a path such as ``$.spec.ports[0]``, or of the nearest part above it that can be told."""
        return _line(self.node, path) if self.node else self.first


class _Loader(yaml.CSafeLoader):
    """YAML as Kubernetes reads it: what looks like a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def read(where: str, text: str) -> Iterator[Document]:
    """The documents of *text*, which stands in the file or stream *where*; those that hold nothing are left out."""
    found = _json(where, text) if text.lstrip(_BLANKS).startswith("{") else None
    return iter(found) if found is not None else _yaml(where, text)


def _json(where: str, text: str) -> list[Document] | None:
    """The JSON documents of *text*, one after the other; None where it is YAML that merely begins like JSON."""
    decoder = json.JSONDecoder(object_pairs_hook=_once)
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
        except RecursionError:
            raise BadFile(where, f"nested more than {DEEPEST} levels deep", document=number, line=line) from None
        except KeyError as error:
            problem = f'the key "{error.args[0]}" stands twice in one object'
            raise BadFile(where, problem, document=number, line=line) from None
        documents.append(Document(number, content, line))
        line += text.count("\n", begin, at)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise KeyError(next(key for key in keys if keys.count(key) > 1))
    return found


def _yaml(where: str, text: str) -> Iterator[Document]:
    measure, number = Measure(where), 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            measure.add(event)
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
        told = " ".join(str(error.problem or error.context).split())
        line = min(mark.line, text.rstrip().count("\n")) + 1 if mark else 0
        raise BadFile(where, f"not YAML: {told}", document=number or measure.document, line=line) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise BadFile(where, f"not YAML: {error.reason}", line=line) from None
    except ValueError as error:  # a number of more digits than Python reads
        raise BadFile(where, f"not YAML: {error}", document=number) from None


def _line(node: yaml.Node, path: str) -> int:
    for word in path.removeprefix("$").replace("[", ".[").split(".")[1:]:
        if isinstance(node, yaml.SequenceNode) and word[1:-1].isdigit():
            node = node.value[int(word[1:-1])]
            continue
        found = [value for key, value in node.value if key.value == word] if isinstance(node, yaml.MappingNode) else []
        if not found:
            break
        node = found[0]
    return int(node.start_mark.line) + 1
