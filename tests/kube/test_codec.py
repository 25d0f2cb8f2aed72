"""The codec: JSON to values, one object at a time."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip import errors
from kavip.kube import codec
from kavip.kube.codec import CUT_MARK, MAX_DEPTH, Bookmark, Changed, Deleted, Malformed, cut_deep_parts
from kavip.kube.resources import CONFIGMAPS, SERVICES
from tests.support.examples import examples

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
def test_an_error_has_no_value(raw: bytes, key: str, why: str) -> None:
    """It has the key, if known, the type and the path."""
    found = codec.decode(CONFIGMAPS, raw)
    assert isinstance(found, Malformed)
    assert found.key == key
    assert why in found.error
    assert "s3cret" not in found.error


def test_a_page_keeps_the_valid_objects() -> None:
    """A malformed item affects no other item."""
    items = [GOOD, GOOD | {"data": 5}, GOOD]
    page = codec.open_page(CONFIGMAPS, json.dumps({"metadata": {"resourceVersion": "9"}, "items": items}).encode())
    found, malformed = page.decode()
    assert [item.metadata.key for item in found] == ["a/b", "a/b"]
    assert [each.key for each in malformed] == ["a/b"]
    assert (page.version, page.next_page) == ("9", "")


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("ADDED", Changed), ("MODIFIED", Changed), ("DELETED", Deleted), ("BOOKMARK", Bookmark)],
)
def test_each_event_has_its_version(kind: str, wanted: type) -> None:
    """A deletion needs only a name."""
    obj = GOOD | {"data": {"k": "v"} if wanted is Changed else 5}
    event = codec.decode_event(CONFIGMAPS, json.dumps({"type": kind, "object": obj}).encode())
    assert isinstance(event, wanted)
    match event:
        case Changed(found):
            assert found.metadata.resource_version == "7"
        case Deleted(key, version):
            assert (key, version) == ("a/b", "7")
        case _:
            assert event.version == "7"


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", errors.Rejected),
        (401, "Unauthorized", errors.Forbidden),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (408, "Timeout", errors.Unavailable),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Rejected),
        (429, "TooManyRequests", errors.Throttled),
        (500, "InternalError", errors.Unavailable),
        (503, "ServiceUnavailable", errors.Unavailable),
        (504, "Timeout", errors.Unavailable),
        (302, "Found", errors.Unavailable),
    ],
)
def test_each_status_is_one_error(code: int, reason: str, error: type[errors.ApiError]) -> None:
    """The same for the status of a response and for an ERROR event."""
    body = {"kind": "Status", "code": code, "reason": reason, "message": "one\nline " + "x" * 9999}
    found = codec.error_of(code, json.dumps(body).encode())
    assert type(found) is error
    assert (found.status, found.reason) == (code, reason)
    assert len(found.message) == 500
    assert "\n" not in found.message
    with pytest.raises(error):
        codec.decode_event(SERVICES, json.dumps({"type": "ERROR", "object": body}).encode())


def test_an_apply_of_another_type_is_no_failure_that_ends() -> None:
    """The API server answers it with 500, and a retry does not help."""
    text = (
        "failed to create typed patch object (lb/edge; apps/v1, Kind=DaemonSet): .spec.x: field not declared in schema"
    )
    body = {"kind": "Status", "code": 500, "reason": "InternalError", "message": text}
    assert type(codec.error_of(500, json.dumps(body).encode())) is errors.Rejected


def test_retry_after_is_taken_from_the_header_or_the_status() -> None:
    """The header has priority; a date is ignored, because API servers do not send one."""
    body = json.dumps({"details": {"retryAfterSeconds": 3}}).encode()
    assert codec.error_of(429, body).retry_after == 3
    assert codec.error_of(429, body, retry_after="7").retry_after == 7
    assert codec.error_of(429, b"", retry_after="Wed, 21 Oct 2026 07:28:00 GMT").retry_after is None


def test_the_message_of_a_status_is_one_printable_line() -> None:
    """It may quote what a user wrote."""
    found = codec.error_of(403, json.dumps({"message": "denied \x1b]0;P\x07\n\u202e" + "x" * 600}).encode())
    assert found.message.startswith(r"denied \x1b]0;P\x07 \u202exxx")
    assert found.message.isprintable()
    assert len(found.message) == 500


def test_a_body_that_is_no_status_is_not_quoted() -> None:
    """The error page of a proxy does not get into a log."""
    found = codec.error_of(502, b"<html>s3cret</html>", phrase="Bad Gateway")
    assert str(found) == "502 Bad Gateway: Bad Gateway"


def test_the_mark_in_a_value_is_harmless() -> None:
    """The mark is checked only in an envelope of which parts were cut out."""
    found = codec.decode(CONFIGMAPS, json.dumps(GOOD | {"data": {"k": "nested too deeply"}}).encode())
    assert not isinstance(found, Malformed)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@examples(50, deadline=None)
@given(json_values, st.integers(0, 2 * MAX_DEPTH))
def test_cutting_keeps_json_and_everything_above_the_limit(value: Any, levels: int) -> None:
    """Strings may contain brackets, quotes and backslashes."""
    nested: Any = 1
    for _ in range(levels):
        nested = {"a": nested}
    raw = json.dumps({"deep": nested, "value": value}).encode()
    flat = cut_deep_parts(raw)
    assert json.loads(flat)["value"] == value
    assert (flat == raw) == (levels + 1 <= MAX_DEPTH)
    assert (CUT_MARK in flat) == (levels + 1 > MAX_DEPTH)
