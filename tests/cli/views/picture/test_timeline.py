"""The timeline: what changed between two pictures, and the Events before."""

from datetime import UTC, datetime

import msgspec
import pytest

from kavip.api.event import Event, EventSeries, ObjectReference
from kavip.api.meta import Metadata
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture import timeline
from kavip.cli.views.picture.picture import AgentAnswers, Picture, picture_of
from kavip.cli.views.picture.rows import Level, TimelineRow
from tests.support.pictureexample import HOSTILE, agents, listing, service

NOW = datetime(2026, 5, 1, 4, tzinfo=UTC)
AT = "2026-05-01T04:00:00.000Z"
FIRST = picture_of(listing(), agents(), now=NOW)


def test_equal_pictures_have_no_changes() -> None:
    """Nothing is added."""
    assert timeline.changes_between(FIRST, FIRST, at=AT) == []


def test_a_move_names_both_nodes() -> None:
    """A fail-over is one row about the Service; the counts of VIPs are none."""
    after = picture_of(listing("node-a2"), agents("node-a2"), now=NOW)
    (row,) = timeline.changes_between(FIRST, after, at=AT)
    assert (row.kind, row.name, row.reason, row.text) == (
        "Service",
        "billing/api",
        "MasterChanged",
        "192.0.2.130: node-a1 → node-a2",
    )


def test_an_agent_that_becomes_silent_is_a_change_of_its_node() -> None:
    """So is one that answers again."""
    heard = agents()
    silent = AgentAnswers(heard.answers[1:], {**heard.silent, ("lb/edge", "node-a1"): "timeout"})
    after = picture_of(listing(), silent, now=NOW)
    texts = [each.text for each in timeline.changes_between(FIRST, after, at=AT) if each.kind == "Node"]
    assert texts == ["in group lb/edge: well → agent silent"]
    back = [each.text for each in timeline.changes_between(after, FIRST, at=AT) if each.kind == "Node"]
    assert back == ["in group lb/edge: agent silent → well"]


def test_what_becomes_known_is_no_change() -> None:
    """Until agents are asked for the first time, nothing is known of them; a drain is a change all the same."""
    unknown = picture_of(listing(), now=NOW)
    assert timeline.changes_between(unknown, FIRST, at=AT) == []
    undrained = [msgspec.structs.replace(each, drained=False, agent="Unknown", problems=()) for each in FIRST.members]
    (row,) = timeline.changes_between(msgspec.structs.replace(FIRST, members=tuple(undrained)), FIRST, at=AT)
    assert (row.name, row.text) == ("node-a2", "in group lb/edge: well → drained")


def test_what_comes_and_goes_is_listed() -> None:
    """From nothing, every VIP, node, group and pool is new; back again it is gone."""
    appeared = timeline.changes_between(Picture(), FIRST, at=AT)
    gone = timeline.changes_between(FIRST, Picture(), at=AT)
    rows = len(FIRST.vips) + len(FIRST.members) + len(FIRST.groups) + len(FIRST.pools)
    assert (len(appeared), len(gone)) == (rows, rows)


def test_what_was_left_out_has_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a row goes, another one takes its place in the picture: it was there before."""
    for module in ("picture", "timeline"):
        monkeypatch.setattr(f"kavip.cli.views.picture.{module}.MOST_ROWS", 3)
    services = [service(f"shop/s{number}", f"192.0.2.{number}") for number in range(5)]
    all_, fewer = (picture_of(Listing(tuple(each)), now=NOW) for each in (services, services[1:]))
    (row,) = timeline.changes_between(all_, fewer, at=AT)
    assert (row.name, row.text) == ("shop/s0", "192.0.2.0: is gone")
    (row,) = timeline.changes_between(fewer, all_, at=AT)
    assert (row.name, row.text.partition(":")[0]) == ("shop/s0", "192.0.2.0")


def test_the_timeline_is_bounded_and_its_ids_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest rows are dropped; the page orders by id."""
    monkeypatch.setattr(timeline, "MOST", 3)
    first = timeline.continued(Picture(), FIRST, at=AT)
    second = timeline.continued(msgspec.structs.replace(FIRST, timeline=first), Picture(), at=AT)
    ids = [each.id for each in (*first, *second)]
    assert len(first) == len(second) == 3 and ids == sorted(set(ids))


def event(note: str, *, reporter: str = "kavip.io/controller", kind: str = "Warning", at: str = AT) -> Event:
    """An Event about a Service."""
    return Event(
        metadata=Metadata(name="e", namespace="shop"),
        event_time=at,
        series=EventSeries(count=3, last_observed_time=at) if kind == "Normal" else None,
        reporting_controller=reporter,
        reason="PoolExhausted",
        regarding=ObjectReference(kind="Service", namespace="shop", name="web"),
        note=note,
        type=kind,
    )


def test_events_of_kavip_begin_the_timeline() -> None:
    """They are sorted by time; those of others are left out, and what they say is printable."""
    later = event(HOSTILE, kind="Normal", at="2026-05-01T05:00:00Z")
    found = timeline.from_events([later, event("full"), event("x", reporter="kubelet")])
    assert [(each.at, each.level, each.name) for each in found] == [
        (AT, Level.WARNING, "shop/web"),
        ("2026-05-01T05:00:00Z", Level.OK, "shop/web"),
    ]
    assert found[1].text.isprintable() and found[1].text.endswith("(3 times)")
    assert all(isinstance(each, TimelineRow) for each in found)
