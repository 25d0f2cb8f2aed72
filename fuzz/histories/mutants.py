"""
Controllers that are broken on purpose, one rule each: the histories must find every one of them.

What cannot fail proves nothing: this is how each judgement is seen to fail on the defect that it is for.
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
    """Whatever *target* is called with, it does nothing."""
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
    """Nobody is kept from an address at rest."""
    with patch.object(PoolUsage, "cool", PoolUsage.free), patch.object(Cooldown, "blocking", lambda *_: None):
        yield


_OF_POOL: Final = enqueue._of_pool  # noqa: SLF001 - what is put in its place asks it

MUTANTS: Final[Mapping[str, Break]] = {
    "a write under way is not remembered": _ignored("kavip.ipam.ledger.ledger.Ledger.expect"),
    "a write that timed out counts as not done": _set("kavip.controller.worker.Rejected", ApiError),
    "what is freed stays taken": _ignored("kavip.ipam.ledger.usage.PoolUsage.free"),
    "what rests is free": _free_at_rest,
    "whoever has an address keeps it": _set("kavip.ipam.ledger.claims.holders", _all_in_status),
    "an address stays only while its pool would give it": _set("kavip.ipam.selection.Selection.may_stay", _fits),
    "a key shares whatever the ports": _set("kavip.ipam.ledger.sharing.SharingIndex.fits", _has_key),
    "a node's own address is given away": _ignored("kavip.ipam.ledger.ledger.Ledger.reserve"),
    "nobody is woken for what is freed": _ignored("kavip.ipam.ledger.ledger.Ledger.drain_requeues", value=()),
    "a pool wakes no Service": _set("kavip.reconcile.enqueue._of_pool", _only_pools),
    "a namespace wakes no Service": _ignored("kavip.reconcile.enqueue._services_of", value=()),
    "every status that comes is an echo": _set("kavip.reconcile.enqueue.is_own_write", _is_anything),
}
