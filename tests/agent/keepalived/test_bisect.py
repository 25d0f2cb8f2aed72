"""Which instances are left out: found by what keepalived says or by halving, within bounds, and remembered."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kavip.agent.config import validate
from kavip.agent.config.blocks import joined, split
from kavip.agent.config.exclude import Spares, spares_of
from kavip.agent.config.facts import Facts
from kavip.agent.config.model import Configuration, Fault, Judge, Localized, Refused
from kavip.agent.keepalived.bisect import AGAIN, MOST_RUNS, SECONDS, Sieve
from kavip.agent.keepalived.configtest import Finding

HOW = "keepalived --config-test: exit status 5"
TELLS = ("line", "name", "nothing", "first line")


def text_of(names: list[str], **marks: str) -> str:
    """A configuration with these instances; *marks* are words in some of them."""
    blocks = ["# kavip: localised for n1; configuration abc\nglobal_defs {\n    router_id edge\n}"]
    for number, name in enumerate(names):
        blocks.append(
            f"vrrp_instance a/{name} {{\n    interface eth0\n    virtual_router_id {number % 255 + 1}\n"
            f"    {marks.get(name, 'accept')}\n    virtual_ipaddress {{\n"
            f"        198.51.{number // 255}.{number % 255}/32 dev eth{number // 255}\n    }}\n}}"
        )
    return "\n".join(blocks) + "\n"


def localized(text: str) -> Localized:
    """*text* as if it had been localised."""
    found = validate.examine(text)
    assert not isinstance(found, Refused)
    return Localized(text, "abc", Configuration(found.instances))


@dataclass
class Keepalived:
    """
    A stand-in that refuses every line with the word ``bad``, and tells as much of it as its *tells* says.

    The real one cannot be told to say nothing at all.
    """

    tells: str = "line"
    runs: int = 0
    clock: float = 0.0
    takes: float = 0.0
    healed: set[str] = field(default_factory=set)

    def judge(self, text: str) -> Finding | None:
        """Read *text*."""
        self.runs += 1
        self.clock += self.takes
        found = [
            (block.first + offset, block.name)
            for block in split(text)
            for offset, line in enumerate(block.lines)
            if "bad" in line.split() and block.name not in self.healed
        ]
        if not found:
            return None
        lines = [number for number, _ in found]
        match self.tells:
            case "line":
                return Finding(HOW, tuple(lines))
            case "first line":
                return Finding(HOW, tuple(lines[:1]))
            case "name":
                return Finding(HOW, names=tuple(name for _, name in found if name))
            case "failure":
                return Finding("cannot be run", about=False)
        return Finding(HOW)

    def sieve(self) -> Sieve:
        """A sieve that asks it."""
        return Sieve(self.judge, now=lambda: self.clock)


def left_out(found: Localized | Refused) -> dict[str, str]:
    """What is left out, by name."""
    assert isinstance(found, Localized), found
    return {each.name: each.fault.reason for each in found.left_out}


@settings(max_examples=25)
@given(st.sets(st.integers(0, 39), max_size=12), st.sampled_from(TELLS))
def test_exactly_the_refused_are_left_out(numbers: set[int], tells: str) -> None:
    """However little keepalived says, and in as many searches as it takes; all others stand as they were wanted."""
    names = [f"s{number:02}" for number in range(40)]
    bad = {f"s{number:02}": "bad" for number in numbers}
    keepalived = Keepalived(tells)
    sieve, wanted = keepalived.sieve(), localized(text_of(names, **bad))
    searches = (sieve.sift(wanted, {}) for _ in range(10))
    found = next(each for each in searches if isinstance(each, Localized))
    assert set(left_out(found)) == {f"a/{name}" for name in bad}
    assert found.text == joined(each for each in split(wanted.text) if each.name.removeprefix("a/") not in bad)
    assert {each.name for each in found.configuration.instances} == {f"a/{name}" for name in names if name not in bad}


def test_one_of_510_is_found_in_twelve_runs() -> None:
    """Though keepalived says nothing but no; where it names the line, two are enough."""
    names = [f"s{number:03}" for number in range(510)]
    for tells, most in (("nothing", 12), ("line", 2)):
        for bad in ("s000", "s509"):
            keepalived = Keepalived(tells)
            found = keepalived.sieve().sift(localized(text_of(names, **{bad: "bad"})), {})
            assert list(left_out(found)) == [f"a/{bad}"]
            assert keepalived.runs <= most


def test_the_line_is_counted_in_the_instance() -> None:
    """So the reason does not change with the neighbours."""
    for names in (["x"], ["b", "x"], ["b", "c", "x", "y"]):
        found = Keepalived().sieve().sift(localized(text_of([*names, "z"], x="bad")), {})
        assert left_out(found) == {"a/x": f"{HOW}, line 4 of the instance"}
        assert isinstance(found, Localized) and found.left_out[0].fault.by is Judge.KEEPALIVED


@pytest.mark.parametrize("tells", TELLS)
def test_what_is_wrong_outside_instances_refuses_all(tells: str) -> None:
    """The instances are not searched for what is not in them."""
    keepalived = Keepalived(tells)
    text = text_of([f"s{number}" for number in range(100)]).replace("router_id edge", "bad")
    found = keepalived.sieve().sift(localized(text), {})
    assert isinstance(found, Refused) and found.reason.startswith(HOW)
    assert keepalived.runs == 2


def test_an_attempt_that_failed_blames_nobody() -> None:
    """A program that does not answer says nothing about any instance."""
    keepalived = Keepalived("failure")
    assert keepalived.sieve().sift(localized(text_of(["x", "y"], x="bad")), {}) == Refused("cannot be run")
    assert keepalived.runs == 1


def test_where_all_are_refused_none_is_left_out() -> None:
    """The last good configuration runs on, and every instance is told of."""
    found = Keepalived().sieve().sift(localized(text_of(["x", "y"], x="bad", y="bad")), {})
    assert isinstance(found, Refused)
    assert found.reason.startswith("no instance is left; a/x: ")
    assert [each.name for each in found.left_out] == ["a/x", "a/y"]


def test_a_search_is_bounded_and_goes_on_where_it_ended() -> None:
    """In runs as in time; what was found is not searched again."""
    names = [f"s{number:03}" for number in range(100)]
    bad = dict.fromkeys(names[:70], "bad")
    keepalived = Keepalived("first line")
    sieve = keepalived.sieve()
    first = sieve.sift(localized(text_of(names, **bad)), {})
    assert isinstance(first, Refused) and "was not found yet" in first.reason
    assert keepalived.runs == MOST_RUNS
    assert len(left_out(sieve.sift(localized(text_of(names, **bad)), {}))) == 70
    slow = Keepalived("first line", takes=SECONDS / 4)
    assert isinstance(slow.sieve().sift(localized(text_of(names, **bad)), {}), Refused)
    assert slow.runs == 4


def test_a_refused_instance_costs_its_neighbours_nothing() -> None:
    """A new neighbour is one run; nothing new is none."""
    keepalived = Keepalived("nothing")
    sieve = keepalived.sieve()
    sieve.sift(localized(text_of(["x", "y", "z"], y="bad")), {})
    for names, runs in ((["x", "y", "z", "z2"], 1), (["x", "y", "z", "z2"], 0), (["x", "y"], 1)):
        before = keepalived.runs
        assert list(left_out(sieve.sift(localized(text_of(names, y="bad")), {}))) == ["a/y"]
        assert keepalived.runs - before == runs


def test_a_refused_instance_is_tried_again() -> None:
    """After a while, alone: what it lacks may have come. As long as it has not, nothing changes."""
    keepalived = Keepalived()
    sieve, wanted = keepalived.sieve(), localized(text_of(["x", "y"], y="bad"))
    sieve.sift(wanted, {})
    for healed, told in ((False, ["a/y"]), (True, [])):
        keepalived.healed = {"a/y"} if healed else set()
        keepalived.clock += AGAIN
        assert list(left_out(sieve.sift(wanted, {}))) == told


def test_a_refused_instance_is_tried_again_when_the_node_has_changed() -> None:
    """Its interface may have come back, and may have gone while it was judged; where nothing changes nobody asks."""
    keepalived = Keepalived()
    sieve, wanted = keepalived.sieve(), localized(text_of(["x", "y"], y="bad"))
    for _ in range(2):
        assert list(left_out(sieve.sift(wanted, {}))) == ["a/y"]
    runs = keepalived.runs
    sieve.doubt()
    assert list(left_out(sieve.sift(wanted, {}))) == ["a/y"]
    assert keepalived.runs == runs + 1
    keepalived.healed = {"a/y"}
    assert list(left_out(sieve.sift(wanted, {}))) == ["a/y"]
    sieve.doubt()
    assert left_out(sieve.sift(wanted, {})) == {}


def test_many_refused_instances_keep_no_other_waiting() -> None:
    """They are tried again in turns, and what is new is judged all the same."""
    keepalived = Keepalived()
    names = [f"s{number:03}" for number in range(2 * MOST_RUNS)]
    bad = dict.fromkeys(names, "bad")
    sieve = keepalived.sieve()
    sieve.sift(localized(text_of([*names, "x"], **bad)), {})
    sieve.doubt()
    wanted = localized(text_of([*names, "x", "y"], **bad))
    assert list(left_out(sieve.sift(wanted, {}))) == [f"a/{name}" for name in names]
    keepalived.healed = {f"a/{name}" for name in names}
    sieve.doubt()
    *_, found = (sieve.sift(wanted, {}) for _ in range(2 * len(names) // MOST_RUNS))
    assert left_out(found) == {}


def test_a_change_while_an_instance_is_judged_counts() -> None:
    """What was judged is what the node was before."""
    keepalived = Keepalived()

    def judge(text: str) -> Finding | None:
        found = keepalived.judge(text)
        sieve.doubt()
        return found

    sieve, wanted = Sieve(judge), localized(text_of(["x", "y"], y="bad"))
    assert list(left_out(sieve.sift(wanted, {}))) == ["a/y"]
    keepalived.healed = {"a/y"}
    assert left_out(sieve.sift(wanted, {})) == {}


def spares(text: str) -> Spares:
    """The instances of *text*, as they last ran on a node with two interfaces."""
    return spares_of(localized(text), Facts("n1", interfaces=frozenset({"eth0", "eth1"})))


def test_an_instance_runs_on_as_it_was() -> None:
    """Where a change of it is refused."""
    found = Keepalived().sieve().sift(localized(text_of(["x", "y"], y="bad")), spares(text_of(["x", "y"], y="debug 1")))
    assert isinstance(found, Localized)
    assert found.left_out[0].kept
    assert "debug 1" in found.text and "bad" not in found.text
    assert [each.name for each in found.configuration.instances] == ["a/x", "a/y"]


def test_a_spare_that_is_refused_too_goes() -> None:
    """The daemon may have been replaced by a stricter one; and it is not tried again for every neighbour."""
    keepalived = Keepalived()
    found = keepalived.sieve().sift(localized(text_of(["x", "y"], y="bad")), spares(text_of(["x", "y"], y="bad")))
    assert isinstance(found, Localized) and not found.left_out[0].kept
    assert keepalived.runs == 2  # it is the very same, so it is not asked for again
    sieve = keepalived.sieve()
    for names, runs in ((["x", "y"], 3), (["x", "y", "z"], 1)):
        before = keepalived.runs
        found = sieve.sift(localized(text_of(names, y="bad")), spares(text_of(["x", "y"], y="debug 1 bad")))
        assert isinstance(found, Localized)
        assert [(each.name, each.kept) for each in found.left_out] == [("a/y", False)]
        assert found.left_out[0].fault == Fault(f"{HOW}, line 4 of the instance", Judge.KEEPALIVED)
        assert keepalived.runs - before == runs
