"""When a pod ends, the agent hands VIPs over; SIGTERM alone, or the request alone, changes nothing."""

import asyncio
from http import HTTPStatus

import pytest

from kavip.agent.handover import LIMIT, LINGER, MOST, WINDOW, PodEnd

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


class HandOver:
    """A hand-over that takes *seconds*."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds, self.began, self.ended = seconds, 0, 0

    async def __call__(self) -> None:
        """Hand over."""
        self.began += 1
        await asyncio.sleep(self.seconds)
        self.ended += 1


def now() -> float:
    """Seconds of the loop's clock."""
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("first", ["SIGTERM", "request"])
async def test_sigterm_and_the_request_together_hand_over(first: str) -> None:
    """In either order; the request is answered when the hand-over is done."""
    stopped, handing, began = asyncio.Event(), HandOver(3.0), now()
    end = PodEnd(stopped)
    if first == "SIGTERM":
        stopped.set()
        running = asyncio.create_task(end.run(handing))
        await asyncio.sleep(WINDOW / 2)
        asking = asyncio.create_task(end.page())
    else:
        asking = asyncio.create_task(end.page())
        await asyncio.sleep(WINDOW / 2)
        stopped.set()
        running = asyncio.create_task(end.run(handing))
    assert (await asking).status is HTTPStatus.OK
    assert handing.ended == 1
    assert now() - began == pytest.approx(WINDOW / 2 + 3.0)
    await running


async def test_the_request_alone_is_answered_soon() -> None:
    """Only keepalived restarts, or somebody on the node asks: nothing is lowered, also if SIGTERM comes later."""
    stopped, handing, began = asyncio.Event(), HandOver(), now()
    end = PodEnd(stopped)
    assert (await end.page()).status is HTTPStatus.OK
    assert now() - began == pytest.approx(WINDOW)
    stopped.set()
    await end.run(handing)
    assert handing.began == 0


async def test_sigterm_alone_ends_the_agent_soon() -> None:
    """Only the agent restarts: its successor must not find a lowered keepalived."""
    handing, began, stopped = HandOver(), now(), asyncio.Event()
    stopped.set()
    await PodEnd(stopped).run(handing)
    assert handing.began == 0
    assert now() - began == pytest.approx(WINDOW)


async def test_sigquit_alone_hands_over() -> None:
    """As systemd sends it; a request that comes as well is answered when the hand-over is done."""
    handing, began, stopped = HandOver(3.0), now(), asyncio.Event()
    end = PodEnd(stopped)
    end.end_pod()
    assert stopped.is_set()
    running = asyncio.create_task(end.run(handing))
    assert (await end.page()).status is HTTPStatus.OK
    assert handing.ended == 1
    assert now() - began == pytest.approx(3.0)
    await running


async def test_a_hand_over_is_bounded() -> None:
    """The request is answered and the agent ends, although no node takes over."""
    stopped, handing, began = asyncio.Event(), HandOver(10 * LIMIT), now()
    end = PodEnd(stopped)
    stopped.set()
    asking = asyncio.create_task(end.page())
    await end.run(handing)
    assert now() - began == pytest.approx(LIMIT + LINGER)
    assert (await asking).status is HTTPStatus.OK
    assert (handing.began, handing.ended) == (1, 0)


async def test_a_failed_hand_over_does_not_hold_the_pod() -> None:
    """The failure is logged, and the request is answered."""
    stopped = asyncio.Event()
    end = PodEnd(stopped)
    stopped.set()

    async def fail() -> None:
        raise OSError("disk")

    asking = asyncio.create_task(end.page())
    await end.run(fail)
    assert (await asking).status is HTTPStatus.OK


async def test_few_requests_wait() -> None:
    """One more is refused at once, so that they hold no connections; later ones may wait again."""
    end, began = PodEnd(asyncio.Event()), now()
    waiting = [asyncio.create_task(end.page()) for _ in range(MOST)]
    await asyncio.sleep(0)
    assert (await end.page()).status is HTTPStatus.SERVICE_UNAVAILABLE
    assert now() == began
    await asyncio.gather(*waiting)
    assert (await end.page()).status is HTTPStatus.OK
