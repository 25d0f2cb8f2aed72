"""
Services led step by step (:mod:`kavip.convert.steps`) in a cluster, with the rights of the user.

Each write is conditional on the version that its step was decided on. A write that the API server refuses ends this
Service, and no other.
"""

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeVar

from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.convert.steps import Done, Json, NextStep, Step, Stop, Wait, Write
from kavip.errors import ApiError, Conflict, NotFound, Throttled, Unavailable
from kavip.kube.client import Client
from kavip.kube.resources import Resource
from kavip.names import Reason

S = TypeVar("S", bound=Service)

MANAGER: Final = "kavip-convert"
"""The field manager: not that of the controller, which never writes what users write."""
INTERVAL: Final = 0.2
"""Seconds between two looks at a Service that waits."""
MOST_WRITES: Final = 12
"""Of one Service; it needs at most five. More: another program changes it back."""
_LONG: Final = 5.0
"""Seconds after which a wait is reported."""


async def _nothing() -> None:
    """Look at nothing else."""


async def lead(
    client: Client,
    key: str,
    next_step: NextStep[S],
    *,
    timeout: float,
    on_write: Callable[[str], None],
    resource: Resource[S],
    look: Callable[[], Awaitable[None]] = _nothing,
) -> Refusal | None:
    """
    Take the Service *key* through its steps; None: it is done.

    *timeout*: the seconds of each step. *on_write* gets what each write has done, and what a step waits for if that
    takes long. *look*: called before each step, to observe what the step depends on besides the Service.
    """
    loop = asyncio.get_running_loop()
    deadline, says, told, writes = loop.time() + timeout, "the API server does not answer", "", 0
    while True:
        try:
            await look()
            service = await client.get(resource, key)
            step = next_step(service)
            if isinstance(step, Write):
                if (writes := writes + 1) > MOST_WRITES:
                    return Refusal(Reason.INVALID_REQUEST, "another program changes it back: stop that one first")
                await client.patch(resource, key, versioned(step.body, service), field_manager=MANAGER)
                on_write(step.says)
                deadline = loop.time() + timeout
                continue
        except NotFound:
            return Refusal(Reason.INVALID_REQUEST, "the Service is gone")
        except (Conflict, Throttled, Unavailable) as error:  # decided again, on the Service as it is then
            says = str(error)
        except ApiError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                raise
            return Refusal(Reason.INVALID_REQUEST, error.message)
        else:
            if not isinstance(step, Wait):
                return _end_of(step)
            says = step.says
        if told != says and loop.time() > deadline - timeout + _LONG:
            told = says
            on_write(f"waits: {says}")
        if loop.time() > deadline:
            return Refusal(Reason.PENDING, f"after {timeout:g} s {says}")
        await asyncio.sleep(INTERVAL)


def versioned(body: Json, service: Service) -> Json:
    """*body* on condition that *service* has not changed."""
    metadata = {**body.get("metadata", {}), "resourceVersion": service.metadata.resource_version}
    return {**body, "metadata": metadata}


def _end_of(step: Step) -> Refusal | None:
    """Why *step* is the last one; None: all is done."""
    match step:
        case Done():
            return None
        case Stop(refusal):
            return refusal
    raise TypeError(type(step).__name__)
