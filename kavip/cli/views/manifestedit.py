"""
A merge patch applied to the text of a manifest: only the lines of changed fields differ, comments stay.

The parser's positions tell where a field stands, and the text around it is kept byte for byte. ruamel.yaml, which keeps
comments too, writes the whole file anew: it changes indentation, document ends and blanks, and loses the comment behind
a removed list, so a review shows every line. The outcome is parsed again and compared: what cannot be edited without a
change elsewhere, such as a field that an anchor shares, is refused.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from kavip.api import yamlscalars
from kavip.reconcile.mergepatch import patched

_STEP: Final = 2  # columns of a new level
_RESERVED: Final = frozenset("[]{}#&*!|>'\"%@`")
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


@dataclass(frozen=True, slots=True)
class TextEdit:
    """The characters of a text from *start* to *end* become *text*."""

    start: int
    end: int
    text: str


def apply_edits(text: str, edits: list[TextEdit]) -> str:
    """*text* after *edits*, which do not overlap; those at one place are inserted in their order."""
    pieces, at = [], 0
    for each in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        pieces += [text[at : each.start], each.text]
        at = max(at, each.end)
    return "".join([*pieces, text[at:]])


def edits_of(text: str, node: yaml.Node, patch: Mapping[str, Any]) -> Iterator[TextEdit]:
    """The edits that apply the merge patch *patch* to the mapping *node* of *text*."""
    if not isinstance(node, yaml.MappingNode):
        return
    found = {key.value: (key, value) for key, value in node.value}
    absent = {}
    for key, value in patch.items():
        at = found.get(key)
        if at is None:
            absent.update({key: _cleaned(value)} if value is not None else {})
        elif value is None:
            yield _deletion(text, node, key)
        elif isinstance(value, Mapping) and isinstance(at[1], yaml.MappingNode):
            yield from edits_of(text, at[1], value)
        else:
            yield _replacement(text, *at, _cleaned(value), in_flow=bool(node.flow_style))
    if absent:
        yield _insertion(text, node, absent)


def _cleaned(value: Any) -> Any:
    """*value* of a patch where nothing is that it could remove."""
    return patched({}, value) if isinstance(value, Mapping) else value


def _replacement(text: str, key: yaml.Node, old: yaml.Node, value: Any, *, in_flow: bool) -> TextEdit:
    """The *value* of *key* instead of the *old* one; comments below it and before the items of a list stay."""
    begin, end = int(old.start_mark.index), _last(old)
    if begin < end and text[end - 1] == "\n":  # a literal block
        end -= 2 if text[end - 2] == "\r" else 1
    is_inline = in_flow or not isinstance(value, Mapping)
    is_block = isinstance(old, yaml.CollectionNode) and not old.flow_style
    if is_inline and (in_flow or begin < end) and not is_block:
        return TextEdit(begin, end, _scalar(value, in_flow=in_flow))
    colon = text.index(":", key.end_mark.index) + 1  # an empty value has no place of its own
    beside = text[colon:begin].rstrip() if is_block else ""
    end = max(colon, end) if begin < end else colon
    if is_inline:
        return TextEdit(colon, end, f" {_scalar(value, in_flow=False)}{beside}")
    lines = (f"{_newline(text)}{' ' * key.start_mark.column}{line}" for line in _block(value, _STEP))
    return TextEdit(colon, end, f"{beside}{''.join(lines)}")


def _insertion(text: str, node: yaml.MappingNode, fields: Mapping[str, Any]) -> TextEdit:
    """New *fields* before the first one of *node*."""
    if node.flow_style:
        inner = node.start_mark.index + 1
        found = [f"{json.dumps(key)}: {_flow(value)}" for key, value in fields.items()]
        if not node.value:
            return TextEdit(inner, inner, ", ".join(found))
        at = int(node.value[0][0].start_mark.index)
        blank = text[inner:at] if "\n" in text[inner:at] else " "
        return TextEdit(at, at, "".join(f"{each},{blank}" for each in found))
    first, newline = node.value[0][0].start_mark, _newline(text)
    line_start, margin = first.index - first.column, " " * first.column
    if text[line_start : first.index].strip():  # the first field of a list item
        return TextEdit(first.index, first.index, "".join(f"{line}{newline}{margin}" for line in _block(fields, 0)))
    return TextEdit(line_start, line_start, "".join(f"{margin}{line}{newline}" for line in _block(fields, 0)))


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _deletion(text: str, node: yaml.MappingNode, name: str) -> TextEdit:
    """The field *name* of *node* goes, with its lines; comments below it stay."""
    index = next(index for index, (key, _) in enumerate(node.value) if key.value == name)
    key, value = node.value[index]
    if node.flow_style:
        if index + 1 < len(node.value):
            return TextEdit(key.start_mark.index, node.value[index + 1][0].start_mark.index, "")
        start = node.value[index - 1][1].end_mark.index if index else key.start_mark.index
        return TextEdit(start, value.end_mark.index, "")
    start = key.start_mark.index - key.start_mark.column
    last = max(_last(value), key.end_mark.index)
    end = last if text[last - 1] == "\n" else text.find("\n", last) + 1  # the former: a literal block
    return TextEdit(start, end or len(text), "")


def _last(node: yaml.Node) -> int:
    """Where the content of *node* ends: the end of a block collection is behind the comments that follow it."""
    if not isinstance(node, yaml.CollectionNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _last(last[1] if isinstance(last, tuple) else last)


# --- values -----------------------------------------------------------------------------------------------------------
def _block(fields: Mapping[str, Any], column: int) -> Iterator[str]:
    """The lines of *fields* in block style."""
    for key, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield f"{' ' * column}{_scalar(key, in_flow=False)}:"
            yield from _block(value, column + _STEP)
        else:
            yield f"{' ' * column}{_scalar(key, in_flow=False)}: {_scalar(value, in_flow=False)}"


def _flow(value: Any) -> str:
    """*value* in flow style, which is JSON too; escaped is what YAML does not allow, or takes for the end of a line."""
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))


def _scalar(value: Any, *, in_flow: bool) -> str:
    """*value* plain where YAML reads the same text again, else quoted; lists in flow style."""
    if not isinstance(value, str) or in_flow:
        return _flow(value)
    is_plain = value.isprintable() and _RESERVED.isdisjoint(value) and ": " not in value
    return value if is_plain and _is_text(value) else _flow(value)


def _is_text(value: str) -> bool:
    """Whether YAML reads *value* as the same text, for Kubernetes and for PyYAML."""
    if yamlscalars.tag_of(value) != yamlscalars.STR:
        return False
    try:
        node = yaml.compose(value, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return False
    return isinstance(node, yaml.ScalarNode) and (node.tag, node.value) == (yamlscalars.STR, value)
