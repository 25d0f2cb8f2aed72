"""Bytes to values, one object at a time."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kavip import errors
from kavip.kube import codec
from kavip.kube.codec import Bookmark, Deleted, Malformed, Seen
from kavip.kube.depth import LEVELS, MARK, flattened
from kavip.kube.resources import CONFIGMAPS, SERVICES

GOOD = {"metadata": {"namespace": "a", "name": "b", "resourceVersion": "7"}, "data": {"k": "v"}}


@pytest.mark.parametrize(
    ("raw", "key", "why"),
    [
        (b'{"metadata":{"namespace":"a","name":"b","labels":{"l":1}}}', "a/b", "Expected `str`, got `int`"),
        (b'{"metadata":{"namespace":"a","name":"b"},"data":"s3cret"}', "a/b", "Expected `object | null`, got `str`"),
        (b'{"metadata":{"name":"\xff\xfe"}}', "", "can't decode"),
        (b'{"metadata":', "", "truncated"),
        (b"null", "", "Expected `object`, got `null`"),
        (b'{"x":' + b"[" * 200_000, "", "recursion"),
    ],
)
def test_what_is_wrong_is_told_without_the_value(raw: bytes, key: str, why: str) -> None:
    """The key as far as it is known, and type and path; contents stay where they are."""
    found = codec.read(CONFIGMAPS, raw)
    assert isinstance(found, Malformed)
    assert found.key == key
    assert why in found.why
    assert "s3cret" not in found.why


def test_a_page_keeps_what_can_be_read() -> None:
    """One malformed item costs nothing but itself."""
    items = [GOOD, GOOD | {"data": 5}, GOOD]
    page = codec.read_page(CONFIGMAPS, json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode())
    assert [item.metadata.key for item in page.items] == ["a/b", "a/b"]
    assert [each.key for each in page.malformed] == ["a/b"]
    assert (page.version, page.rest) == ("9", "")


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("ADDED", Seen), ("MODIFIED", Seen), ("DELETED", Deleted), ("BOOKMARK", Bookmark)],
)
def test_events_carry_their_version(kind: str, wanted: type) -> None:
    """Each event moves the version; a deletion needs no more than a name."""
    obj = GOOD | {"data": {"k": "v"} if wanted is Seen else 5}
    event = codec.read_event(CONFIGMAPS, json.dumps({"type": kind, "object": obj}).encode())
    assert isinstance(event, wanted)
    match event:
        case Seen(found):
            assert found.metadata.resource_version == "7"
        case Deleted(key, version):
            assert (key, version) == ("a/b", "7")
        case _:
            assert event.version == "7"


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", errors.Refused),
        (401, "Unauthorized", errors.Forbidden),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (408, "Timeout", errors.Unavailable),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Refused),
        (429, "TooManyRequests", errors.Throttled),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
        (302, "Found", errors.Unavailable),
    ],
)
def test_each_status_is_one_error(code: int, reason: str, error: type[errors.ApiError]) -> None:
    """As the answer's own status, or as the code of an ERROR event."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": "one\nline " + "x" * 9999}
    found = codec.error_of(code, json.dumps(body).encode())
    assert type(found) is error
    assert (found.status, found.reason) == (code, reason)
    assert len(found.message) == 500
    assert "\n" not in found.message
    with pytest.raises(error):
        codec.read_event(SERVICES, json.dumps({"type": "ERROR", "object": body}).encode())


def test_retry_after_is_taken_from_the_header_or_the_status() -> None:
    """The header counts more; a date, which the API server never sends, counts as none."""
    body = json.dumps({"details": {"retryAfterSeconds": 3}}).encode()
    assert codec.error_of(429, body).retry_after == 3
    assert codec.error_of(429, body, retry_after="7").retry_after == 7
    assert codec.error_of(429, b"", retry_after="Wed, 21 Oct 2026 07:28:00 GMT").retry_after is None


def test_a_body_that_is_no_status_is_not_quoted() -> None:
    """A proxy's page says nothing that belongs into a log."""
    found = codec.error_of(502, b"<html>s3cret</html>", phrase="Bad Gateway")
    assert str(found) == "502 Bad Gateway: Bad Gateway"


def test_a_mark_in_somebodys_text_changes_nothing() -> None:
    """The words for too deep are judged only where something was too deep."""
    found = codec.read(CONFIGMAPS, json.dumps(GOOD | {"data": {"k": "nested too deeply"}}).encode())
    assert not isinstance(found, Malformed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=50, deadline=None)
@given(json_values, st.integers(0, 2 * LEVELS))
def test_flattening_keeps_json_and_what_is_not_too_deep(value: Any, levels: int) -> None:
    """Strings with brackets, quotes and backslashes in them do not confuse it."""
    nested: Any = 1
    for _ in range(levels):
        nested = {"a": nested}
    raw = json.dumps({"deep": nested, "value": value}).encode()
    flat = flattened(raw)
    assert json.loads(flat)["value"] == value
    assert (flat == raw) == (levels + 1 <= LEVELS)
    assert (MARK in flat) == (levels + 1 > LEVELS)
