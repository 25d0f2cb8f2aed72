"""The page of a Service: each step with its condition, and hostile values as text."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from kavip.cli.views.explain import explain_service
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.picture import picture_of
from kavip.cli.views.picture.servicepage import LONGEST, service_page
from kavip.errors import BadInput
from tests.support import build
from tests.support.pictureexample import HOSTILE, SINCE, agents, listing, objects

NOW = datetime(2026, 5, 1, 4, tzinfo=UTC)


def page(key: str, found: Listing | None = None) -> dict[str, Any]:
    """The page of the Service *key* of the example."""
    found = found or listing()
    return service_page(explain_service(found, key, now=NOW), picture_of(found, agents(), now=NOW))


def test_the_steps_of_a_service_that_is_served() -> None:
    """From the group to the node of its VIP."""
    steps = [(each["title"], each["reason"], each["since"]) for each in page("billing/api")["steps"]]
    assert steps == [
        ("Request", "Accepted", ""),
        ("Addresses", "Assigned", SINCE),
        ("Configuration on nodes", "Programmed", SINCE),
        ("On the wire", "Master", SINCE),
        ("192.0.2.130", "Master", SINCE),
    ]


def test_a_service_that_waits_shows_what_to_do() -> None:
    """The advice and the pools are those of ``kavip explain``."""
    found = page("media/live")
    assert [each["reason"] for each in found["steps"]][:4] == ["Accepted", "PoolExhausted", "NotWritten", "NotWritten"]
    assert any(each["isCommand"] and "kavip.io/pool=edge" in each["text"] for each in found["advice"])
    assert "dmz" in [each["name"] for each in found["pools"]]


def test_hostile_annotations_are_printable_text() -> None:
    """They are cut, too."""
    found = page("search/lab")
    assert any(each["name"] == "kavip.io/pool" and "<script>" in each["value"] for each in found["annotations"])
    text = json.dumps(found, ensure_ascii=False)
    assert "<script>" in text and "\u202e" not in text and "\x1b" not in text
    long = build.service("a/b", group="lb/edge", annotations={"kavip.io/pool": "x" * 100_000})
    values = [each["value"] for each in page("a/b", Listing((*objects(), long)))["annotations"]]
    assert max(map(len, values)) == LONGEST


def test_advice_with_a_name_that_means_something_to_a_shell_is_no_command() -> None:
    """It is shown, and has no button to copy it."""
    wild = Listing((*objects(), build.service("media/$(reboot)", group="lb/edge", pool="dmz")))
    advice = [each for each in page("media/$(reboot)", wild)["advice"] if "kubectl" in each["text"]]
    assert advice and not any(each["isCommand"] for each in advice)


def test_a_service_that_kavip_does_not_manage_says_why() -> None:
    """It has one step."""
    other = build.service("a/b", load_balancer_class="example.com/other")
    (step,) = page("a/b", Listing((*objects(), other)))["steps"]
    assert step["reason"] == "NotManaged" and "example.com/other" in step["message"]


def test_a_service_that_does_not_exist_is_bad_input() -> None:
    """The server answers with 404."""
    with pytest.raises(BadInput):
        page(f"no/{HOSTILE}")
