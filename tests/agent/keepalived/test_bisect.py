"""Which instances keepalived refuses: found by its report or by bisection, within bounds, and kept."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.agent.config import validate
from kavip.agent.config.blocks import joined, split
from kavip.agent.config.exclude import PreviousInstances, previous_instances
from kavip.agent.config.facts import NodeFacts
from kavip.agent.config.model import InstanceFault, LocalizedConfig, ParsedConfig, RefusedConfig
from kavip.agent.keepalived.bisect import AGAIN, MAX_RUNS, SECONDS, Bisector
from kavip.agent.keepalived.configtest import FailedTest
from kavip.api.agent import ProblemCode, RefusedBy
from tests.support.examples import examples

CODE = ProblemCode.REFUSED_BY_KEEPALIVED
HOW = "keepalived --config-test: exit status 5"
DETAILS = ("line", "name", "nothing", "first line")


def text_of(names: list[str], **marks: str) -> str:
    """A configuration with the instances *names*; *marks* are keywords in some of them."""
    blocks = ["# kavip: localised for n1; configuration abc\nglobal_defs {\n    router_id edge\n}"]
    for number, name in enumerate(names):
        blocks.append(
            f"vrrp_instance a/{name} {{\n    interface eth0\n    virtual_router_id {number % 255 + 1}\n"
            f"    {marks.get(name, 'accept')}\n    virtual_ipaddress {{\n"
            f"        198.51.{number // 255}.{number % 255}/32 dev eth{number // 255}\n    }}\n}}"
        )
    return "\n".join(blocks) + "\n"


def localized(text: str) -> LocalizedConfig:
    """*text* as a localised configuration."""
    found = validate.examine(text)
    assert not isinstance(found, RefusedConfig)
    return LocalizedConfig(text, "abc", ParsedConfig(found.instances))


@dataclass
class Keepalived:
    """
    A stand-in that refuses each line with the word ``bad``, and reports with this *detail*.

    The real keepalived always reports something.
    """

    detail: str = "line"
    runs: int = 0
    clock: float = 0.0
    takes: float = 0.0
    healed: set[str] = field(default_factory=set)

    def check(self, text: str) -> FailedTest | None:
        """Test *text*."""
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
        match self.detail:
            case "line":
                return FailedTest(CODE, HOW, tuple(lines))
            case "first line":
                return FailedTest(CODE, HOW, tuple(lines[:1]))
            case "name":
                return FailedTest(CODE, HOW, names=tuple(name for _, name in found if name))
            case "failure":
                return FailedTest(ProblemCode.CONFIG_TEST_FAILED, "cannot run")
        return FailedTest(CODE, HOW)

    def bisector(self) -> Bisector:
        """A bisector that tests with this stand-in."""
        return Bisector(self.check, now=lambda: self.clock)


def excluded(found: LocalizedConfig | RefusedConfig) -> dict[str, str]:
    """The messages of the excluded instances, by name."""
    assert isinstance(found, LocalizedConfig), found
    return {each.name: each.fault.message for each in found.excluded}


@examples(25)
@given(st.sets(st.integers(0, 39), max_size=12), st.sampled_from(DETAILS))
def test_exactly_the_refused_instances_are_excluded(numbers: set[int], detail: str) -> None:
    """With any kind of report, all refused instances are excluded after enough searches; the others are unchanged."""
    names = [f"s{number:02}" for number in range(40)]
    bad = {f"s{number:02}": "bad" for number in numbers}
    keepalived = Keepalived(detail)
    bisector, wanted = keepalived.bisector(), localized(text_of(names, **bad))
    searches = (bisector.exclude_refused(wanted, {}) for _ in range(10))
    found = next(each for each in searches if isinstance(each, LocalizedConfig))
    assert set(excluded(found)) == {f"a/{name}" for name in bad}
    assert found.text == joined(each for each in split(wanted.text) if each.name.removeprefix("a/") not in bad)
    assert {each.name for each in found.configuration.instances} == {f"a/{name}" for name in names if name not in bad}


def test_one_of_510_is_found_in_twelve_runs() -> None:
    """Twelve runs are enough without any report, and two if keepalived reports the line."""
    names = [f"s{number:03}" for number in range(510)]
    for detail, most in (("nothing", 12), ("line", 2)):
        for bad in ("s000", "s509"):
            keepalived = Keepalived(detail)
            found = keepalived.bisector().exclude_refused(localized(text_of(names, **{bad: "bad"})), {})
            assert list(excluded(found)) == [f"a/{bad}"]
            assert keepalived.runs <= most


def test_the_line_is_counted_in_the_instance() -> None:
    """The line number in a message does not depend on other instances."""
    for names in (["x"], ["b", "x"], ["b", "c", "x", "y"]):
        found = Keepalived().bisector().exclude_refused(localized(text_of([*names, "z"], x="bad")), {})
        assert excluded(found) == {"a/x": f"{HOW}, line 4 of the instance"}
        assert isinstance(found, LocalizedConfig) and found.excluded[0].fault.by is RefusedBy.KEEPALIVED


@pytest.mark.parametrize("detail", DETAILS)
def test_a_fault_outside_instances_refuses_everything(detail: str) -> None:
    """There is no search in the instances."""
    keepalived = Keepalived(detail)
    text = text_of([f"s{number}" for number in range(100)]).replace("router_id edge", "bad")
    found = keepalived.bisector().exclude_refused(localized(text), {})
    assert isinstance(found, RefusedConfig) and found.message.startswith(HOW)
    assert keepalived.runs == 2


def test_a_test_that_did_not_run_excludes_no_instance() -> None:
    """The whole text is refused."""
    keepalived = Keepalived("failure")
    assert keepalived.bisector().exclude_refused(localized(text_of(["x", "y"], x="bad")), {}) == RefusedConfig(
        ProblemCode.CONFIG_TEST_FAILED, "cannot run"
    )
    assert keepalived.runs == 1


def test_a_configuration_without_good_instances_is_refused() -> None:
    """The last good configuration stays in use; every instance is reported."""
    found = Keepalived().bisector().exclude_refused(localized(text_of(["x", "y"], x="bad", y="bad")), {})
    assert isinstance(found, RefusedConfig)
    assert found.message.startswith("no instance is left; a/x: ")
    assert [each.name for each in found.excluded] == ["a/x", "a/y"]


def test_a_search_is_bounded_and_the_next_one_continues_it() -> None:
    """A search has a maximum of runs and of time; the next search keeps the results."""
    names = [f"s{number:03}" for number in range(100)]
    bad = dict.fromkeys(names[:70], "bad")
    keepalived = Keepalived("first line")
    bisector = keepalived.bisector()
    first = bisector.exclude_refused(localized(text_of(names, **bad)), {})
    assert isinstance(first, RefusedConfig) and "is not found yet" in first.message
    assert keepalived.runs == MAX_RUNS
    assert len(excluded(bisector.exclude_refused(localized(text_of(names, **bad)), {}))) == 70
    slow = Keepalived("first line", takes=SECONDS / 4)
    assert isinstance(slow.bisector().exclude_refused(localized(text_of(names, **bad)), {}), RefusedConfig)
    assert slow.runs == 4


def test_a_refused_instance_does_not_delay_others() -> None:
    """A new instance costs one run, no change costs none."""
    keepalived = Keepalived("nothing")
    bisector = keepalived.bisector()
    bisector.exclude_refused(localized(text_of(["x", "y", "z"], y="bad")), {})
    for names, runs in ((["x", "y", "z", "z2"], 1), (["x", "y", "z", "z2"], 0), (["x", "y"], 1)):
        before = keepalived.runs
        assert list(excluded(bisector.exclude_refused(localized(text_of(names, y="bad")), {}))) == ["a/y"]
        assert keepalived.runs - before == runs


def test_a_refused_instance_is_tested_again_after_a_while() -> None:
    """It is tested alone; the result does not change while it is still refused."""
    keepalived = Keepalived()
    bisector, wanted = keepalived.bisector(), localized(text_of(["x", "y"], y="bad"))
    bisector.exclude_refused(wanted, {})
    for healed, refused in ((False, ["a/y"]), (True, [])):
        keepalived.healed = {"a/y"} if healed else set()
        keepalived.clock += AGAIN
        assert list(excluded(bisector.exclude_refused(wanted, {}))) == refused


def test_a_refused_instance_is_tested_again_after_a_change_of_the_node() -> None:
    """The instance is tested once for each change."""
    keepalived = Keepalived()
    bisector, wanted = keepalived.bisector(), localized(text_of(["x", "y"], y="bad"))
    for _ in range(2):
        assert list(excluded(bisector.exclude_refused(wanted, {}))) == ["a/y"]
    runs = keepalived.runs
    bisector.retest()
    assert list(excluded(bisector.exclude_refused(wanted, {}))) == ["a/y"]
    assert keepalived.runs == runs + 1
    keepalived.healed = {"a/y"}
    assert list(excluded(bisector.exclude_refused(wanted, {}))) == ["a/y"]
    bisector.retest()
    assert excluded(bisector.exclude_refused(wanted, {})) == {}


def test_many_refused_instances_do_not_block_a_search() -> None:
    """They are tested again in turn, and new instances in each search."""
    keepalived = Keepalived()
    names = [f"s{number:03}" for number in range(2 * MAX_RUNS)]
    bad = dict.fromkeys(names, "bad")
    bisector = keepalived.bisector()
    bisector.exclude_refused(localized(text_of([*names, "x"], **bad)), {})
    bisector.retest()
    wanted = localized(text_of([*names, "x", "y"], **bad))
    assert list(excluded(bisector.exclude_refused(wanted, {}))) == [f"a/{name}" for name in names]
    keepalived.healed = {f"a/{name}" for name in names}
    bisector.retest()
    *_, found = (bisector.exclude_refused(wanted, {}) for _ in range(2 * len(names) // MAX_RUNS))
    assert excluded(found) == {}


def test_a_change_of_the_node_during_a_test_counts() -> None:
    """The result is that of the node before the change."""
    keepalived = Keepalived()

    def check(text: str) -> FailedTest | None:
        found = keepalived.check(text)
        bisector.retest()
        return found

    bisector, wanted = Bisector(check), localized(text_of(["x", "y"], y="bad"))
    assert list(excluded(bisector.exclude_refused(wanted, {}))) == ["a/y"]
    keepalived.healed = {"a/y"}
    assert excluded(bisector.exclude_refused(wanted, {})) == {}


def previous(text: str) -> PreviousInstances:
    """The instances of *text* as they last ran, on a node with two interfaces."""
    return previous_instances(localized(text), NodeFacts("n1", interfaces=frozenset({"eth0", "eth1"})))


def test_a_faulty_instance_is_kept_as_it_last_ran() -> None:
    """If keepalived refuses a change of an instance, the instance runs as before the change."""
    found = (
        Keepalived()
        .bisector()
        .exclude_refused(localized(text_of(["x", "y"], y="bad")), previous(text_of(["x", "y"], y="debug 1")))
    )
    assert isinstance(found, LocalizedConfig)
    assert found.excluded[0].kept
    assert "debug 1" in found.text and "bad" not in found.text
    assert [each.name for each in found.configuration.instances] == ["a/x", "a/y"]


def test_a_kept_instance_that_is_refused_too_is_removed() -> None:
    """It is not tested again for each change of other instances."""
    keepalived = Keepalived()
    found = keepalived.bisector().exclude_refused(
        localized(text_of(["x", "y"], y="bad")), previous(text_of(["x", "y"], y="bad"))
    )
    assert isinstance(found, LocalizedConfig) and not found.excluded[0].kept
    assert keepalived.runs == 2  # the text is the same, so it is not tested again
    bisector = keepalived.bisector()
    for names, runs in ((["x", "y"], 3), (["x", "y", "z"], 1)):
        before = keepalived.runs
        found = bisector.exclude_refused(
            localized(text_of(names, y="bad")), previous(text_of(["x", "y"], y="debug 1 bad"))
        )
        assert isinstance(found, LocalizedConfig)
        assert [(each.name, each.kept) for each in found.excluded] == [("a/y", False)]
        assert found.excluded[0].fault == InstanceFault(CODE, f"{HOW}, line 4 of the instance", RefusedBy.KEEPALIVED)
        assert keepalived.runs - before == runs
