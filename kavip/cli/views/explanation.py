"""
What ``kavip explain`` prints: aligned text for people, JSON for programs; the same every time.
"""

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kavip.admission.text import printable
from kavip.api import conditions
from kavip.api.meta import Condition
from kavip.cli.views.explain import Report
from kavip.ipam.explain import Explanation, Had, Looked, Role, Step
from kavip.ipam.ledger.usage import Usage
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.ipam.request import Request
from kavip.names import Condition as ConditionType

_MARKS: Final = {True: "ok", False: "NO", None: "-"}
_WIDTH: Final = 118
_LABEL: Final = 12
_MOST: Final = 20  # pools in the text; the one that matters is always there


# --- explain, text ----------------------------------------------------------------------------------------------------
def text(report: Report) -> str:
    """*report* for people."""
    lines = [_headline(report), "", *_facts(report)]
    if report.explanation is not None:
        lines += ["", *_pools(report.explanation)]
    for title, items in (("What helps", report.steps), ("Note", report.notes)):
        if items:
            lines += ["", f"{title}:", *(line for item in items for line in _wrapped(item))]
    return "\n".join(map(printable, lines))


def _headline(report: Report) -> str:
    name = f"Service {report.service.key}"
    if report.unmanaged:
        return f"{name} is not managed by kavip: {report.unmanaged}"
    told = report.decided or report.told
    has = ", ".join(str(each) for each in _addresses(report))
    match told.status if told else "":
        case "True":
            verb, rest = ("has", _in_vain(report)) if report.told == told else ("would get", "")
            return f"{name} {verb} {has or 'its addresses'} ({told.reason if told else ''}){rest}"
        case "False":
            return f"{name} {f'keeps {has}, but' if has else 'has no address:'} {told.reason if told else ''}"
        case "Unknown":
            return f"{name} is left to somebody else: {told.reason if told else ''}"
    if own := ", ".join(map(str, report.service.external_addresses)):
        verb = "has" if report.service.metadata.uid else "would have"
        return f"{name} {verb} {own} (spec.externalIPs){_in_vain(report)}"
    return f"{name} asks kavip for no address" if report.is_decided else f"{name}: kavip has said nothing about it yet"


def _in_vain(report: Report) -> str:
    """That nobody answers on the addresses, as far as the Service says it."""
    trouble = _advertised(report) or _programmed(report)
    return f", and is not advertised: {trouble.reason}" if trouble and trouble.status != "True" else ""


def _programmed(report: Report) -> Condition | None:
    return conditions.find(report.service.status.conditions, ConditionType.SERVICE_PROGRAMMED)


def _advertised(report: Report) -> Condition | None:
    return conditions.find(report.service.status.conditions, ConditionType.ADVERTISED)


def _addresses(report: Report) -> Sequence[object]:
    """What it has or would get; host names are another controller's."""
    found = [had.address for had in report.explanation.addresses] if report.explanation else []
    return found or [entry.ip or entry.hostname for entry in report.service.status.load_balancer.ingress or ()]


def _facts(report: Report) -> Iterator[str]:
    if report.unmanaged:
        yield from _fact("status", ", ".join(map(str, _addresses(report))) or "no address")
    for refusal in report.refused:
        yield from _fact("refused", f"kubectl apply would say: {refusal}")
    if report.told is not None:
        yield from _fact("condition", f"{_summary(report.told)}: {report.told.message}")
    elif not report.unmanaged and report.service.is_load_balancer and report.service.metadata.uid:
        yield from _fact("condition", f"{ConditionType.ADDRESS_ASSIGNED} is not written yet")
    if report.decided is not None and report.decided != report.told:
        yield from _fact("decided now", f"{_summary(report.decided)}: {report.decided.message}")
    for label, each in (("programmed", _programmed(report)), ("advertised", _advertised(report))):
        if each:
            yield from _fact(label, f"{each.status} {each.reason}: {each.message}")
    if report.group:
        declared = report.service.declared_group
        yield from _fact("group", f"{report.group} ({'by annotation' if declared else 'the default one'})")
    if report.explanation is not None:
        yield from _fact("asks for", _asked(report.explanation.request))
        for had in report.explanation.addresses:
            yield from _fact("address", _had(had))


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


def _wrapped(item: str) -> list[str]:
    """A command stays on its line, to be copied."""
    if item.startswith("kubectl "):
        return [f"  {item}"]
    return textwrap.wrap(item, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _summary(condition: Condition) -> str:
    return f"{condition.type.rpartition('/')[2]}={condition.status} {condition.reason}"


def _asked(request: Request) -> str:
    families = " and ".join(FAMILY_NAMES[family] for family in request.families)
    parts = [f"{families}{', both or nothing' if request.require_all else ''}"]
    if request.wanted:
        parts.append(" and ".join(map(str, request.wanted)))
    parts.append(f"pool {request.pool}" if request.pool else "any pool")
    if request.terms.sharing:
        ports = ", ".join(f"{protocol}/{port}" for protocol, port in sorted(request.terms.ports))
        parts.append(f"sharing key {request.terms.sharing.key} with {ports}")
    if request.reassign:
        parts.append("a legal address in place of one that is not (reassign)")
    return "; ".join(parts)


def _had(had: Had) -> str:
    told = f"{had.address}{f' of pool {had.pool}' if had.pool else ''}: {had.why}"
    if had.fellows:
        told += f"; shared with {', '.join(had.fellows)}"
    return f"{told}; {had.flaw}" if had.flaw else told


def _pools(found: Explanation) -> Iterator[str]:
    if not found.pools:
        yield "There is no VIPPool."
        return
    why = "are tried" if found.asked else "would be tried (none is asked now)"
    yield f"Pools, in the order in which they {why}:"
    width = max(len(step.rule) for pool in found.pools for step in pool.steps)
    names = max(len(pool.name) for pool in found.pools)
    for number, pool in enumerate(found.pools, start=1):
        if number > _MOST and pool.role not in (Role.GIVES, Role.HOLDS):
            continue
        rank = f"priority {pool.priority}" if pool.priority is not None else "-"
        yield f"  {number}. {pool.name:<{names}}  {rank:<12}  {pool.role}"
        for step in pool.steps:
            yield from _step(step, width)
    rest = Counter(pool.role for pool in found.pools[_MOST:] if pool.role not in (Role.GIVES, Role.HOLDS))
    if rest:
        told = ", ".join(f"{role} ({number})" for role, number in sorted(rest.items()))
        yield f"  and {rest.total()} more, which -o json shows: {told}"


def _step(step: Step, width: int) -> list[str]:
    margin = f"       {_MARKS[step.holds]:<2}  {step.rule:<{width}}  "
    return textwrap.wrap(
        step.text,
        _WIDTH,
        initial_indent=margin,
        subsequent_indent=" " * len(margin),
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- explain, JSON ----------------------------------------------------------------------------------------------------
def data(report: Report) -> dict[str, Any]:
    """*report* for programs: one object, its lists in the order of the text."""
    found, metadata = report.explanation, report.service.metadata
    return {
        "namespace": metadata.namespace,
        "name": metadata.name,
        "served": report.is_served,
        "group": report.group,
        "unmanaged": report.unmanaged,
        "refused": list(report.refused),
        "condition": _condition(report.told),
        "decided": _condition(report.decided),
        "programmed": _condition(_programmed(report)),
        "advertised": _condition(_advertised(report)),
        "addresses": [_address(had) for had in found.addresses] if found else [],
        "asks": _request(found.request) if found else None,
        "findings": [{"field": each.field, "message": each.message} for each in found.findings] if found else [],
        "asked": found.asked if found else False,
        "pools": [_pool(pool) for pool in found.pools] if found else [],
        "waits": list(report.waits),
        "helps": list(report.steps),
        "notes": list(report.notes),
    }


def _condition(found: Condition | None) -> dict[str, str] | None:
    return {"status": found.status, "reason": found.reason, "message": found.message} if found else None


def _address(had: Had) -> dict[str, Any]:
    told = {"address": str(had.address), "pool": had.pool, "why": had.why, "flaw": had.flaw}
    return {**told, "sharedWith": list(had.fellows)}


def _request(request: Request) -> dict[str, Any]:
    return {
        "families": [FAMILY_NAMES[family] for family in request.families],
        "both": request.require_all,
        "addresses": [str(address) for address in request.wanted],
        "pool": request.pool,
        "sharingKey": request.terms.sharing.key if request.terms.sharing else "",
    }


def _pool(pool: Looked) -> dict[str, Any]:
    usage = {FAMILY_NAMES[family].lower(): _usage(each) for family, each in pool.usage.items()}
    rules = [{"rule": step.rule, "holds": step.holds, "text": step.text} for step in pool.steps]
    return {"name": pool.name, "priority": pool.priority, "role": str(pool.role), "rules": rules, **usage}


def _usage(usage: Usage) -> dict[str, int]:
    return dict(usage._asdict())
