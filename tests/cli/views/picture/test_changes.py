"""The changes that the page receives lead from one picture to the next."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec

from kavip.cli.views.picture.changes import SECTIONS, changes
from kavip.cli.views.picture.picture import AgentAnswers, Picture, picture_of
from tests.support.pictureexample import agents, listing

NOW = datetime(2026, 5, 1, 4, tzinfo=UTC)
PICTURES = (
    Picture(),
    picture_of(listing(), agents(), now=NOW),
    picture_of(listing("node-a2"), AgentAnswers(), now=NOW),
)


def applied(known: dict[str, dict[str, Any]], body: bytes) -> dict[str, dict[str, Any]]:
    """What the page knows after *body*."""
    after = {section: dict(rows) for section, rows in known.items()}
    for section, change in json.loads(body or b"{}").items():
        for key in change["drop"]:
            del after[section][key]
        after[section] |= {row["id"]: row for row in change["set"]}
    return after


def as_known(picture: Picture) -> dict[str, dict[str, Any]]:
    """*picture* as the page knows it."""
    found = json.loads(msgspec.json.encode(picture))
    return {section: {row["id"]: row for row in found[section]} for section in SECTIONS}


def test_changes_lead_from_each_picture_to_each() -> None:
    """Also back to the empty one."""
    for before in PICTURES:
        for after in PICTURES:
            assert applied(as_known(before), changes(before, after)) == as_known(after)


def test_equal_pictures_have_no_changes() -> None:
    """The message is empty."""
    assert changes(PICTURES[1], picture_of(listing(), agents(), now=NOW)) == b""


def test_a_change_is_small() -> None:
    """One VIP that moves sends its row and those of its nodes, not all."""
    moved = picture_of(listing("node-a2"), agents(), now=NOW)
    found = json.loads(changes(PICTURES[1], moved))
    assert {section: len(each["set"]) for section, each in found.items()} == {"members": 2, "vips": 1}


def test_a_message_is_one_line() -> None:
    """A line break would end an event of the stream."""
    assert b"\n" not in changes(None, PICTURES[1]) and b"\r" not in changes(None, PICTURES[1])
