"""
The report of ``kavip doctor`` as text, JSON and YAML.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kavip.api.text import one_line
from kavip.cli.views.doctor.checks import CheckResult, DoctorReport
from kavip.cli.views.structured import structured
from kavip.cli.views.table import marked, table


def output(report: DoctorReport, form: str, *, style: Callable[[str], str] = str) -> str:
    """*report* in the *form* text, json or yaml; text with *style* for checks with findings."""
    return text(report, style=style) if form == "text" else structured(data(report), form)


def text(report: DoctorReport, *, style: Callable[[str], str] = str) -> str:
    """A table of all checks, and below it each finding with its reason and the command that mends it."""
    rows = [(each.check.name, _outcome(each)) for each in report.results]
    lines = marked(table(("CHECK", "RESULT"), rows), (bool(each.findings) for each in report.results), style)
    return "\n".join([*lines, *(line for each in report.results for line in _findings(each))])


def _outcome(result: CheckResult) -> str:
    count = len(result.findings) + result.omitted
    found = f"{count} finding{'s' * (count != 1)}" if count else "" if result.gap else "ok"
    return "; ".join(filter(None, (found, result.gap and f"not checked: {result.gap}")))


def _findings(result: CheckResult) -> Iterator[str]:
    for each in result.findings:
        yield from ("", f"{result.check.name}: {each.what}", f"  why:  {_plain(result.check.why)}")
        yield f"  mend: {one_line(each.command)}"
    if result.omitted:
        yield from ("", f"{result.check.name}: and {result.omitted} more")


def _plain(markdown: str) -> str:
    return markdown.replace("`", "")


def data(report: DoctorReport) -> dict[str, Any]:
    """One object: the checks, and all findings, in the order of the table."""
    checks, findings = [], []
    for each in report.results:
        result = "Found" if each.findings else "NotChecked" if each.gap else "OK"
        checks.append({"name": each.check.name, "result": result, "notChecked": each.gap, "omitted": each.omitted})
        findings += [
            {"check": each.check.name, "what": one.what, "why": _plain(each.check.why), "command": one.command}
            for one in each.findings
        ]
    return {"checks": checks, "findings": findings}
