"""Token buckets of senders."""

from kavip.http.ratelimit import MAX_SENDERS, SenderRateLimiter
from tests.support.manualclock import ManualClock


def test_a_sender_has_a_burst_and_then_a_rate() -> None:
    """Refused attempts cost nothing, and another sender has a bucket of its own."""
    clock = ManualClock()
    rate = SenderRateLimiter(burst=3, per_second=2.0, clock=clock)
    assert [rate.take("a") for _ in range(5)] == [True] * 3 + [False] * 2
    assert rate.take("b")
    clock.now += 0.5
    assert [rate.take("a") for _ in range(2)] == [True, False]
    clock.now += 60
    assert [rate.take("a") for _ in range(4)] == [True] * 3 + [False]


def test_memory_is_bounded() -> None:
    """The sender that acted longest ago is forgotten; one that goes on is not."""
    clock = ManualClock()
    rate = SenderRateLimiter(burst=1, per_second=0.001, clock=clock)
    for number in range(2 * MAX_SENDERS):
        rate.take(number)
        rate.take("busy")
    assert len(rate._due) == MAX_SENDERS
    assert not rate.take("busy")
    assert rate.take(0)
