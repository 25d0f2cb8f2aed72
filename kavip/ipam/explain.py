"""
Why a Service has its addresses, or none: pool by pool, rule by rule.

Nothing is decided here a second time: the outcome is that of :func:`.allocate.settle`, and each rule is asked of the
very predicate that the decision asks (:class:`.case.Case`, :class:`.pool.Pool`, the ledger). What is added are words
and the order in which a reader wants them. Where no pool is asked, because nothing is missing or because the request
fails before that, the rules say what would be answered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from kavip import names
from kavip.api.address import Address
from kavip.api.refusal import Refusal
from kavip.api.service import Service
from kavip.ipam import messages
from kavip.ipam.allocate import Allocation, settle, would_serve
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.ledger.usage import Usage
from kavip.ipam.pool import Pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.ipam.request import Request, read_request
from kavip.ipam.selection import Case
from kavip.names import Reason

_MANY: Final = 10_000_000


class Role(StrEnum):
    """What a pool is to a Service."""

    HOLDS = "holds"  # an address that it keeps lies here
    GIVES = "gives"  # an address that it gets now comes from here
    COULD = "could serve"  # all that is asked for; another pool comes first, or nothing is missing
    PARTLY = "could serve one family"
    LACKS = "has nothing for it"  # would serve it, were there an address
    CLOSED = "does not serve it"
    OFF = "not in force"


class Step(NamedTuple):
    """One *rule* of a pool: whether it *holds*, None where that decides nothing, and why."""

    rule: str
    holds: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Looked:
    """One pool as the Service sees it. *usage*: family -> numbers; empty where the pool is not in force."""

    name: str
    priority: int | None
    role: Role
    steps: tuple[Step, ...]
    usage: Mapping[int, Usage]


@dataclass(frozen=True, slots=True)
class Had:
    """One address that the Service has from now on: *why*, with whom it is shared, and what speaks against it."""

    address: Address
    pool: str
    why: str
    fellows: tuple[str, ...]
    flaw: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """
    The *outcome* of a decision, and how it came about.

    *pools*: in the order in which they are tried, then those that are not in force. *asked*: whether any was asked, or
    they merely show what they would say. *others*: the pools that would serve the Service if it named them.
    """

    request: Request
    outcome: Allocation | Refusal
    findings: tuple[Refusal, ...]
    addresses: tuple[Had, ...]
    pools: tuple[Looked, ...]
    asked: bool
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
    case = Case.of(request, pools, ledger, namespace_labels)
    view = _View.of(case, outcome, asked=not findings)
    looked = [view.look(pool) for pool in pools.in_force]
    looked += [
        Looked(name, None, Role.OFF, (Step("in force", False, problem.message),), {})
        for name, problem in pools.problems.items()
    ]
    lacks = isinstance(outcome, Refusal) or outcome.refusal is not None
    others = would_serve(request, pools, ledger, namespace_labels=namespace_labels) if lacks and not findings else ()
    addresses = () if isinstance(outcome, Refusal) else tuple(_had(case, outcome, each) for each in outcome.addresses)
    return Explanation(request, outcome, findings, addresses, tuple(looked), view.asked, tuple(others))


def count(number: int) -> str:
    """*number*, as far as a reader cares."""
    return str(number) if number < _MANY else f"over {_MANY // 1_000_000} million"


def _had(case: Case, outcome: Allocation, address: Address) -> Had:
    pool, request = case.pools.pool_of(address), case.request
    fellows = tuple(terms.key for terms in case.ledger.holders(address) if terms.key != request.key)
    if outcome.reason is Reason.FOREIGN_STATUS:
        why = "written by another controller"
    elif address in request.wanted:
        why = "asked for by name"
    elif address in case.held:
        why = "held already, and no address moves without cause"
    elif pool is not None and address in pool.reserved_for(request.key):
        why = "reserved for this Service"
    elif address in case.ledger.rests.freed_by(request.key):
        why = "this Service had it before, and it cools down for all others"
    elif fellows:
        why = f"shared under {names.SHARING_KEY_ANNOTATION}"
    else:
        why = f"the first free address of pool {pool.name if pool else ''}"
    return Had(address, pool.name if pool else "", why, fellows, case.flaw(address))


@dataclass(frozen=True, slots=True)
class _View:
    """A decision as the pools see it: *families* are asked of them, beside what may *stay*."""

    case: Case
    families: Sequence[int]
    stay: tuple[Address, ...]
    asked: bool
    kept: frozenset[str]  # names of pools
    gave: frozenset[str]

    @classmethod
    def of(cls, case: Case, outcome: Allocation | Refusal, *, asked: bool) -> "_View":
        """*asked*: what the Service says could be read."""
        named = case.named_pool()
        stay = case.staying(None if isinstance(named, Refusal) else named)
        missing = case.missing(stay)
        has = () if isinstance(outcome, Refusal) else outcome.addresses
        is_foreign = isinstance(outcome, Allocation) and outcome.reason is Reason.FOREIGN_STATUS
        return cls(
            case,
            missing or case.request.families,
            stay if missing else (),
            asked and bool(missing) and not is_foreign and not isinstance(named, Refusal),
            frozenset(case.names_of(each for each in has if each in case.held)),
            frozenset(case.names_of(each for each in has if each not in case.held)),
        )

    def look(self, pool: Pool) -> Looked:
        """Each rule of *pool*, and what the pool is to the Service."""
        doors = list(self._doors(pool))
        is_open = all(step.holds for step in doors)
        stocks = list(self._stocks(pool, is_open=is_open))
        offers = (self.families, *self.case.less(self.families, self.stay))
        could = next((families for families in offers if self.case.serve(pool, families)), ())
        is_settled = pool.name in self.kept and not self.asked
        if could or is_settled or not is_open:  # what it lacks decides nothing
            stocks = [step._replace(holds=step.holds or None) for step in stocks]
        if pool.name in self.gave:
            role = Role.GIVES
        elif pool.name in self.kept:
            role = Role.HOLDS
        elif not is_open:
            role = Role.CLOSED
        elif could:
            role = Role.COULD if len(could) == len(self.families) else Role.PARTLY
        else:
            role = Role.LACKS
        return Looked(pool.name, pool.priority, role, (*doors, *stocks), self.case.ledger.usage(pool.name))

    def _doors(self, pool: Pool) -> Iterator[Step]:
        """Who may draw from *pool* at all."""
        request, labels = self.case.request, self.case.labels
        choice = list(self._choice(pool))
        yield from choice
        if not choice:
            text = "true" if pool.auto_assign else "false: only for Services that name it or an address in it"
            yield Step("autoAssign", pool.auto_assign, text)
        for rule, why, given in (
            ("groups", pool.group_mismatch(request), pool.groups),
            ("namespaceSelector", pool.namespace_mismatch(request, labels), pool.namespaces is not None),
            ("serviceSelector", pool.service_mismatch(request), pool.services is not None),
        ):
            if given:
                yield Step(rule, not why, why or _matched(rule, request))

    def _choice(self, pool: Pool) -> Iterator[Step]:
        """Whether *pool* is the one that the Service has chosen; nothing where it leaves the choice to kavip."""
        request, home = self.case.request, self.case.home(self.stay)
        rest = f"its other address, {messages.addressed(self.stay)}, is in"
        if home is not None:
            yield Step("one pool", home is pool, f"{rest} {'this pool' if home is pool else f'pool {home.name}'}")
            return
        if request.pool:
            is_named = request.pool == pool.name
            yield Step("named", is_named, names.POOL_ANNOTATION if is_named else f"the Service names {request.pool}")
        for address in request.wanted:
            place = self.case.pools.pool_of(address)
            yield Step("address", place is pool, f"{address} is {'in' if place is pool else 'not in'} this pool")
        if self.stay and not (request.pool or request.wanted):
            yield Step("one pool", False, f"{rest} no pool")

    def _stocks(self, pool: Pool, *, is_open: bool) -> Iterator[Step]:
        """What *pool* has for the Service."""
        request, ledger = self.case.request, self.case.ledger
        usage, offers = ledger.usage(pool.name), []
        for family in self.families:
            offer, wanted = ledger.offer(pool, family, request), request.wanted_of(family)
            offers.append(offer)
            if wanted is not None and self.case.pools.pool_of(wanted) is pool:
                refusal = self.case.wishes_refused(pool, (family,))
                yield Step(str(wanted), offer is not None, refusal.message if refusal else "may be had")
            elif family in usage:
                yield Step(
                    FAMILY_NAMES[family],
                    offer is not None,
                    _room(usage[family], offer if is_open and self.asked else None),
                )
            else:
                yield Step(FAMILY_NAMES[family], False, "the pool has no addresses of this family")
        left = ledger.quota_left(pool, request.namespace)
        if left is not None and pool.max_per_namespace is not None:
            is_enough = left > 0 if not all(offers) else self.case.serve(pool, self.families) is not None
            held = pool.max_per_namespace - left
            text = f"namespace {request.namespace} holds {held} of {pool.max_per_namespace}"
            yield Step("maxPerNamespace", is_enough, text)


def _matched(rule: str, request: Request) -> str:
    match rule:
        case "groups":
            return f"serves KeepalivedGroup {request.group}"
        case "namespaceSelector":
            return f"selects namespace {request.namespace}"
    return f"selects the labels of Service {request.key}"


def _room(usage: Usage, offer: Address | None) -> str:
    text = f"{count(usage.available)} of {count(usage.total)} free, {count(usage.assigned)} assigned"
    if usage.cooling:
        text += f", {usage.cooling} cooling down"
    return f"{text}; next for this Service: {offer}" if offer else text
