"""
The output of ``kavip explain``: aligned text for people, JSON for programs.
"""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kavip.api import conditions
from kavip.api.meta import Condition
from kavip.api.text import printable
from kavip.cli.views.explain import Advice, ServiceReport
from kavip.cli.views.noderanks import NodeRank, sentence
from kavip.cli.views.places import AddressPlace
from kavip.ipam.explain import ExplainedAddress, ExplainedPool, Explanation, PoolRole, RuleResult
from kavip.ipam.ledger.usage import FamilyUsage
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.ipam.request import Request
from kavip.names import ConditionType

_MARKS: Final = {True: "ok", False: "NO", None: "-"}
_WIDTH: Final = 118
_LABEL: Final = 12
_MOST_POOLS: Final = 20  # in the text; a pool with an address for the Service is always shown


# --- text -------------------------------------------------------------------------------------------------------------
def text(report: ServiceReport) -> str:
    """*report* for people."""
    lines = [_headline(report), "", *_facts(report)]
    if report.explanation is not None:
        lines += ["", *_pools(report.explanation)]
    notes = [Advice(note) for note in report.notes]
    for title, items in (("What to do", report.advice), ("Note", notes)):
        if items:
            lines += ["", f"{title}:", *(line for item in items for line in _wrapped(item))]
    return "\n".join(map(printable, lines))


def _headline(report: ServiceReport) -> str:
    name = f"Service {report.service.key}"
    if report.unmanaged:
        return f"{name} is not managed by kavip: {report.unmanaged}"
    condition = report.decided or report.condition
    if condition is not None:
        return f"{name} {_outcome(report, condition)}"
    if own := ", ".join(map(str, report.service.external_addresses)):
        verb = "has" if report.service.metadata.uid else "would have"
        return f"{name} {verb} {own} (spec.externalIPs){_not_advertised(report)}"
    return f"{name} requests no address" if report.is_decided else f"{name}: kavip has not written its condition yet"


def _outcome(report: ServiceReport, condition: Condition) -> str:
    addresses = ", ".join(str(each) for each in _addresses(report))
    match condition.status:
        case "True" if report.condition == condition:
            return f"has {addresses or 'its addresses'} ({condition.reason}){_not_advertised(report)}"
        case "True":
            return f"would get {addresses or 'its addresses'} ({condition.reason})"
        case "False":
            return f"{f'keeps {addresses}, but' if addresses else 'has no address:'} {condition.reason}"
    return f"is left to another controller: {condition.reason}"


def _not_advertised(report: ServiceReport) -> str:
    """Why no node answers on the addresses, by the conditions of the Service; "" if one does."""
    problem = _advertised(report) or _programmed(report)
    return f", and is not advertised: {problem.reason}" if problem and problem.status != "True" else ""


def _programmed(report: ServiceReport) -> Condition | None:
    return conditions.find(report.service.status.conditions, ConditionType.SERVICE_PROGRAMMED)


def _advertised(report: ServiceReport) -> Condition | None:
    return conditions.find(report.service.status.conditions, ConditionType.ADVERTISED)


def _addresses(report: ServiceReport) -> Sequence[object]:
    """The addresses that it has or would get; host names are from another controller."""
    found = [had.address for had in report.explanation.addresses] if report.explanation else []
    return found or [entry.ip or entry.hostname for entry in report.service.status.load_balancer.ingress or ()]


def _facts(report: ServiceReport) -> Iterator[str]:
    if report.unmanaged:
        yield from _fact("status", ", ".join(map(str, _addresses(report))) or "no address")
    for refusal in report.refused:
        yield from _fact("refused", f"kubectl apply would be refused: {refusal}")
    if report.condition is not None:
        yield from _fact("condition", f"{_summary(report.condition)}: {report.condition.message}")
    elif not report.unmanaged and report.service.is_load_balancer and report.service.metadata.uid:
        yield from _fact("condition", f"{ConditionType.ADDRESS_ASSIGNED} is not written yet")
    if report.decided is not None and report.decided != report.condition:
        yield from _fact("decided now", f"{_summary(report.decided)}: {report.decided.message}")
    for label, each in (("programmed", _programmed(report)), ("advertised", _advertised(report))):
        if each:
            yield from _fact(label, f"{each.status} {each.reason}: {each.message}")
    if report.group:
        yield from _fact("group", f"{report.group} ({report.origin})")
    if report.explanation is not None:
        yield from _fact("requests", _requested(report.explanation.request))
        for had in report.explanation.addresses:
            yield from _fact("address", _had(had))
    for place in report.places:
        yield from _fact("interface", _place(place))
    if report.ranks:
        yield from _fact("nodes", sentence(report.ranks))


def _fact(label: str, value: str) -> list[str]:
    margin = f"  {label:<{_LABEL}} "
    return textwrap.wrap(
        value,
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=" " * len(margin),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _wrapped(item: Advice) -> list[str]:
    """A command stays on one line, to be copied."""
    if item.is_command:
        return [f"  {item.text}"]
    return textwrap.wrap(item.text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _summary(condition: Condition) -> str:
    return f"{condition.type.rpartition('/')[2]}={condition.status} {condition.reason}"


def _requested(request: Request) -> str:
    families = " and ".join(FAMILY_NAMES[family] for family in request.families)
    what = families if request.number == 1 else f"{request.number} addresses per family, {families}"
    parts = [f"{what}{', both or nothing' if request.require_all else ''}"]
    if request.wanted:
        parts.append(" and ".join(map(str, request.wanted)))
    parts.append(f"pool {request.pool}" if request.pool else "any pool")
    if request.terms.sharing:
        ports = ", ".join(f"{protocol}/{port}" for protocol, port in sorted(request.terms.ports))
        parts.append(f"sharing key {request.terms.sharing.key} with {ports}")
    if request.reassign:
        parts.append("a valid address in place of an invalid one (reassign)")
    return "; ".join(parts)


def _had(had: ExplainedAddress) -> str:
    text = f"{had.address}{f' of pool {had.pool}' if had.pool else ''}: {had.why}"
    if had.shared_with:
        text += f"; shared with {', '.join(had.shared_with)}"
    return f"{text}; {had.flaw}" if had.flaw else text


def _place(place: AddressPlace) -> str:
    text = f"{place.address} on {place.interface} (pool {place.pool})"
    return f"{text}; its gateway is {place.gateway} (routing table {place.table})" if place.gateway else text


def _pools(found: Explanation) -> Iterator[str]:
    if not found.pools:
        yield "There is no VIPPool."
        return
    are_tried = "are tried" if found.is_asked else "would be tried (none is tried now)"
    yield f"Pools, in the order in which they {are_tried}:"
    width = max(len(step.rule) for pool in found.pools for step in pool.rules)
    names = max(len(pool.name) for pool in found.pools)
    for number, pool in enumerate(found.pools, start=1):
        if number > _MOST_POOLS and pool.role not in (PoolRole.GIVES, PoolRole.HOLDS):
            continue
        rank = f"priority {pool.priority}" if pool.priority is not None else "-"
        yield f"  {number}. {pool.name:<{names}}  {rank:<12}  {pool.role}"
        for step in pool.rules:
            yield from _step(step, width)
    rest = Counter(pool.role for pool in found.pools[_MOST_POOLS:] if pool.role not in (PoolRole.GIVES, PoolRole.HOLDS))
    if rest:
        roles = ", ".join(f"{role} ({number})" for role, number in sorted(rest.items()))
        yield f"  and {rest.total()} more, which -o json shows: {roles}"


def _step(step: RuleResult, width: int) -> list[str]:
    margin = f"       {_MARKS[step.holds]:<2}  {step.rule:<{width}}  "
    return textwrap.wrap(
        step.text,
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=" " * len(margin),
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- JSON -------------------------------------------------------------------------------------------------------------
def data(report: ServiceReport) -> dict[str, Any]:
    """*report* for programs: one object, its lists in the order of the text."""
    found, metadata = report.explanation, report.service.metadata
    return {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "served": report.is_served,
        "group": report.group,
        "unmanaged": report.unmanaged,
        "refused": list(report.refused),
        "condition": _condition(report.condition),
        "decided": _condition(report.decided),
        "programmed": _condition(_programmed(report)),
        "advertised": _condition(_advertised(report)),
        "addresses": [_address(had) for had in found.addresses] if found else [],
        "interfaces": [_interface(place) for place in report.places],
        "nodes": [_rank(each) for each in report.ranks],
        "asks": _request(found.request) if found else None,
        "findings": [{"field": each.field, "message": each.message} for each in found.findings] if found else [],
        "asked": found.is_asked if found else False,
        "pools": [_pool(pool) for pool in found.pools] if found else [],
        "waits": list(report.waits),
        "helps": [each.text for each in report.advice],
        "notes": list(report.notes),
    }


def _condition(found: Condition | None) -> dict[str, str] | None:
    return {"status": found.status, "reason": found.reason, "message": found.message} if found else None


def _address(had: ExplainedAddress) -> dict[str, Any]:
    return {
        "address": str(had.address),
        "pool": had.pool,
        "why": had.why,
        "flaw": had.flaw,
        "sharedWith": list(had.shared_with),
    }


def _interface(place: AddressPlace) -> dict[str, Any]:
    return {**place._asdict(), "address": str(place.address)}


def _rank(rank: NodeRank) -> dict[str, Any]:
    return {
        "names": list(rank.nodes),
        "drainedBy": rank.drained_by,
        "preferred": rank.is_preferred,
        "weight": rank.weight,
    }


def _request(request: Request) -> dict[str, Any]:
    return {
        "families": [FAMILY_NAMES[family] for family in request.families],
        "count": request.number,
        "both": request.require_all,
        "addresses": [str(address) for address in request.wanted],
        "pool": request.pool,
        "sharingKey": request.terms.sharing.key if request.terms.sharing else "",
    }


def _pool(pool: ExplainedPool) -> dict[str, Any]:
    usage = {FAMILY_NAMES[family].lower(): _usage(each) for family, each in pool.usage.items()}
    rules = [{"rule": step.rule, "holds": step.holds, "text": step.text} for step in pool.rules]
    return {"name": pool.name, "priority": pool.priority, "role": str(pool.role), "rules": rules, **usage}


def _usage(usage: FamilyUsage) -> dict[str, int]:
    return dict(usage._asdict())
