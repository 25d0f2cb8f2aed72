"""
Cool-downs of addresses that were freed while no controller ran.

A leader records in its Lease the resourceVersion of Services up to which pool status has every cool-down
(:data:`kavip.names.COOLDOWNS_ANNOTATION`). A replica that has watched Services since that version has seen what was
freed. Any other replica that becomes the leader asks the API server for what it has not seen: it lists the Services at
exactly that version, replays the changes since then, and releases every address that was held on the way and that no
Service holds now. Their cool-downs begin with the new term.

etcd keeps old versions for about five minutes (``--etcd-compaction-interval``). After that the API server answers 410,
and what was freed is not known any more. https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import structlog

from kavip.api.address import Address
from kavip.api.service import Service
from kavip.errors import ApiError, Gone, Throttled, Unavailable
from kavip.ipam.ledger.holdings import Holding
from kavip.ipam.ledger.ledger import Ledger
from kavip.kube.client import Client
from kavip.kube.codec import Changed, Malformed
from kavip.kube.informer import Informer
from kavip.kube.resources import SERVICES

log = structlog.get_logger()

REPLAY_SECONDS: Final = 20.0
"""Seconds for which the changes since a version are replayed, at most."""
WATCH_SECONDS: Final = 3.0
"""Lifetime of one watch of the replay: the API server sends a bookmark two seconds before its end."""
_RETRY: Final = 1.0
_TOO_LARGE_RESOURCE_VERSION: Final = 504


class Recovery(StrEnum):
    """How many of the addresses that were freed before its term a new leader has recovered."""

    SEEN = ""  # it has seen all of them, or none cools down
    COMPLETE = "complete"
    PARTIAL = "partial"  # not of those that were assigned and freed since the version
    EXPIRED = "expired"


async def recover_cooldowns(
    client: Client, services: Informer[Service], ledger: Ledger, *, recorded: str, now_at: str
) -> Recovery:
    """
    Release what was freed since the version *recorded* and before *services* began to watch.

    *now_at* is the version to which the replay leads: that of a list that is in the ledger. Call it before any address
    is assigned. Raises :class:`ApiError` only if the API server refuses the list.
    """
    if not ledger.cooldown.is_used or not _is_gap(recorded, services.seen_since):
        return Recovery.SEEN
    held: dict[Address, str] = {}
    try:
        _collect(held, await _list(client, recorded))
    except ApiError as error:
        if not _is_unknown(error):
            raise
        return Recovery.EXPIRED
    result = Recovery.COMPLETE
    try:
        async with asyncio.timeout(REPLAY_SECONDS):
            await _replay(client, held, since=recorded, until=now_at)
    except (ApiError, TimeoutError) as error:
        log.warning("changes of Services not replayed", since=recorded, error=str(error) or type(error).__name__)
        result = Recovery.PARTIAL
    freed = ledger.release_unheld(held)
    log.info("cool-downs recovered", since=recorded, addresses=freed, result=result)
    return result


def _is_gap(recorded: str, seen_since: str) -> bool:
    """Whether changes after the version *recorded* may be unseen."""
    return recorded.isdecimal() and seen_since.isdecimal() and int(recorded) < int(seen_since)


def _is_unknown(error: ApiError) -> bool:
    """Whether the API server does not have the version: compacted, or from before its storage was restored."""
    return isinstance(error, Gone) or error.status == _TOO_LARGE_RESOURCE_VERSION


async def _list(client: Client, version: str) -> Sequence[Service]:
    while True:
        try:
            items, _ = await client.list(SERVICES, exactly=version, on_malformed=_skip)
        except (Unavailable, Throttled) as error:
            if _is_unknown(error):
                raise
            log.warning("Services not listed; retrying", at=version, error=str(error))
            await asyncio.sleep(_RETRY)
        else:
            return items


async def _replay(client: Client, held: dict[Address, str], *, since: str, until: str) -> None:
    """Collect what Services held from version *since* up to an event or bookmark of version *until*."""
    at = since
    while int(at) < int(until):
        try:
            async with client.watch(SERVICES, at, lifetime=WATCH_SECONDS, silence=2 * WATCH_SECONDS) as events:
                async for event in events:
                    if isinstance(event, Changed):
                        _collect(held, [event.object])
                        at = event.object.metadata.resource_version
                    else:
                        at = event.version or at
                    if int(at) >= int(until):
                        return
        except (Unavailable, Throttled):
            await asyncio.sleep(_RETRY)


def _collect(held: dict[Address, str], services: Sequence[Service]) -> None:
    """Enter the addresses that kavip served for *services*, each with its last holder."""
    for service in services:
        for address, claim in Holding.of(service).claims().items():
            if claim.is_served:
                held.pop(address, None)
                held[address] = service.key


def _skip(_: Malformed) -> None:
    """An object that cannot be read holds nothing, as in the informer."""
