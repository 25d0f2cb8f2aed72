"""What a client's requests say about how long a VIP was away."""

from tests.changes.client import RESET
from tests.changes.seen import MOMENT, Seen

VIP = "192.0.2.130"


def seen(*answered: str, every: float = 0.01) -> Seen:
    """A request after the other: who answered, or why nobody ("-" or a reset)."""
    rows = [(n * every, None if who in ("-", RESET) else 0.001, who) for n, who in enumerate(answered)]
    return Seen(rows={VIP: rows})


def test_a_silence_is_from_answer_to_answer() -> None:
    """What was asked between two answered requests counts once, however often it was asked."""
    found = seen("n1", "-", "-", "n2", "n2", "-", "n2")
    assert [round(each, 6) for each in found.silences(VIP)] == [0.03, 0.02]
    assert round(found.longest_silence, 6) == 0.03


def test_a_silence_that_does_not_end_is_one() -> None:
    """A VIP that is not answered to the end was away until then; one that was not there at first came."""
    assert [round(each, 6) for each in seen("-", "n1", "-", "-").silences(VIP)] == [0.02]
    assert seen("-", "n1").silences(VIP) == []


def test_a_reset_is_no_silence_but_is_no_answer() -> None:
    """The connection stood, so somebody was there; all the same its request was lost."""
    found = seen("n1", RESET, "n2")
    assert found.silences(VIP) == []
    assert round(found.longest_silence, 6) == 0.02


def test_a_vip_is_kept_where_each_move_costs_a_moment() -> None:
    """What is unanswered without a move, or for longer, was away."""
    assert seen("n1", "-", "n2").is_kept(VIP, moves=1)
    assert not seen("n1", "-", "n2").is_kept(VIP, moves=0)
    assert not seen("n1", "-", "n2", every=MOMENT).is_kept(VIP, moves=2)
    often = ["n1", "-"] * 11 + ["n1"]
    assert not seen(*often).is_kept(VIP, moves=1)
    assert seen(*often).is_kept(VIP, moves=2)
    assert seen("n1", "-", "n2", "n2").is_kept(VIP, moves=0, since=0.02)
