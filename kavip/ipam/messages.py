"""
The messages of ipam: why a Service cannot have an address, and what to do next, with numbers.

Every refusal of an address or of a pool is worded here, for conditions, Events and admission alike. The first 200
characters of a message stand alone, because kubectl cuts there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal, annotation_field, listed
from kavip.ipam.ledger.cooldown import CoolingAddress
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.sharing import why_not_shared
from kavip.ipam.ledger.usage import FamilyUsage
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILIES, FAMILY_NAMES, count_families
from kavip.ipam.request import Request, Terms
from kavip.names import Reason

Usages = Mapping[int, FamilyUsage]
"""The usage of each family that a pool has."""

MAX_POOLS: Final = 100
"""Pools that are evaluated for the sake of a message."""
LARGER_QUOTA: Final = "free one or ask for a larger quota"

_POOL_FIELD: Final = annotation_field(names.POOL_ANNOTATION)


def join_addresses(addresses: Sequence[Address]) -> str:
    """*addresses* as text: usually one or two, more only if another controller wrote the status."""
    return listed(addresses) if len(addresses) > len(FAMILIES) else " and ".join(map(str, addresses))


# --- a pool or address that the Service names -------------------------------------------------------------------------
def pool_not_found(request: Request, pools: Pools) -> Refusal:
    """The pool that the Service names does not exist or is not in force."""
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
    """No pool has the address."""
    with_family = [pool for pool in pools.in_force if pool.has(address.family)]
    known = ", ".join(f"{pool.name} {listed(pool.usable_of(address.family))}" for pool in with_family[:SHOWN])
    more = f" and {len(with_family) - SHOWN} more" if len(with_family) > SHOWN else ""
    hint = f"pools: {known}{more}" if known else f"no pool has {FAMILY_NAMES[address.family]} addresses"
    return Refusal(Reason.ADDRESS_NOT_IN_POOL, f"address {address} is in no pool; {hint}", request.field_of(address))


def not_in_named_pool(address: Address, pool: Pool, request: Request) -> Refusal:
    """The Service requests an address of *pool*, and names another pool."""
    message = (
        f"address {address} is in pool {pool.name}, not in pool {request.pool} that {names.POOL_ANNOTATION} names; "
        "change one of the two"
    )
    return Refusal(Reason.ADDRESS_NOT_IN_POOL, message, request.field_of(address))


def two_pools(one: Address, other: Address, pools: tuple[Pool, Pool], request: Request) -> Refusal:
    """The Service requests addresses of two pools; both families must come from one."""
    message = (
        f"address {one} is in pool {pools[0].name} and {other} in pool {pools[1].name}; ask for addresses of one pool"
    )
    return Refusal(Reason.ADDRESS_NOT_ALLOWED, message, request.field_of(other))


def pool_does_not_serve(pool: Pool, why: str, request: Request) -> Refusal:
    """The selectors of the pool that the Service chooses do not match it."""
    field = _POOL_FIELD if request.pool else request.field_of(request.wanted[0])
    return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"pool {pool.name} {why}; name another pool", field)


def barred(address: Address, why: str, request: Request) -> Refusal:
    """The pool of the address does not assign it to this Service."""
    return Refusal(Reason.ADDRESS_NOT_ALLOWED, f"address {address} {why}; ask for another", request.field_of(address))


def owned(address: Address, owner: str, request: Request) -> Refusal:
    """A node, the API server or a group has the address itself."""
    is_vip = owner.startswith(f"{names.KEEPALIVED_GROUP} ")
    reason = Reason.ADDRESS_IN_USE if is_vip else Reason.ADDRESS_NOT_ALLOWED
    what = "is a virtual IP of" if is_vip else "is an address of"
    return Refusal(reason, f"address {address} {what} {owner}; ask for another", request.field_of(address))


def in_use(address: Address, holder: Terms, request: Request) -> Refusal:
    """Another Service has the address."""
    field = request.field_of(address)
    if request.terms.sharing is None:
        remedy = f"ask for another or share it with {names.SHARING_KEY_ANNOTATION}"
        if holder.namespace != request.namespace:
            remedy = "ask for another"
        return Refusal(Reason.ADDRESS_IN_USE, f"address {address} is used by {holder}; {remedy}", field)
    why = why_not_shared(request.terms, holder)
    message = f"address {address} is used by {holder} and cannot be shared: {why}; ask for another"
    return Refusal(Reason.SHARING_REFUSED, message, field)


def cooling_down(address: Address, entry: CoolingAddress, request: Request) -> Refusal:
    """The address stays reserved for its previous Service for a while."""
    message = f"address {address} {entry}; wait until then, or ask for another"
    return Refusal(Reason.ADDRESS_IN_USE, message, request.field_of(address), is_temporary=True)


def no_longer_shared(address: Address, other: Terms, request: Request) -> Refusal:
    """An edit would end the sharing of the address."""
    why = why_not_shared(request.terms, other)
    message = (
        f"address {address} is shared with {other}, and this edit would end that: {why}; change the edit, or request "
        f"another address with {names.ADDRESSES_ANNOTATION} in the same edit"
    )
    return Refusal(Reason.SHARING_REFUSED, message, annotation_field(names.SHARING_KEY_ANNOTATION))


def quota_exceeded(pool: Pool, request: Request, ledger: Ledger) -> Refusal:
    """The namespace holds as many addresses of the pool as it may."""
    field = _POOL_FIELD if request.pool else request.field_of(request.wanted[0]) if request.wanted else ""
    return Refusal(Reason.QUOTA_EXCEEDED, f"{_describe_quota(pool, request, ledger)}; {LARGER_QUOTA}", field)


def with_alternatives(refusal: Refusal, pools: Iterable[Pool]) -> Refusal:
    """*refusal* with the *pools* that would serve the Service if it named them."""
    found = listed(pool.name for pool in pools)
    return replace(refusal, message=f"{refusal.message}; pools that would serve: {found}") if found else refusal


# --- no pool, no address ----------------------------------------------------------------------------------------------
def no_address(
    request: Request,
    families: Sequence[int],
    *,
    pools: Sequence[Pool],
    ledger: Ledger,
    others: Sequence[tuple[Pool, str]] = (),
) -> Refusal:
    """
    None of *pools*, which serve the Service, has an address of each of *families* for it.

    *families*: one for each address. *others*: pools that have free addresses and do not serve it, each with the cause.
    """
    evaluated, needs = pools[:MAX_POOLS], count_families(families)
    able, lacking = _partition(evaluated, lambda pool: pool.families >= needs.keys())
    if not request.require_all and not able:  # PreferDualStack accepts any family
        able, lacking = _partition(evaluated, lambda pool: not pool.families.isdisjoint(needs))
    usages = {pool.name: ledger.usage(pool.name) for pool in able}
    at_quota, full = _partition(able, lambda pool: _has_free(usages[pool.name], needs))
    texts = [f"pool {pool.name} {_describe_lack(pool.name, usages[pool.name], needs, ledger)}" for pool in full[:SHOWN]]
    texts += [_describe_quota(pool, request, ledger) for pool in at_quota[: SHOWN - len(texts)]]
    texts += [
        f"pool {pool.name} has no {_lacking_families(pool, needs)} addresses" for pool in lacking[: SHOWN - len(texts)]
    ]
    with_free = [f"{which} {'has' if one else 'have'} room but {why}" for which, why, one in _by_cause(others)]
    text = "; ".join((_join(texts, more=len(pools) - len(texts)), *with_free))
    is_named = bool(request.pool or request.wanted)
    field = _POOL_FIELD if request.pool else ""
    if full:
        remedy = f"free an address or enlarge {'the pool' if len(full) == 1 else 'one of them'}"
        return Refusal(Reason.POOL_EXHAUSTED, f"{text}; {remedy}", field)
    if at_quota:
        return Refusal(Reason.QUOTA_EXCEEDED, f"{text}; {LARGER_QUOTA}", field)
    remedy = "name a pool that has them" if is_named else "add them to a pool"
    if request.require_all and not is_named:
        remedy += " or change spec.ipFamilyPolicy"
    return Refusal(Reason.FAMILY_NOT_AVAILABLE, f"{text}; {remedy}", field or "spec.ipFamilyPolicy")


def _describe_lack(pool: str, usages: Usages, needs: Mapping[int, int], ledger: Ledger) -> str:
    """That *pool* is full, or has too few free addresses for *needs*, with the numbers."""
    is_full = any(family in usages and not usages[family].available for family in needs)
    text = f"{'is full' if is_full else 'has too few'}: {describe_full(pool, usages, needs, ledger)}"
    return text if is_full and max(needs.values()) == 1 else f"{text}; {sum(needs.values())} needed"


def describe_full(pool: str, usages: Usages, needs: Mapping[int, int], ledger: Ledger) -> str:
    """
    The numbers of the families of *pool* that have fewer free addresses than *needs*; "" if all have enough.

    *usages*: of its families; *needs*: how many addresses of each.
    """
    texts = []
    for family, usage in usages.items():
        if usage.available < needs.get(family, 0):
            kind = f"{FAMILY_NAMES[family]} " if len(needs) > 1 else ""
            kept_back = usage.total - usage.assigned - usage.cooling - usage.available
            withdrawn = ledger.cooldown.withdrawn(pool) if usage.cooling else ()
            taken = sum(each.address.family == family for each in withdrawn)
            rest = f", {usage.cooling - taken} cooling down (cooldownSeconds)" if usage.cooling > taken else ""
            rest += f", {taken} in use by other machines on the LAN" if taken else ""
            rest += f", {kept_back} kept back (reservations, nodes, groups, API server)" if kept_back > 0 else ""
            texts.append(f"{kind}{usage.assigned} of {usage.total} assigned{rest}")
    return " and ".join(texts)


def no_pool(request: Request, pools: Pools, namespace_labels: Mapping[str, str] | None) -> Refusal:
    """No pool serves a Service that names none."""
    if not pools.in_force and pools.problems:
        why = _join([f"pool {name} is not in force: {problem.message}" for name, problem in pools.problems.items()])
        return Refusal(Reason.NO_POOL, f"{why}; fix it")
    if not pools.in_force:
        return Refusal(Reason.NO_POOL, "there is no VIPPool; create one")
    automatic = [pool for pool in pools.in_force if pool.auto_assign]
    others = (pool for pool in pools.in_force if not pool.auto_assign)
    causes = [(pool, pool.mismatch(request, namespace_labels)) for pool in islice(others, MAX_POOLS)]
    by_name = listed(pool.name for pool, why in causes if not why)
    remedy = f"name one with {names.POOL_ANNOTATION}: {by_name}" if by_name else "let a pool select it or add one"
    if automatic:
        evaluated = [(pool, pool.mismatch(request, namespace_labels)) for pool in automatic[:MAX_POOLS]]
        text = _describe_causes(evaluated, more=len(automatic) - len(evaluated))
        return Refusal(Reason.POOL_SELECTOR_MISMATCH, f"{text}; {remedy}")
    text = "no pool has autoAssign: true"
    return Refusal(Reason.NO_POOL, f"{text}; {remedy}" if by_name else f"{text}; {_describe_causes(causes)}; {remedy}")


# --- parts of messages ------------------------------------------------------------------------------------------------
def _by_cause(pools: Iterable[tuple[Pool, str]]) -> Iterator[tuple[str, str, bool]]:
    """The pools grouped by cause: their names, the cause, and whether it is one pool."""
    causes: dict[str, list[str]] = {}
    for pool, why in pools:
        causes.setdefault(why, []).append(pool.name)
    for why, found in causes.items():
        is_one = len(found) == 1
        yield f"pool{'' if is_one else 's'} {listed(found)}", why, is_one


def _describe_causes(pools: Sequence[tuple[Pool, str]], *, more: int = 0) -> str:
    """Why each of *pools* does not serve the Service, and that so many *more* do not either."""
    texts = [f"{which} {why}" for which, why, _ in _by_cause(pools)]
    rest = f"; and {more} more pools do not either" if more else ""
    return _join(texts) + rest


def _partition(pools: Iterable[Pool], matches: Callable[[Pool], bool]) -> tuple[list[Pool], list[Pool]]:
    """The *pools* that match, and the others."""
    found: tuple[list[Pool], list[Pool]] = [], []
    for pool in pools:
        found[0 if matches(pool) else 1].append(pool)
    return found


def _has_free(usages: Usages, needs: Mapping[int, int]) -> bool:
    return all(usages[family].available >= number for family, number in needs.items() if family in usages)


def _lacking_families(pool: Pool, families: Iterable[int]) -> str:
    return " or ".join(FAMILY_NAMES[family] for family in families if not pool.has(family))


def _describe_quota(pool: Pool, request: Request, ledger: Ledger) -> str:
    held = ledger.offers.quota_held(pool, request.namespace)
    going = ledger.count_leaving(pool, request.namespace)
    leaving = f", {going} of them with Services that are being deleted" if going else ""
    has = f"namespace {request.namespace} has {held} of {pool.max_per_namespace} addresses"
    is_left = ledger.offers.quota_left(pool, request.namespace)
    total = request.number * len(request.families)
    who = "both families need" if request.number == 1 else "the Service requests"
    needs = f", and {who} {total}" if is_left else ""
    return f"{has} of pool {pool.name} (maxPerNamespace){leaving}{needs}"


def _join(texts: Sequence[str], *, more: int = 0) -> str:
    rest = max(len(texts) - SHOWN, 0) + more
    return "; ".join(texts[:SHOWN]) + (f"; and {rest} more pools" if rest > 0 else "")
