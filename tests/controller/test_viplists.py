"""Lists of VIPs that are known by hash give the same VIPs as lists that are sent."""

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.address import Address
from kavip.api.agent import AgentState, InstanceReport, hash_of
from kavip.controller import viplists
from kavip.controller.viplists import VIPLists, hashes_in, lists_in
from kavip.reconcile.observed.agent import Placement
from tests.support.examples import examples

pytestmark = pytest.mark.usefixtures("short")
TEXTS = st.frozensets(st.integers(1, 12).map(str), max_size=8)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """All lists count as long."""
    monkeypatch.setattr(viplists, "LONG_LIST", 0)


def report(*lists: frozenset[str]) -> AgentState:
    """An agent's report with an instance for each of *lists*."""
    instances = (InstanceReport(name=str(at), virtual_ips=tuple(sorted(each))) for at, each in enumerate(lists))
    return AgentState(group="lb/edge", instances=tuple(instances))


def hashed(*lists: frozenset[str]) -> AgentState:
    """The same by hash."""
    names = (hash_of(tuple(sorted(each))) for each in lists)
    instances = (InstanceReport(name=str(at), virtual_ips_hash=name) for at, name in enumerate(names))
    return AgentState(group="lb/edge", instances=tuple(instances))


def want(texts: frozenset[str]) -> Mapping[str, Address]:
    """*texts* as VIPs."""
    return {text: Address(4, int(text)) for text in texts}


def placed(lists: VIPLists, report: AgentState, wanted: Mapping[str, Address]) -> Placement:
    """The placement of *report*, kept for the next one."""
    if found := lists.placement(report):
        return found
    keep = lists.placing(report)
    keep(placement := Placement.of(report, wanted, lists.addresses(report, wanted)))
    return placement


@examples(100)
@given(st.lists(st.tuples(TEXTS.filter(bool), TEXTS), max_size=12))
def test_known_lists_have_the_wanted_vips_of_now(history: list[tuple[frozenset[str], frozenset[str]]]) -> None:
    """Whatever was wanted when they were sent."""
    lists, wanted, users = VIPLists(), dict[str, Address](), Counter[str]()
    for sent, texts in history:
        now = want(texts)
        lists.forget_addresses(wanted.keys() ^ now.keys())
        wanted = dict(now)
        users.update(lists_in(report(sent)).keys())
        lists.add(lists_in(report(sent)), wanted, users=users)
        for each in (sent for sent, _ in history):
            if lists.knows(hashed(each)):
                for _ in range(2):
                    assert placed(lists, hashed(each), wanted) == Placement.of(report(each), wanted)
        if 2 * len(sent & texts) >= len(sent):
            assert lists.knows(hashed(sent))


def test_a_placement_made_while_others_were_wanted_is_not_kept() -> None:
    """It is made in a thread."""
    lists, wanted = VIPLists(), want(frozenset({"1"}))
    keep = lists.placing(report(frozenset({"1"})))
    lists.forget_addresses({"2"})
    keep(Placement.of(report(frozenset({"1"})), wanted))
    assert lists.placement(report(frozenset({"1"}))) is None


def test_a_list_of_vips_that_nobody_wants_is_not_kept() -> None:
    """A node could fill the memory with them; it may have some that are no longer wanted."""
    lists, wanted = VIPLists(), want(frozenset({"1", "2"}))
    for sent, is_kept in ((frozenset({"1", "2", "3", "4"}), True), (frozenset({"1", "3", "4"}), False)):
        found = lists_in(report(sent))
        lists.add(found, wanted, users=Counter(found.keys()))
        assert lists.knows(hashed(sent)) is is_kept


def test_lists_of_one_node_do_not_replace_those_of_the_others() -> None:
    """It has other lists of wanted VIPs each time; a new list of the others is known in spite of them."""
    vips = frozenset(map(str, range(500)))
    lists, wanted = VIPLists(), want(vips)
    honest, users = lists_in(report(vips)), Counter[str]()
    users.update(dict.fromkeys(honest, 3))
    lists.add(honest, wanted, users=users)
    for number in range(40):
        made_up = lists_in(report(vips - {str(number)}))
        users.update(made_up.keys())
        lists.add(made_up, wanted, users=users)
    assert lists.knows(hashed(vips))
    assert sum(map(len, lists._texts.values())) <= 4 * len(vips) + viplists._MOST_TEXTS
    changed = vips - {"400", "401"}
    users.update(lists_in(report(changed)).keys())
    lists.add(lists_in(report(changed)), wanted, users=users)
    assert lists.knows(hashed(vips)) and lists.knows(hashed(changed))


def test_a_list_that_no_node_uses_is_forgotten() -> None:
    """Otherwise there would be one more after each change."""
    lists, wanted = VIPLists(), want(frozenset({"1", "2"}))
    one, two = frozenset({"1"}), frozenset({"1", "2"})
    for each in (one, two):
        lists.add(lists_in(report(each)), wanted, users=Counter(hashes_in(hashed(each))))
    assert lists.knows(hashed(two)) and not lists.knows(hashed(one))


def test_no_other_list_has_the_same_hash() -> None:
    """A node could otherwise send other VIPs in the name of a list that the others run."""
    found = {hash_of(each) for each in (("a", "b"), ("a\nb",), ('a","b',), ("b", "a"), ("a", "b", ""), ("ab",), ())}
    assert len(found) == 7


def test_the_placement_of_a_report_with_many_vips_in_lists_is_not_kept() -> None:
    """A node could fill the memory with it."""
    many, few = (frozenset(map(str, range(size))) for size in (viplists._MOST_TEXTS + 1, 1))
    lists, wanted = VIPLists(), want(many)
    for each in (many, few):
        placed(lists, report(each), wanted)
    assert lists.placement(report(many)) is None and lists.placement(report(few)) is not None
