"""The picture of ``kavip ui``: what is wrong first, who holds what, and no text that is not printable."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from kavip import names
from kavip.api.agent import AgentState, InstanceReport, KeepalivedReport
from kavip.cli.views.doctor.inspection import agent_answer
from kavip.cli.views.listing import Listing
from kavip.cli.views.picture.picture import AgentAnswers, Picture, picture_of
from kavip.cli.views.picture.rows import LONGEST, Level
from kavip.names import Reason
from tests.support import build
from tests.support.pictureexample import DMZ, EDGE, HOSTILE, SINCE, agents, listing, objects, service, waiting

NOW = datetime(2026, 5, 1, 4, tzinfo=UTC)


def picture(moved: str = "") -> Picture:
    """The picture of the example."""
    return picture_of(listing(moved), agents(moved), now=NOW)


def test_problems_are_sorted_by_urgency() -> None:
    """Errors come before warnings; of each, Services before nodes, groups and pools."""
    found = [(each.level, each.kind, each.name, each.reason) for each in picture().problems]
    assert found == [
        (Level.ERROR, names.SERVICE, "intranet/mail", Reason.NO_MASTER),
        (Level.ERROR, names.SERVICE, "media/live", Reason.POOL_EXHAUSTED),
        (Level.ERROR, names.SERVICE, "search/lab", Reason.POOL_NOT_FOUND),
        (Level.ERROR, names.NODE, "dmz-2 (lb/dmz)", "AgentSilent"),
        (Level.ERROR, names.NODE, "node-b1", "NotReady"),
        (Level.WARNING, names.NODE, "dmz-1 (lb/dmz)", "AgentReports"),
        (Level.WARNING, names.VIP_POOL, "dmz", Reason.EXHAUSTED),
    ]


def test_a_problem_has_a_command_and_a_time() -> None:
    """The command explains the Service, and the time is that of its condition."""
    mail = picture().problems[0]
    assert (mail.command, mail.since, mail.service) == (
        "kubectl kavip explain -n intranet mail",
        SINCE,
        "intranet/mail",
    )


def test_the_picture_does_not_depend_on_the_order_of_the_objects() -> None:
    """Shuffled objects give the same bytes."""
    backwards = Listing(tuple(reversed(objects())), notes=listing().notes)
    assert msgspec.json.encode(picture_of(backwards, agents(), now=NOW)) == msgspec.json.encode(picture())


def test_each_section_is_sorted_by_unique_ids() -> None:
    """The page sorts by id, and finds rows by it."""
    found = picture()
    for section in Picture.__struct_fields__:
        ids = [row.id for row in getattr(found, section)]
        assert ids == sorted(set(ids)), section


def test_hostile_texts_are_printable_and_short() -> None:
    """Markup stays as it is, for the page makes text of it; control characters are escaped, long texts are cut."""
    (lab,) = [each for each in picture().problems if each.name == "search/lab"]
    assert "<script>alert(2)</script>" in lab.message and lab.message.isprintable()
    long = picture_of(Listing((waiting("a/b", Reason.NO_POOL, "x" * 10_000),)), now=NOW)
    assert len(long.problems[0].message) == LONGEST


def test_names_that_mean_something_to_a_shell_are_in_no_command() -> None:
    """Files can hold any name: a command that is copied must be what it seems."""
    found = picture_of(
        Listing((waiting("a/b;reboot", Reason.NO_POOL, ""), waiting("a/$(x)", Reason.NO_POOL, ""))), now=NOW
    )
    assert [(each.name, each.command) for each in found.problems] == [("a/$(x)", ""), ("a/b;reboot", "")]


def test_a_vip_has_its_node_its_time_and_its_successor() -> None:
    """The time and the successor are those that agents report; without answers they are unknown."""
    first = next(each for each in picture().vips if each.address == "192.0.2.130")
    assert (first.node, first.since, first.successor) == ("node-a1", SINCE, "node-a2")
    without = next(each for each in picture_of(listing(), now=NOW).vips if each.address == "192.0.2.130")
    assert (without.node, without.since, without.successor) == ("node-a1", "", "")


def test_members_say_which_nodes_are_drained_silent_or_not_ready() -> None:
    """Each node of each group has one row."""
    found = {each.id: (each.level, each.ready, each.drained, each.agent) for each in picture().members}
    assert found == {
        f"{DMZ} dmz-1": (Level.WARNING, True, False, "Answers"),
        f"{DMZ} dmz-2": (Level.ERROR, True, False, "Silent"),
        f"{EDGE} node-a1": (Level.OK, True, False, "Answers"),
        f"{EDGE} node-a2": (Level.OK, True, True, "Answers"),
        f"{EDGE} node-b1": (Level.ERROR, False, False, "Silent"),
    }


def test_without_the_right_to_ask_agents_no_agent_is_silent() -> None:
    """The picture says why nothing is known of them."""
    found = picture_of(listing(), AgentAnswers(note="you may not list pods: agents are not asked"), now=NOW)
    assert {each.agent for each in found.members} == {"Unknown"}
    assert "you may not list pods: agents are not asked" in [each.text for each in found.notes]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({"keepalived": KeepalivedReport(running=False)}, "keepalived does not run"),
        ({"refused": HOSTILE, "keepalived": KeepalivedReport(running=True)}, "its configuration is refused: <img"),
    ],
)
def test_an_agent_that_fails_is_an_error(more: dict[str, object], problem: str) -> None:
    """What it says is text of the row."""
    state = AgentState(group=EDGE, node="node-a1", **more)  # type: ignore[arg-type]  # values of different fields
    answers = AgentAnswers((agent_answer(state, group=EDGE, node="node-a1"),))
    member = next(each for each in picture_of(listing(), answers, now=NOW).members if each.node == "node-a1")
    assert member.level == Level.ERROR and member.problems[0].startswith(problem) and member.problems[0].isprintable()


def test_a_node_that_lies_about_instances_hides_nothing_of_others() -> None:
    """It reports that each VIP is in an instance that no other node has."""
    heard = agents()
    vips = tuple(each.address for each in picture().vips if each.address)
    state = AgentState(group=EDGE, instances=(InstanceReport(name="x", router_id=1, state="FAULT", virtual_ips=vips),))
    liar = agent_answer(state, group=EDGE, node="node-b1")
    found = picture_of(listing(), replace(heard, answers=(*heard.answers, liar)), now=NOW)
    assert any(each.since and each.successor for each in found.vips)
    assert found.vips == picture().vips


def test_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note says how many VIPs are left out."""
    monkeypatch.setattr("kavip.cli.views.picture.picture.MOST_ROWS", 3)
    many = [service(f"shop/s{number}", f"192.0.2.{number}") for number in range(5)]
    found = picture_of(Listing((build.group(EDGE), *many)), now=NOW)
    assert [each.address for each in found.vips] == ["192.0.2.0", "192.0.2.1", "192.0.2.2"]
    assert "2 VIPs are not shown" in [each.text for each in found.notes]


def test_addresses_are_in_numeric_order() -> None:
    """IPv4 comes before IPv6, and Services without an address are last."""
    some = [service("a/a", "192.0.2.10"), service("a/b", "192.0.2.9"), service("a/c", "2001:db8::1")]
    found = picture_of(Listing((*some, waiting("a/d", Reason.NO_POOL, ""))), now=NOW).vips
    assert [each.address for each in found] == ["192.0.2.9", "192.0.2.10", "2001:db8::1", ""]


def test_every_prefix_of_the_objects_has_a_picture() -> None:
    """Kinds that may not be read leave a picture, not an error."""
    kinds = sorted({type(each) for each in objects()}, key=lambda kind: kind.__name__)
    for some in itertools.chain.from_iterable(itertools.combinations(kinds, size) for size in range(len(kinds))):
        picture_of(Listing(tuple(each for each in objects() if isinstance(each, some))), agents(), now=NOW)
