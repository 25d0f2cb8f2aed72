"""
Why a Service has its addresses, or none: pool by pool, rule by rule.

This module does not decide again. The outcome is that of :func:`.allocate.settle`, and each rule is evaluated by the
same predicates that the decision uses (:class:`.selection.Selection`, :class:`.pool.Pool`, the ledger); only the text
and the order are added. If the decision evaluates no pool, because nothing is missing or because the request fails
earlier, the rules have the results that a pool would have.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import SHOWN, Refusal, listed
from kavip.api.service import Service
from kavip.ipam import messages
from kavip.ipam.allocate import Allocation, settle, would_serve
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.usage import FamilyUsage
from kavip.ipam.ownership import Ownership
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILY_NAMES, count_families
from kavip.ipam.request import Request, read_request
from kavip.ipam.selection import Choice, Selection
from kavip.names import Reason

_MANY: Final = 10_000_000


class PoolRole(StrEnum):
    """What a pool does for a Service."""

    HOLDS = "holds"  # an address that the Service keeps
    GIVES = "gives"  # an address that the Service gets now
    COULD = "could serve"  # everything missing; another pool comes first, or nothing is missing
    PARTLY = "could serve a part"
    LACKS = "has nothing for it"  # would serve the Service if it had a free address
    CLOSED = "does not serve it"
    OFF = "not in force"


class RuleResult(NamedTuple):
    """The result of one *rule* of a pool: whether it *holds* (None if that decides nothing), and why."""

    rule: str
    holds: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class ExplainedPool:
    """One pool from the view of the Service; *usage* is empty if the pool is not in force."""

    name: str
    priority: int | None
    role: PoolRole
    rules: tuple[RuleResult, ...]
    usage: Mapping[int, FamilyUsage]


@dataclass(frozen=True, slots=True)
class ExplainedAddress:
    """
    One address that the Service has from now on, and *why*.

    *shared_with*: other Services that hold it. *flaw*: why it is no longer legal.
    """

    address: Address
    pool: str
    why: str
    shared_with: tuple[str, ...]
    flaw: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    The *outcome* of a decision, and its causes.

    *pools*: in the order in which they are tried, then those that are not in force. *is_asked*: whether the decision
    evaluated any pool. *others*: the pools that would serve the Service if it named them.
    """

    request: Request
    outcome: Allocation | Refusal
    findings: tuple[Refusal, ...]
    addresses: tuple[ExplainedAddress, ...]
    pools: tuple[ExplainedPool, ...]
    is_asked: bool
    others: tuple[str, ...]


def explain(
    service: Service,
    pools: Pools,
    ledger: Ledger,
    *,
    group: str | None = None,
    namespace_labels: Mapping[str, str] | None = None,
) -> Explanation:
    """What :func:`.allocate.settle` decides for *service*, and why; *ledger* must be configured with *pools*."""
    outcome = settle(service, pools, ledger, group=group, namespace_labels=namespace_labels)
    request, findings = read_request(service, group=group)
    ownership = Ownership.of(request, pools, ledger, namespace_labels)
    view = _PoolView.of(ownership, outcome, is_readable=not findings)
    explained = [view.explain(pool) for pool in pools.in_force]
    explained += [
        ExplainedPool(name, None, PoolRole.OFF, (RuleResult("in force", False, problem.message),), {})
        for name, problem in pools.problems.items()
    ]
    lacks = isinstance(outcome, Refusal) or outcome.refusal is not None
    others = would_serve(request, pools, ledger, namespace_labels=namespace_labels) if lacks and not findings else ()
    has = () if isinstance(outcome, Refusal) else outcome.addresses
    is_foreign = outcome.reason is Reason.FOREIGN_STATUS
    addresses = tuple(_explain_address(ownership, each, is_foreign=is_foreign) for each in has)
    return Explanation(request, outcome, findings, addresses, tuple(explained), view.is_asked, tuple(others))


def format_count(number: int) -> str:
    """*number*, or a lower bound for very large ones."""
    return str(number) if number < _MANY else f"over {_MANY // 1_000_000} million"


def _explain_address(ownership: Ownership, address: Address, *, is_foreign: bool) -> ExplainedAddress:
    pool, request, ledger = ownership.pools.pool_of(address), ownership.request, ownership.ledger
    shared_with = tuple(terms.key for terms in ledger.claims.holders(address) if terms.key != request.key)
    if is_foreign:
        why = "written by another controller"
    elif address in request.wanted:
        why = "requested by name"
    elif address in ownership.held:
        why = "held already; kavip moves no address without cause"
    elif pool is not None and address in pool.reserved_for(request.key):
        why = "reserved for this Service"
    elif address in ledger.cooldown.freed_by(request.key):
        why = "this Service had it before, and it cools down for all others"
    elif shared_with:
        why = f"shared under {names.SHARING_KEY_ANNOTATION}"
    else:
        first = "the first free address" if request.number == 1 else "a free address"
        why = f"{first} of pool {pool.name if pool else ''}"
    return ExplainedAddress(address, pool.name if pool else "", why, shared_with, ownership.flaw(address))


@dataclass(frozen=True, slots=True)
class _PoolView:
    """
    A decision from the view of the pools.

    An address of each of *families* is requested of them, besides the addresses that *stay*.
    """

    selection: Selection
    families: Sequence[int]
    stay: tuple[Address, ...]
    is_asked: bool
    keeping: frozenset[str]  # pools of addresses that the Service keeps
    giving: frozenset[str]  # pools of addresses that it gets

    @classmethod
    def of(cls, ownership: Ownership, outcome: Allocation | Refusal, *, is_readable: bool) -> "_PoolView":
        """*is_readable*: whether the request has no findings."""
        selection, request = Selection(ownership), ownership.request
        chosen = selection.chosen_pool()
        stay = selection.staying(None if isinstance(chosen, Refusal) else chosen)
        missing = request.lacking(stay)
        has = () if isinstance(outcome, Refusal) else outcome.addresses
        is_foreign = isinstance(outcome, Allocation) and outcome.reason is Reason.FOREIGN_STATUS
        return cls(
            selection,
            missing or request.lacking(()),
            stay if missing else (),
            is_readable and bool(missing) and not is_foreign and not isinstance(chosen, Refusal),
            frozenset(ownership.pool_names(each for each in has if each in ownership.held)),
            frozenset(ownership.pool_names(each for each in has if each not in ownership.held)),
        )

    def explain(self, pool: Pool) -> ExplainedPool:
        """The result of each rule of *pool*, and the role of the pool."""
        access = list(self._check_access(pool))
        is_open = all(rule.holds for rule in access)
        supply = list(self._check_supply(pool, is_open=is_open))
        could = next(filter(None, map(partial(self._take, pool), self.selection.choices(self.families, self.stay))), ())
        is_settled = pool.name in self.keeping and not self.is_asked
        if could or is_settled or not is_open:  # a lack decides nothing
            supply = [rule._replace(holds=rule.holds or None) for rule in supply]
        if pool.name in self.giving:
            role = PoolRole.GIVES
        elif pool.name in self.keeping:
            role = PoolRole.HOLDS
        elif not is_open:
            role = PoolRole.CLOSED
        elif could:
            role = PoolRole.COULD if len(could) == len(self.families) else PoolRole.PARTLY  # such as one family
        else:
            role = PoolRole.LACKS
        return ExplainedPool(pool.name, pool.priority, role, (*access, *supply), self.selection.ledger.usage(pool.name))

    def _take(self, pool: Pool, choice: Choice) -> tuple[Address, ...]:
        """The addresses of *choice* that the Service would take from *pool*."""
        got = self.selection.offer(pool, choice, self.stay) or ()
        return got if not self.is_asked or self.selection.accepts((*self.stay, *got)) else ()

    def _check_access(self, pool: Pool) -> Iterator[RuleResult]:
        """The rules that decide whether *pool* serves the Service at all."""
        request, labels = self.selection.request, self.selection.labels
        choice = list(self._check_choice(pool))
        yield from choice
        if not choice or (self.is_asked and not pool.auto_assign and not self.selection.pools.is_chosen(pool, request)):
            text = "true" if pool.auto_assign else "false: only for Services that name the pool or an address in it"
            yield RuleResult("autoAssign", pool.auto_assign, text)
        for rule, why, is_given in (
            ("groups", pool.group_mismatch(request), pool.groups),
            ("namespaceSelector", pool.namespace_mismatch(request, labels), pool.namespaces is not None),
            ("serviceSelector", pool.service_mismatch(request), pool.services is not None),
        ):
            if is_given:
                yield RuleResult(rule, not why, why or _describe_match(rule, request))

    def _check_choice(self, pool: Pool) -> Iterator[RuleResult]:
        """Whether *pool* is the one that the Service chooses; nothing if it leaves the choice to kavip."""
        request, home = self.selection.request, self.selection.pool_of_stay(self.stay)
        other = f"its other address, {messages.join_addresses(self.stay)}, is in"
        if home is not None:
            is_home = home is pool
            yield RuleResult("one pool", is_home, f"{other} {'this pool' if is_home else f'pool {home.name}'}")
            return
        if request.pool:
            is_named = request.pool == pool.name
            text = names.POOL_ANNOTATION if is_named else f"the Service names {request.pool}"
            yield RuleResult("named", is_named, text)
        for address in request.wanted:
            is_here = self.selection.pools.pool_of(address) is pool
            yield RuleResult("address", is_here, f"{address} is {'in' if is_here else 'not in'} this pool")
        if self.stay and not (request.pool or request.wanted):
            yield RuleResult("one pool", False, f"{other} no pool")

    def _check_supply(self, pool: Pool, *, is_open: bool) -> Iterator[RuleResult]:
        """The addresses and the quota that *pool* has for the Service."""
        request, ledger = self.selection.request, self.selection.ledger
        usage, offers, withdrawn = ledger.usage(pool.name), [], ledger.cooldown.withdrawn(pool.name)
        for family, number in count_families(self.families).items():
            offer = ledger.offers.offer(pool, family, request, number, beside=self.stay)
            is_enough = len(offer) == number
            offers.append(is_enough)
            wanted = [each for each in request.wanted_of(family) if each not in self.stay]
            here = [each for each in wanted if self.selection.pools.pool_of(each) is pool]
            refusal = self.selection.refuse_requested(pool, (family,), beside=self.stay) if here else None
            for address in here:
                yield RuleResult(str(address), address in offer, refusal.message if refusal else "is available")
            if here and number == len(wanted):
                continue
            if family in usage:
                taken = sum(each.address.family == family for each in withdrawn)
                text = _describe_usage(usage[family], offer if is_open and self.is_asked else (), number, taken)
                yield RuleResult(FAMILY_NAMES[family], is_enough, text)
            else:
                yield RuleResult(FAMILY_NAMES[family], False, "the pool has no addresses of this family")
        left = ledger.offers.quota_left(pool, request.namespace)
        if left is not None and pool.max_per_namespace is not None:
            everything = Choice(tuple(self.families))
            is_enough = left > 0 if not all(offers) else self.selection.offer(pool, everything, self.stay) is not None
            held = pool.max_per_namespace - left
            text = f"namespace {request.namespace} holds {held} of {pool.max_per_namespace}"
            yield RuleResult("maxPerNamespace", is_enough, text)
        if withdrawn:
            texts = [f"{each.address} {each}" for each in withdrawn[:SHOWN]]
            texts += [f"and {len(withdrawn) - SHOWN} more"] if len(withdrawn) > SHOWN else []
            yield RuleResult("conflictDetection", None, "; ".join(texts))


def _describe_match(rule: str, request: Request) -> str:
    match rule:
        case "groups":
            return f"serves KeepalivedGroup {request.group}"
        case "namespaceSelector":
            return f"selects namespace {request.namespace}"
    return f"selects the labels of Service {request.key}"


def _describe_usage(usage: FamilyUsage, offer: Sequence[Address], number: int, taken: int) -> str:
    """The numbers of a family; *number* addresses are needed, and *taken* ones are in use by other machines."""
    available, total, assigned = map(format_count, (usage.available, usage.total, usage.assigned))
    text = f"{available} of {total} free, {assigned} assigned"
    if usage.cooling > taken:
        text += f", {usage.cooling - taken} cooling down"
    if taken:
        text += f", {taken} in use by other machines on the LAN"
    if number > 1:
        text += f", {number} needed"
    return f"{text}; next for this Service: {listed(offer)}" if offer else text
