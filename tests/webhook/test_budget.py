"""The budget of request bodies: how senders share it."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.http.shares import Path
from kavip.webhook.budget import BodyBudget, BudgetExceeded, HeldBody

SIZE = 60
KINDS = ("API server", "other")
SENDERS: tuple[Path | None, ...] = (None, *((kind, sender) for kind in KINDS for sender in "abc"))


def hold(budget: BodyBudget, path: Path | None, size: int) -> HeldBody:
    """A new body of *size* bytes."""
    body = budget.body(path)
    body.grow(size)
    return body


def test_a_sender_with_less_displaces_the_oldest_body_of_the_largest_sender() -> None:
    """The larger kind gives way first; a sender displaces none of its own bodies."""
    budget = BodyBudget(SIZE)
    server = hold(budget, ("API server", "a"), 20)
    first, second = hold(budget, ("other", "b"), 15), hold(budget, ("other", "b"), 15)
    other = hold(budget, ("other", "c"), 10)
    hold(budget, ("API server", "a"), 1)
    assert [each.is_displaced for each in (server, first, second, other)] == [False, True, False, False]
    with pytest.raises(BudgetExceeded):
        hold(budget, ("other", "b"), 15)
    assert not second.is_displaced


def test_senders_do_not_displace_each_other_in_turn() -> None:
    """One displaces another only if it then still holds less."""
    budget = BodyBudget(SIZE)
    bodies = [hold(budget, ("other", sender), SIZE // 2) for sender in "ab"]
    for sender in "ab":
        with pytest.raises(BudgetExceeded):
            hold(budget, ("other", sender), 1)
    assert not any(each.is_displaced for each in bodies)


def test_verified_bodies_are_never_displaced() -> None:
    """They displace others, whatever these hold."""
    budget = BodyBudget(SIZE)
    small = hold(budget, ("other", "a"), 1)
    verified = [hold(budget, None, 30), hold(budget, None, 30)]
    assert small.is_displaced
    for path in SENDERS:
        with pytest.raises(BudgetExceeded):
            hold(budget, path, 1)
    assert not any(each.is_displaced for each in verified)


def test_a_displaced_body_ends_once_and_grows_no_more() -> None:
    """Its bytes are returned at once, and not again when it is released."""
    ended: list[str] = []
    budget = BodyBudget(SIZE)
    old = budget.body(("other", "a"), lambda: ended.append("old"))
    old.grow(SIZE)
    new = hold(budget, ("other", "b"), 10)
    assert (ended, old.size, budget.left) == (["old"], 0, SIZE - 10)
    with pytest.raises(BudgetExceeded):
        old.grow(SIZE + 1)
    for each in (old, new, new):
        each.release()
    assert budget.left == SIZE


STEPS = st.lists(st.tuples(st.sampled_from(SENDERS), st.integers(0, 9), st.integers(0, 25)), max_size=60)


@given(STEPS)
def test_the_budget_holds_and_is_fair(steps: list[tuple[Path | None, int, int]]) -> None:
    """No more than the budget is held; a sender is refused, or loses a body, only beyond its equal share."""
    budget = BodyBudget(SIZE)
    held: dict[HeldBody, None] = {}
    for path, which, count in steps:
        mine = [each for each in held if each.path == path]
        if which < len(mine) and count % 3 == 0:
            mine[which].release()
            del held[mine[which]]
            continue
        body = mine[which] if which < len(mine) else budget.body(path)
        before = Counter({sender: sum(each.size for each in held if each.path == sender) for sender in SENDERS})
        try:
            body.grow(body.size + count)
            held[body] = None
        except BudgetExceeded:
            assert before[path] + count >= share(before, path)
            body.release()
            held.pop(body, None)
        for each in [each for each in held if each.is_displaced]:
            assert each.path is not None
            assert each.path != path
            assert before[each.path] > (before[path] + count if path and path[0] == each.path[0] else 0)
            del held[each]
        assert budget.left == SIZE - sum(each.size for each in held) >= 0
    for each in held:
        each.release()
    assert budget.left == SIZE
    assert not budget._held
    assert not budget._sizes


def share(taken: Counter[Path | None], path: Path | None) -> float:
    """What *path* may hold whatever the others do: of what verified senders leave, an equal part at each level."""
    if path is None:
        return SIZE - taken[None]
    branches = {each for each in taken if each is not None and (taken[each] or each == path)}
    kinds = {each[0] for each in branches}
    senders = {each for each in branches if each[0] == path[0]}
    return (SIZE - taken[None]) / len(kinds) / len(senders)
