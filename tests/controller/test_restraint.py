"""How often a Service is written of which only agents speak."""

from kavip.controller import restraint
from kavip.controller.outcome import Key, Kind
from tests import build
from tests.controller.shop import web, working

WEB = Key(Kind.SERVICE, "shop/web")


async def test_a_service_that_only_agents_speak_of_is_written_ever_more_rarely() -> None:
    """A node that flaps, or lies, costs a burst of writes of each Service; its owner's edit goes at once."""
    async with working(web(), web("shop/other"), build.group(), build.pool()) as shop:

        def written(key: str = "shop/web") -> int:
            return sum(write.key == key for plan in shop.writer.sent for write in plan.writes)

        for number in range(1, restraint.BURST + 1):  # nothing comes back from a watch: each look writes the same again
            shop.queue.add(WEB)
            await shop.until(lambda: written() == number)  # noqa: B023 - awaited in the same turn
        shop.queue.add(WEB)
        shop.queue.add(Key(Kind.SERVICE, "shop/other"))
        await shop.until(lambda: written("shop/other"))
        assert written() == restraint.BURST
        shop.snapshot.put(web(labels={"edited": "yes"}))
        shop.queue.add(WEB)
        await shop.until(lambda: written() == restraint.BURST + 1)


def test_the_burst_comes_back_with_time() -> None:
    """One write in 15 s is always allowed, and after a while of peace as many at once as ever."""
    found, service = restraint.Restraint(), web()
    for _ in range(restraint.BURST):
        assert found.pause(service, now=0.0) == 0.0
        found.spend(service, now=0.0)
    assert found.pause(service, now=5.0) == restraint.REST - 5.0
    found.spend(service, now=restraint.REST)
    assert found.pause(service, now=restraint.REST) == restraint.REST
    later = restraint.REST * (restraint.BURST + 1)
    for _ in range(restraint.BURST):
        assert found.pause(service, now=later) == 0.0
        found.spend(service, now=later)
    found.forget(service.key)
    assert found.pause(service, now=later) == 0.0


def test_services_that_rest_are_forgotten() -> None:
    """A leader of many months has written every Service there is, and remembers those of the last minutes."""
    found = restraint.Restraint()
    for number in range(10_000):
        found.spend(web(f"shop/s{number}"), now=float(number))
    assert len(found) < 2_000
