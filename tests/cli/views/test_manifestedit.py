"""A merge patch in the text of a manifest: the outcome is right, and nothing else changes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kavip.cli.views.manifestedit import apply_edits, edits_of
from kavip.reconcile.mergepatch import patched


def edited(text: str, patch: Mapping[str, Any]) -> str:
    """*text* after *patch*."""
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    assert node is not None
    return apply_edits(text, list(edits_of(text, node, patch)))


SERVICE = """\
# the shop
metadata:
    name: web   # its name
    annotations:
        # why it is here
        a/b: "1"
spec:
    type:   ClusterIP  # for now
    externalIPs:
    - 192.0.2.10   # from the network team: ü𝄞
    - "192.0.2.11"
    # the ports
    ports: [{port: 80}]
"""


def test_comments_quotes_and_indentation_stay() -> None:
    """Only the lines of the changed fields differ."""
    patch = {
        "metadata": {"annotations": {"c/d": "2", "e/f": "192.0.2.10,192.0.2.11"}},
        "spec": {"type": "LoadBalancer", "externalIPs": None, "loadBalancerClass": "x/y"},
    }
    assert (
        edited(SERVICE, patch)
        == """\
# the shop
metadata:
    name: web   # its name
    annotations:
        # why it is here
        c/d: "2"
        e/f: 192.0.2.10,192.0.2.11
        a/b: "1"
spec:
    loadBalancerClass: x/y
    type:   LoadBalancer  # for now
    # the ports
    ports: [{port: 80}]
"""
    )


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ("a: {x: 1}\n", {"a": {"y": "z"}}, 'a: {"y": "z", x: 1}\n'),
        ("a: {}\n", {"a": {"y": True}}, 'a: {"y": true}\n'),
        ("a: {x: 1, y: 2}\n", {"a": {"x": None}}, "a: {y: 2}\n"),
        ("a: {x: 1, y: 2}\n", {"a": {"y": None}}, "a: {x: 1}\n"),
        ("a:\nb: 1\n", {"a": {"k": "z"}}, "a:\n  k: z\nb: 1\n"),
        ("a: null  # none\n", {"a": {"k": "z"}}, "a:\n  k: z  # none\n"),
        ("a:\n  x: 1\n", {"a": {"x": None, "k": "z"}}, "a:\n  k: z\n"),
        ("a:\r\n  x: 1\r\n", {"a": {"k": {"z": "true"}}}, 'a:\r\n  k:\r\n    z: "true"\r\n  x: 1\r\n'),
        ("a:\n  x: 1\n", {"a": {"x": None, "y": "n"}}, 'a:\n  "y": "n"\n'),
        ("a: |\n  text\n  more\nb: 1\n", {"a": None}, "b: 1\n"),
        ("a:\n- b:\n  - 1\n\n# next\nc: 2\n", {"a": None}, "\n# next\nc: 2\n"),
        ("b: 1\na: 2", {"a": None}, "b: 1\n"),
        ('{\n  "a": 1\n}\n', {"b": "c"}, '{\n  "b": "c",\n  "a": 1\n}\n'),
        ("a: 'x'\n", {"a": "2001:10"}, 'a: "2001:10"\n'),
        ("a: 'x'\n", {"a": "2001-99-99"}, 'a: "2001-99-99"\n'),
        ("a: 'x'\n", {"a": "2001-09-09"}, 'a: "2001-09-09"\n'),
        ("a: 'x'\n", {"a": "9" * 5000}, f'a: "{"9" * 5000}"\n'),
        ("a: 'x'\n", {"a": "1e3"}, 'a: "1e3"\n'),
        ("a: 'x'\n", {"a": "08"}, 'a: "08"\n'),
        ("a: 'x'\n", {"a": "0X1F"}, 'a: "0X1F"\n'),
        ("a: 'x'\n", {"a": "1_0e3"}, 'a: "1_0e3"\n'),
        ("a: 'x'\n", {"a": "0o17"}, 'a: "0o17"\n'),
        ("a: 'x'\n", {"a": "0x1e-3"}, "a: 0x1e-3\n"),
        ("a: 'x'\n", {"a": "# no comment"}, 'a: "# no comment"\n'),
    ],
)
def test_each_style_is_edited_in_its_own_style(before: str, patch: dict[str, Any], after: str) -> None:
    """Flow and block style, empty values, JSON, and the line ends of the file."""
    assert edited(before, patch) == after


KEYS = st.sampled_from(["type", "externalIPs", "kavip.io/a", "b", "c: d", "ü"])
TEXTS = st.one_of(
    st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), max_size=8),
    st.sampled_from(["yes", "1", "0x1f", "~", "0b_", "2001-99-99", "2001:1", "a: b", "- x", "#", "'"]),
)
ODD_TEXTS = st.sampled_from(["a\x7f", "a\x85b", "\u2028", "\ufeffa"])  # YAML forbids them, or ends a line there
TREES = st.recursive(
    st.one_of(TEXTS, st.booleans(), st.integers(), st.lists(TEXTS, max_size=3)),
    lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=4),
    max_leaves=12,
)
PATCHES = st.recursive(
    st.one_of(st.none(), TEXTS, ODD_TEXTS, st.booleans()),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def has_empty(tree: object) -> bool:
    """Whether a mapping in *tree* is empty: in block style it has no text of its own."""
    return isinstance(tree, dict) and (not tree or any(map(has_empty, tree.values())))


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("a:\n- x\n# of b\nb: 1\n", "z", "a: z\n# of b\nb: 1\n"),
        ("a:\n  - x\n  # last\nb: 1\n", {"c": "z"}, "a:\n  c: z\n  # last\nb: 1\n"),
        ("a: |\n  x\nb: 1\n", "z", "a: z\nb: 1\n"),
        ("a:\r\n- x\r\nb: 1\r\n", "z", "a: z\r\nb: 1\r\n"),
        ("a:  # why\n  # first\n  - x\nb: 1\n", "z", "a: z  # why\n  # first\nb: 1\n"),
        ("a:  # why\n- x\n", {"c": "z"}, "a:  # why\n  c: z\n"),
        ("a:\nb: 1\n", "z", "a: z\nb: 1\n"),
        ("a:  # why\n", "z", "a: z  # why\n"),
        ("a: |\n  x\nb: 1\r\n", "z", "a: z\nb: 1\r\n"),
        ("a: |\r\n  x\r\nb: 1\r\n", "z", "a: z\r\nb: 1\r\n"),
    ],
)
def test_what_follows_a_replaced_block_stays(before: str, value: Any, after: str) -> None:
    """The parser's end of a block is behind its last line, and behind comments."""
    assert edited(before, {"a": value}) == after


@given(
    before=st.dictionaries(KEYS, TREES, min_size=1, max_size=4),
    patch=st.dictionaries(KEYS, PATCHES, max_size=4),
    style=st.sampled_from(["block", "flow", "json"]),
)
def test_the_text_means_the_patched_object(before: dict[str, Any], patch: dict[str, Any], style: str) -> None:
    """Whatever the style, the text after the edits is read as the object after the patch."""
    wanted = patched(before, patch)
    if style == "json":
        text = json.dumps(before, indent=2, ensure_ascii=False)
    else:
        text = yaml.safe_dump(before, default_flow_style=style == "flow", allow_unicode=True, sort_keys=False)
    if style == "block" and has_empty(wanted):
        return  # the caller compares the outcome, and refuses this
    assert yaml.load(edited(text, patch), Loader=yaml.CSafeLoader) == wanted
