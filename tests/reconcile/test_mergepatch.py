"""The difference between two statuses."""

from typing import Any

import pytest

from kavip.reconcile.mergepatch import merge_patch, patched


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ({}, {}, {}),
        ({"a": 1}, {"a": 1}, {}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ({"a": 1}, {}, {"a": None}),
        ({"ids": {"a/x": 1, "a/y": 2}}, {"ids": {"a/x": 1, "a/z": 3}}, {"ids": {"a/y": None, "a/z": 3}}),
        ({"list": [1, 2]}, {"list": [2]}, {"list": [2]}),
        ({"a": [1]}, {"a": {"b": 1}}, {"a": {"b": 1}}),
    ],
)
def test_only_what_changed_is_in_the_patch(old: dict[str, Any], new: dict[str, Any], patch: dict[str, Any]) -> None:
    """A patch names what is new, what is different, and null for what is gone; applied, it makes the new value."""
    assert merge_patch(old, new) == patch
    assert patched(old, patch) == new
