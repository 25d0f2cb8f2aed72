"""What ``kavip doctor`` does if the API server fails to read some of the cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest
from aiohttp import web

from kavip.cli.sources.doctor import inspect
from kavip.cli.views.doctor.checks import diagnose
from kavip.cli.views.doctor.inspection import Gap, Inspection, Source
from kavip.errors import ApiError
from tests.kube.fakeapi import FakeApi, refusal, serving


async def inspected(folder: Path, answer: Callable[[web.Request], web.StreamResponse | None]) -> Inspection:
    """What is read of an API server that gives *answer*; None: as usual."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        return answer(request)

    fake = FakeApi()
    fake.fault = fault
    async with serving(fake, folder) as config:
        return await inspect(str(config), context="")


@pytest.mark.parametrize("status", [500, 503, 429, 410, 404])
async def test_a_kind_that_cannot_be_read_costs_its_checks(status: int, tmp_path: Path) -> None:
    """The other checks are made: a cluster that is broken in part is what the command is for."""
    found = await inspected(
        tmp_path, lambda request: refusal(status, "Broken") if "deployments" in request.path else None
    )
    gap, agents = found.gaps[Source.WORKLOADS], found.gaps[Source.AGENTS]
    assert set(found.gaps) == {Source.WORKLOADS, Source.AGENTS}
    assert (gap.is_whole, gap.reason) == (True, f"{Source.WORKLOADS}: {status} Broken: because")
    assert agents == Gap("no group has pods, whose agents would know")
    unmade = {each.check.name for each in diagnose(found).results if each.gap and Source.AGENTS not in each.check.needs}
    assert unmade == {"deployments", "rights", "load-balancers"}


@pytest.mark.parametrize(
    "answer", [refusal(401, "Unauthorized"), web.Response(body=b"<html>")], ids=["unauthorized", "no API server"]
)
async def test_what_answers_nothing_is_an_error(answer: web.Response, tmp_path: Path) -> None:
    """Without an identity, or without an API server, there is nothing to check."""
    body, status = answer.body, answer.status
    with pytest.raises(ApiError):
        await inspected(tmp_path, lambda _: web.Response(body=body, status=status))
