"""
Mutants: controllers with one broken rule each. The histories must find every one.

A check that cannot fail proves nothing. Each mutant proves that a check fails on its defect.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final
from unittest.mock import patch

from kavip.errors import ApiError
from kavip.ipam.ledger.cooldown import Cooldown
from kavip.ipam.ledger.usage import PoolUsage
from kavip.reconcile import enqueue

Break = Callable[[], AbstractContextManager[Any]]


def _ignored(target: str, *, value: object = None) -> Break:
    """Replace *target* by a function that only returns *value*."""
    return lambda: patch(target, lambda *_, **__: value)


def _set(target: str, value: object) -> Break:
    return lambda: patch(target, value)


def _all_in_status(claims: Any) -> tuple[Any, ...]:
    return tuple(sorted((claim.terms for claim in claims if claim.in_status), key=lambda terms: terms.age))


def _only_pools(snapshot: Any, old: Any, new: Any) -> Any:
    return [key for key in _OF_POOL(snapshot, old, new) if key.kind == "pool"]


def _fits(selection: Any, address: Any, _: Any) -> bool:
    return bool(selection.ownership.fits(address))


def _has_key(_: Any, __: Any, terms: Any, **___: Any) -> bool:
    return terms.sharing is not None


def _is_anything(_: Any, before: Any, after: Any) -> bool:
    return before is not None and after is not None


@contextmanager
def _free_at_rest() -> Iterator[None]:
    """Ignore every cool-down."""
    with patch.object(PoolUsage, "cool", PoolUsage.free), patch.object(Cooldown, "blocking", lambda *_: None):
        yield


_OF_POOL: Final = enqueue._of_pool  # noqa: SLF001 - its replacement calls it

MUTANTS: Final[Mapping[str, Break]] = {
    "an open write is not recorded": _ignored("kavip.ipam.ledger.ledger.Ledger.expect"),
    "a write that timed out counts as not done": _set("kavip.controller.worker.Rejected", ApiError),
    "a freed address stays in use": _ignored("kavip.ipam.ledger.usage.PoolUsage.free"),
    "a cool-down is ignored": _free_at_rest,
    "every holder keeps its address": _set("kavip.ipam.ledger.claims.holders", _all_in_status),
    "an address stays only while its pool would give it": _set("kavip.ipam.selection.Selection.may_stay", _fits),
    "a sharing key ignores ports": _set("kavip.ipam.ledger.sharing.SharingIndex.fits", _has_key),
    "a node's own address is assigned": _ignored("kavip.ipam.ledger.ledger.Ledger.reserve"),
    "a freed address requeues no Service": _ignored("kavip.ipam.ledger.ledger.Ledger.drain_requeues", value=()),
    "a change of a pool enqueues no Service": _set("kavip.reconcile.enqueue._of_pool", _only_pools),
    "a change of a namespace enqueues no Service": _ignored("kavip.reconcile.enqueue._services_of", value=()),
    "every status change counts as an own write": _set("kavip.reconcile.enqueue.is_own_write", _is_anything),
}
