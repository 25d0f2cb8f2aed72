"""
The page of one Service: its way from the annotations to the wire, step by step, with the condition of each.

What decides about its addresses is that of ``kavip explain``.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kavip import names
from kavip.api import conditions
from kavip.api.meta import Condition
from kavip.api.text import one_line
from kavip.cli.views.explain import Advice, ServiceReport
from kavip.cli.views.explainoutput import data, text
from kavip.cli.views.picture.picture import Picture
from kavip.cli.views.picture.rows import Level
from kavip.names import ConditionType

LONGEST: Final = 4000
_MOST_POOLS: Final = 50
_PLAIN: Final = re.compile(r"[A-Za-z0-9 ./:=_,-]+")
_LEVELS: Final = {"True": Level.OK, "False": Level.ERROR}


def service_page(report: ServiceReport, picture: Picture) -> dict[str, Any]:
    """The page of the Service of *report*, whose VIPs *picture* has."""
    key = report.service.metadata.key
    return {
        "name": _cut(key),
        "headline": _cut(text(report).splitlines()[0]),
        "steps": list(_steps(report, picture)),
        "annotations": [_fact(name, value) for name, value in _annotations(report)],
        "pools": [_pool(each) for each in data(report)["pools"][:_MOST_POOLS]],
        "advice": [_advice(each) for each in report.advice],
        "notes": [_cut(each) for each in report.notes],
    }


def _advice(advice: Advice) -> dict[str, Any]:
    """A command can be copied if no name in it means something to a shell: those of files may be anything."""
    text_ = _cut(advice.text)
    return {"text": text_, "isCommand": advice.is_command and _PLAIN.fullmatch(text_) is not None}


def _annotations(report: ServiceReport) -> Iterator[tuple[str, str]]:
    """What users write for kavip: annotations of both prefixes, and fields of spec."""
    found = report.service.metadata.annotations or {}
    prefixes = (f"{names.KAVIP_GROUP}/", names.GROUP_ANNOTATION.partition("/")[0] + "/")
    yield from sorted((name, value) for name, value in found.items() if name.startswith(prefixes))
    spec = report.service.spec
    fields = {
        "spec.type": spec.type,
        "spec.loadBalancerClass": spec.load_balancer_class or "",
        "spec.loadBalancerIP": spec.load_balancer_ip or "",
        "spec.externalIPs": ", ".join(spec.external_ips or ()),
        "spec.ipFamilies": ", ".join(spec.ip_families or ()),
        "spec.externalTrafficPolicy": spec.external_traffic_policy or "",
    }
    yield from ((name, value) for name, value in fields.items() if value)


def _steps(report: ServiceReport, picture: Picture) -> Iterator[dict[str, str]]:
    refused = "; ".join(report.refused)
    managed = f"group {report.group} ({report.origin})" if report.group else "no group"
    if report.unmanaged:
        yield _step("Request", Level.WARNING, "NotManaged", report.unmanaged)
        return
    yield _step(
        "Request", Level.ERROR if refused else Level.OK, "Refused" if refused else "Accepted", refused or managed
    )
    own: Sequence[Condition] = report.service.status.conditions or ()
    for title, kind in (
        ("Addresses", ConditionType.ADDRESS_ASSIGNED),
        ("Configuration on nodes", ConditionType.SERVICE_PROGRAMMED),
        ("On the wire", ConditionType.ADVERTISED),
    ):
        found = conditions.find(own, kind)
        if found is None:
            yield _step(title, Level.WARNING, "NotWritten", f"kavip has not written {kind} yet")
        else:
            yield _step(
                title,
                _LEVELS.get(found.status, Level.WARNING),
                found.reason,
                found.message,
                since=found.last_transition_time,
            )
    if report.decided is not None and report.decided != report.condition:
        yield _step(
            "Decided now",
            _LEVELS.get(report.decided.status, Level.WARNING),
            report.decided.reason,
            report.decided.message,
        )
    for vip in picture.vips:
        if vip.service == report.service.metadata.key and vip.address:
            after = f"; {vip.successor} takes it over if that node fails" if vip.successor else ""
            yield _step(
                vip.address, vip.level, vip.state, f"on {vip.node}{after}" if vip.node else vip.message, since=vip.since
            )


def _step(title: str, level: Level, reason: str, message: str, *, since: str = "") -> dict[str, str]:
    return {
        "title": _cut(title),
        "level": str(level),
        "reason": _cut(reason),
        "message": _cut(message),
        "since": _cut(since),
    }


def _pool(found: dict[str, Any]) -> dict[str, Any]:
    rules = [{"rule": rule["rule"], "holds": rule["holds"], "text": _cut(rule["text"])} for rule in found["rules"]]
    return {"name": found["name"], "priority": found["priority"], "role": found["role"], "rules": rules}


def _fact(name: str, value: str) -> dict[str, str]:
    return {"name": _cut(name), "value": _cut(value)}


def _cut(text_: str) -> str:
    line = one_line(text_)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
