"""The output of ``kavip doctor``: a table, the findings, JSON; and the page that lists the checks."""

import json
import re

import yaml

from kavip.cli.views.doctor.checks import CHECKS, MOST, diagnose
from kavip.cli.views.doctor.inspection import Gap, Source
from kavip.cli.views.doctor.output import output
from tests.cli.views.doctor.soundcluster import agent, sound
from tests.support.manifests import ROOT


def test_text() -> None:
    """All checks are in the table; below it each finding has its reason and its command."""
    gaps = {Source.HEARTBEATS: Gap("you may not list leases")}
    many = tuple(agent(f"n{number:03}", missing_interfaces=("vlan7",)) for number in range(MOST + 1))
    lines = output(diagnose(sound(version="v1.29.0", agents=many, gaps=gaps)), "text").splitlines()
    assert lines[0].split() == ["CHECK", "RESULT"]
    assert [line.split()[0] for line in lines[1 : len(CHECKS) + 1]] == [each.name for each in CHECKS]
    assert lines[1].split(maxsplit=1)[1] == "1 finding"
    assert lines[len(CHECKS)].split(maxsplit=1)[1] == "not checked: you may not list leases"
    assert lines[len(CHECKS) + 1 : len(CHECKS) + 5] == [
        "",
        "kubernetes: the API server is Kubernetes v1.29.0; kavip needs 1.30",
        "  why:  An older API server evaluates no match conditions of webhooks, and does not keep ipMode.",
        "  mend: kubeadm upgrade plan",
    ]
    assert lines[-1] == "interfaces: and 1 more"


def test_checks_with_findings_are_marked() -> None:
    """Only their rows of the table have the style of problems."""
    found = output(diagnose(sound(version="v1.29.0")), "text", style=lambda line: f"!{line}").splitlines()
    assert [line.split()[0] for line in found if line.startswith("!")] == ["!kubernetes"]


def test_json() -> None:
    """One object with the result of each check, and the findings."""
    gaps = {Source.HEARTBEATS: Gap("you may not list leases")}
    found = json.loads(output(diagnose(sound(version="v1.29.0", gaps=gaps)), "json"))
    results = {each["name"]: each["result"] for each in found["checks"]}
    assert (results["kubernetes"], results["clocks"], results["crds"]) == ("Found", "NotChecked", "OK")
    (finding,) = found["findings"]
    assert set(finding) == {"check", "what", "why", "command"}


def test_yaml() -> None:
    """The same object as in JSON."""
    report = diagnose(sound(version="v1.29.0"))
    assert yaml.safe_load(output(report, "yaml")) == json.loads(output(report, "json"))


def test_the_page_lists_all_checks() -> None:
    """The table of howto/doctor.md is the table of checks, with the rights that they need."""
    page = (ROOT / "docs" / "howto" / "doctor.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    needs = [", ".join(f"`{source}`" for source in each.needs) for each in CHECKS]
    assert rows == [(each.name, each.looks_for, each.why, need) for each, need in zip(CHECKS, needs, strict=True)]
