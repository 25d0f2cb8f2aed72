"""
The words of ipam: why an address is not to be had, what to do next, with numbers.

Every refusal of an address or of a pool is worded here, for conditions, Events and admission alike.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal, annotation_field, listed
from kavip.ipam.ledger.claims import why_not_shared
from kavip.ipam.ledger.cooldown import Rest
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILIES, FAMILY_NAMES
from kavip.ipam.request import Request, Terms
from kavip.names import Reason

LOOKED_AT: Final = 100  # pools, for the sake of a message
BY_NAME: Final = f"serves only on request (autoAssign: false; set {names.POOL_ANNOTATION})"
_LARGER_QUOTA: Final = "free one or ask for a larger quota"
_PLURAL: Final = {"does": "do", "serves": "serve"}

_POOL_FIELD: Final = annotation_field(names.POOL_ANNOTATION)


def addressed(addresses: Sequence[Address]) -> str:
    """Addresses in a row: one or two, unless somebody else wrote the status."""
    return listed(addresses) if len(addresses) > len(FAMILIES) else " and ".join(map(str, addresses))


def pool_not_found(request: Request, pools: Pools) -> Refusal:
    """The pool that the Service names is not in force."""
    problem = pools.problems.get(request.pool)
    if problem is not None:
        message = f'pool "{request.pool}" is not in force: {problem.message}'
    else:
        nearest = pools.nearest(request.pool)
        known = listed(pool.name for pool in pools.in_force)
        hint = f'did you mean "{nearest}"?' if nearest else f"pools: {known}" if known else "there are no pools"
        message = f'pool "{request.pool}" does not exist; {hint}'
    return Refusal(Reason.POOL_NOT_FOUND, message, _POOL_FIELD)


def not_in_pool(address: Address, request: Request, pools: Pools) -> Refusal:
    """An address that no pool has."""
    with_family = [pool for pool in pools.in_force if pool.has(address.family)]
    known = ", ".join(f"{pool.name} {listed(pool.usable_of(address.family))}" for pool in with_family[:SHOWN])
    rest = f" and {len(with_family) - SHOWN} more" if len(with_family) > SHOWN else ""
    where = f"pools: {known}{rest}" if known else f"no pool has {FAMILY_NAMES[address.family]} addresses"
    return Refusal(Reason.ADDRESS_NOT_IN_POOL, f"address {address} is in no pool; {where}", request.field_of(address))


def not_in_named_pool(address: Address, place: Pool, request: Request) -> Refusal:
    """An address of one pool, asked for together with the name of another."""
    message = (
        f"address {address} is in pool {place.name}, not in pool {request.pool} that {names.POOL_ANNOTATION} names; "
        "change one of the two"
    )
    return Refusal(Reason.ADDRESS_NOT_IN_POOL, message, request.field_of(address))


def two_pools(one: Address, other: Address, places: tuple[Pool, Pool], request: Request) -> Refusal:
    """Addresses of two pools; both families come from one."""
    message = (
        f"address {one} is in pool {places[0].name} and {other} in pool {places[1].name}; ask for addresses of one pool"
    )
    return Refusal(Reason.ADDRESS_NOT_ALLOWED, message, request.field_of(other))


def mismatch(pool: Pool, why: str, request: Request) -> Refusal:
    """The pool that the Service chose does not serve it."""
    field = _POOL_FIELD if request.pool else request.field_of(request.wanted[0])
    return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"pool {pool.name} {why}; name another pool", field)


def barred(address: Address, why: str, request: Request) -> Refusal:
    """An address that its pool keeps back."""
    return Refusal(Reason.ADDRESS_NOT_ALLOWED, f"address {address} {why}; ask for another", request.field_of(address))


def owned(address: Address, owner: str, request: Request) -> Refusal:
    """An address that a node, the API server or a group has itself."""
    is_vip = owner.startswith(f"{names.KEEPALIVED_GROUP} ")
    reason = Reason.ADDRESS_IN_USE if is_vip else Reason.ADDRESS_NOT_ALLOWED
    what = "is a virtual IP of" if is_vip else "is an address of"
    return Refusal(reason, f"address {address} {what} {owner}; ask for another", request.field_of(address))


def in_use(address: Address, holder: Terms, request: Request) -> Refusal:
    """An address that another Service has."""
    field = request.field_of(address)
    if request.terms.sharing is None:
        remedy = f"ask for another or share it with {names.SHARING_KEY_ANNOTATION}"
        if holder.namespace != request.namespace:
            remedy = "ask for another"
        return Refusal(Reason.ADDRESS_IN_USE, f"address {address} is used by {holder}; {remedy}", field)
    why = why_not_shared(request.terms, holder)
    message = f"address {address} is used by {holder} and cannot be shared: {why}; ask for another"
    return Refusal(Reason.SHARING_REFUSED, message, field)


def at_rest(address: Address, rest: Rest, request: Request) -> Refusal:
    """An address that its pool keeps for the Service that freed it."""
    message = f"address {address} {rest}; wait for it, or ask for another"
    return Refusal(Reason.ADDRESS_IN_USE, message, request.field_of(address), is_temporary=True)


def no_longer_shared(address: Address, fellow: Terms, request: Request) -> Refusal:
    """An edit that would end the sharing of an address."""
    why = why_not_shared(request.terms, fellow)
    message = (
        f"address {address} is shared with {fellow} and could not be any longer: {why}; undo that, or ask for another "
        f"address by {names.ADDRESSES_ANNOTATION} in the same edit"
    )
    return Refusal(Reason.SHARING_REFUSED, message, annotation_field(names.SHARING_KEY_ANNOTATION))


def quota(pool: Pool, request: Request, ledger: Ledger) -> Refusal:
    """A namespace that has all that it may have."""
    field = _POOL_FIELD if request.pool else request.field_of(request.wanted[0]) if request.wanted else ""
    return Refusal(Reason.QUOTA_EXCEEDED, f"{_quota(pool, request, ledger)}; {_LARGER_QUOTA}", field)


def elsewhere(refusal: Refusal, pools: Iterable[Pool]) -> Refusal:
    """*refusal* of the pool that the Service chose, with those that would serve it."""
    found = listed(pool.name for pool in pools)
    return replace(refusal, message=f"{refusal.message}; pools that would serve: {found}") if found else refusal


def no_room(
    request: Request,
    families: Sequence[int],
    *,
    pools: Sequence[Pool],
    ledger: Ledger,
    idle: Sequence[tuple[Pool, str]] = (),
) -> Refusal:
    """
    None of *pools*, which serve the Service, has an address of each of *families* for it.

    *idle*: pools that have room and do not serve it, each with the cause.
    """
    looked = pools[:LOOKED_AT]
    able, lacking = _parted(looked, lambda pool: all(map(pool.has, families)))
    if not request.require_all and not able:  # PreferDualStack takes any family
        able, lacking = _parted(looked, lambda pool: any(map(pool.has, families)))
    strained, full = _parted(able, lambda pool: _has_room(pool, families, ledger))
    texts = [f"pool {pool.name} is full: {fill(pool.name, families, ledger)}" for pool in full[:SHOWN]]
    texts += [_quota(pool, request, ledger) for pool in strained[: SHOWN - len(texts)]]
    texts += [
        f"pool {pool.name} has no {_families(pool, families)} addresses" for pool in lacking[: SHOWN - len(texts)]
    ]
    rooms = [f"{who} {'has' if one else 'have'} room but {why}" for who, why, one in _by_cause(idle)]
    text = "; ".join((_joined(texts, more=len(pools) - len(texts)), *rooms))
    is_named = bool(request.pool or request.wanted)
    field = _POOL_FIELD if request.pool else ""
    if full:
        remedy = f"free an address or enlarge {'the pool' if len(full) == 1 else 'one of them'}"
        return Refusal(Reason.POOL_EXHAUSTED, f"{text}; {remedy}", field)
    if strained:
        return Refusal(Reason.QUOTA_EXCEEDED, f"{text}; {_LARGER_QUOTA}", field)
    remedy = "name a pool that has them" if is_named else "add them to a pool"
    if request.require_all and not is_named:
        remedy += " or change spec.ipFamilyPolicy"
    return Refusal(Reason.FAMILY_NOT_AVAILABLE, f"{text}; {remedy}", field or "spec.ipFamilyPolicy")


def fill(pool: str, families: Sequence[int], ledger: Ledger) -> str:
    """How full *pool* is in those of *families* that have nothing left; "" where all have."""
    texts = []
    for family, usage in ledger.usage(pool).items():
        if family in families and not usage.available:
            kind = f"{FAMILY_NAMES[family]} " if len(families) > 1 else ""
            kept = usage.total - usage.assigned - usage.cooling
            rest = f", {usage.cooling} at rest (cooldownSeconds)" if usage.cooling else ""
            rest += f", {kept} kept for others (reservations, nodes, groups, API server)" if kept > 0 else ""
            texts.append(f"{kind}{usage.assigned} of {usage.total} assigned{rest}")
    return " and ".join(texts)


def no_pool(request: Request, pools: Pools, namespace_labels: Mapping[str, str] | None) -> Refusal:
    """No pool serves the Service without being named."""
    if not pools.in_force and pools.problems:
        why = _joined([f"pool {name} is not in force: {problem.message}" for name, problem in pools.problems.items()])
        return Refusal(Reason.NO_POOL, f"{why}; mend it")
    if not pools.in_force:
        return Refusal(Reason.NO_POOL, "there is no VIPPool; create one")
    automatic = [pool for pool in pools.in_force if pool.auto_assign]
    others = (pool for pool in pools.in_force if not pool.auto_assign)
    causes = [(pool, pool.mismatch(request, namespace_labels)) for pool in islice(others, LOOKED_AT)]
    by_name = listed(pool.name for pool, why in causes if not why)
    remedy = f"name one with {names.POOL_ANNOTATION}: {by_name}" if by_name else "let a pool select it or add one"
    if automatic:
        shown = [(pool, pool.mismatch(request, namespace_labels)) for pool in automatic[:LOOKED_AT]]
        text = _caused(shown, more=len(automatic) - len(shown))
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"{text}; {remedy}")
    text = "no pool has autoAssign: true"
    return Refusal(Reason.NO_POOL, f"{text}; {remedy}" if by_name else f"{text}; {_caused(causes)}; {remedy}")


def _by_cause(pools: Iterable[tuple[Pool, str]]) -> Iterator[tuple[str, str, bool]]:
    """Pools with the same cause together: which they are, the cause as it follows them, and whether it is one pool."""
    causes: dict[str, list[str]] = {}
    for pool, why in pools:
        causes.setdefault(why, []).append(pool.name)
    for why, found in causes.items():
        if len(found) == 1:
            yield f"pool {found[0]}", why, True
        else:
            verb, _, rest = why.partition(" ")
            yield f"pools {listed(found)}", f"{_PLURAL[verb]} {rest}", False


def _caused(pools: Sequence[tuple[Pool, str]], *, more: int = 0) -> str:
    """Why each of *pools* does not serve the Service, and that so many *more* do not."""
    texts = [f"{who} {why}" for who, why, _ in _by_cause(pools)]
    rest = f"; and {more} more pools do not either" if more else ""
    return _joined(texts) + rest


def _parted(pools: Iterable[Pool], is_so: Callable[[Pool], bool]) -> tuple[list[Pool], list[Pool]]:
    """Those of *pools* of which something is so, and the others."""
    found: tuple[list[Pool], list[Pool]] = [], []
    for pool in pools:
        found[0 if is_so(pool) else 1].append(pool)
    return found


def _has_room(pool: Pool, families: Sequence[int], ledger: Ledger) -> bool:
    usage = ledger.usage(pool.name)
    return all(usage[family].available for family in families if family in usage)


def _families(pool: Pool, families: Sequence[int]) -> str:
    return " or ".join(FAMILY_NAMES[family] for family in families if not pool.has(family))


def _quota(pool: Pool, request: Request, ledger: Ledger) -> str:
    held = ledger.quota_held(pool, request.namespace)
    going = ledger.leaving(pool, request.namespace)
    leaving = f", {going} of them with Services that are being deleted" if going else ""
    has = f"namespace {request.namespace} has {held} of {pool.max_per_namespace} addresses"
    needs = f", and both families need {len(request.families)}" if ledger.quota_left(pool, request.namespace) else ""
    return f"{has} of pool {pool.name} (maxPerNamespace){leaving}{needs}"


def _joined(texts: Sequence[str], *, more: int = 0) -> str:
    rest = max(len(texts) - SHOWN, 0) + more
    return "; ".join(texts[:SHOWN]) + (f"; and {rest} more pools" if rest > 0 else "")
