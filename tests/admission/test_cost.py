"""The cost of a verdict is bounded by counts: how often a rule is evaluated, and how many findings it may have."""

import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.admission.chain import DEFAULTS, Context, Rule, run
from kavip.admission.policy import review as review_pool
from kavip.api import review
from kavip.api.meta import LabelSelector, Requirements
from kavip.api.pool import VIPPool
from kavip.api.rawobject import MAX_ITEMS, OverBudget
from kavip.api.refusal import MAX_FINDINGS, Refusal
from kavip.api.review import AdmissionRequest, Operation, Review
from kavip.ipam.pool import parse_pool
from kavip.ipam.ranges import Range, parse_range
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.webhook.server import ROUTES
from tests.admission.evaluation import EDGE, create, update
from tests.support.build import group, pool, service


def bad(count: int, *, labels: dict[str, str] | None = None, **spec: Any) -> VIPPool:
    """A pool with so many malformed addresses."""
    found = pool("x", *["x"] * count, **spec)
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, labels=labels))


def test_the_old_object_is_evaluated_once() -> None:
    """However many findings are compared with its own."""
    evaluated: list[int] = []

    def rule(subject: VIPPool, _: Context[VIPPool]) -> Iterator[Refusal]:
        evaluated.append(len(subject.spec.addresses))
        yield from (Refusal(Reason.INVALID, f"{index}", "spec.addresses") for index in range(500))

    old, new = bad(1), bad(1, priority=7)
    found = run([Rule(rule, reads=lambda each, _: each.spec.addresses)], new, Context(Snapshot(), old), since=old)
    assert (found.allowed, len(found.warnings), len(evaluated)) == (True, 500, 2)


def test_an_unchanged_pool_full_of_mistakes_is_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each address is parsed a fixed number of times, not once for each finding."""
    parsed: list[str] = []

    def counting(text: str, field: str) -> Range:
        parsed.append(text)
        return parse_range(text, field)

    monkeypatch.setattr("kavip.ipam.pool.parse_range", counting)
    found = update(bad(1000), bad(1000))
    assert found.allowed
    assert len(parsed) <= 3 * 1000  # the new pool, the old one, and the one in the cache


def test_selectors_are_evaluated_once_for_services_of_equal_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """An edited pool costs no more selectors than its holders have sets of labels."""
    compared: list[object] = []

    def counting(self: Requirements, labels: Mapping[str, str] | None) -> bool:
        compared.append(labels)
        return matches(self, labels)

    matches = Requirements.matches
    holders = [
        service(f"shop/w{number}", group="lb/edge", holds=[f"10.0.0.{number}"], labels={"app": "ab"[number % 2]})
        for number in range(1, 200)
    ]
    old = pool("edge", "10.0.0.0/24", service_selector=LabelSelector(match_labels={"app": "a"}))
    new = pool("edge", "10.0.0.0/24", service_selector=LabelSelector(match_labels={"app": "b"}))
    snapshot = Snapshot.from_objects([EDGE, old, *holders])
    monkeypatch.setattr(Requirements, "matches", counting)
    found = review_pool(Review(Operation.UPDATE, new, old), snapshot)
    assert "no longer serves shop/w10, shop/w100, shop/w102" in found.warnings[-1]
    assert len(compared) == 4  # two sets of labels, the old and the new selector


def test_few_mistyped_keywords_get_a_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    """To find a near keyword takes long; the others are refused without one."""
    compared: list[str] = []

    def counting(word: str, *more: Any, **options: Any) -> list[str]:
        compared.append(word)
        return get_close_matches(word, *more, **options)

    monkeypatch.setattr("kavip.vrrp.keywords.get_close_matches", counting)
    found = create(group("lb/new", allow_verbatim=["garp_master_repeats"] * 1024))
    assert len(found.refusals) == 1024
    assert len([each for each in found.refusals if "did you mean garp_master_repeat?" in each.message]) == 64
    assert len(compared) == 64


def test_findings_are_counted_while_they_are_made() -> None:
    """A rule that never ends is stopped, and so is every later rule."""
    made: list[int] = []

    def endless(*_: object) -> Iterator[Refusal]:
        while True:
            made.append(0)
            yield Refusal(Reason.INVALID, f"{len(made)}", "spec")

    rule: Rule[VIPPool] = Rule(endless, reads=lambda *_: None)
    found = run([rule, rule], bad(1), Context(Snapshot()))
    assert len(made) == MAX_FINDINGS + 1
    assert found.refusals[-1].message == "the object has more than 1,024 problems; fix the others first"


def test_parsers_stop_at_so_many_findings() -> None:
    """A pool and a group with mistakes in every list."""
    many = 1024
    wrong = bad(many, exclude=["x"] * many, groups=["X"] * many)
    assert len(parse_pool(wrong)[1]) == MAX_FINDINGS
    full = group(blacklist_router_ids=[0] * many, allow_verbatim=["x"] * many)
    assert len(create(full).refusals) >= MAX_FINDINGS


@pytest.mark.parametrize(("change", "allowed"), [({}, True), ({"labels": {"a": "b"}}, False), ({"priority": 7}, False)])
def test_an_object_with_too_many_findings_can_only_stay(change: dict[str, Any], *, allowed: bool) -> None:
    """An UPDATE that leaves spec, labels and annotations is accepted with a warning."""
    wrong: dict[str, Any] = {"exclude": ["y"] * 1024, "groups": ["X"] * 1024}

    def rule(*_: object) -> Iterator[Refusal]:
        yield from (Refusal(Reason.INVALID, f"{index}", "spec.addresses") for index in range(MAX_FINDINGS + 1))

    old, new = bad(2, **wrong), bad(2, **{**wrong, **change})
    chain: list[Rule[VIPPool]] = [Rule(rule, reads=lambda *_: None)]
    found = run(chain, new, Context(Snapshot(), old), since=old)
    assert found.allowed == allowed
    if allowed:
        assert found.warnings[0].startswith("accepted because the field is unchanged: the object has more than")


def affinity(terms: int) -> dict[str, Any]:
    """A node affinity of so many alternatives."""
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}] * terms}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("path", "field", "most", "spec"),
    [
        (
            names.VALIDATE_POOL_PATH,
            "spec.serviceSelector.matchExpressions",
            64,
            lambda count: {"serviceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}] * count}},
        ),
        (
            names.VALIDATE_POOL_PATH,
            "spec.namespaceSelector.matchLabels",
            64,
            lambda count: {"namespaceSelector": {"matchLabels": {f"k{number}": "" for number in range(count)}}},
        ),
        (
            names.VALIDATE_GROUP_PATH,
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
            32,
            lambda count: {"affinity": affinity(count)},
        ),
    ],
)
def test_too_many_terms_of_a_selector_can_only_stay(
    path: str, field: str, most: int, spec: Callable[[int], dict[str, Any]]
) -> None:
    """The refusal names the field and the limit; a stored object keeps its terms, and may get fewer."""

    def with_terms(count: int, **metadata: Any) -> dict[str, Any]:
        base = {"addresses": ["192.0.2.0/24"]} if path == names.VALIDATE_POOL_PATH else {"interface": "eth0"}
        return {"metadata": {"name": "x", **metadata}, "spec": base | spec(count)}

    decide, stored = ROUTES[path].decide, with_terms(most + 1)
    assert decide(request("X", with_terms(most), operation="CREATE"), Snapshot(), DEFAULTS).allowed
    with pytest.raises(OverBudget, match=rf"^{re.escape(field)}: '{most + 1} terms': want at most {most}$"):
        decide(request("X", stored, operation="CREATE"), Snapshot(), DEFAULTS)
    kept = decide(request("X", with_terms(most + 1, finalizers=["a"]), stored), Snapshot(), DEFAULTS)
    assert kept.allowed
    assert f"want at most {most}" in kept.warnings[0]
    assert decide(request("X", with_terms(most), stored), Snapshot(), DEFAULTS).allowed


def request(kind: str, new: object, old: object = None, *, operation: str = "UPDATE") -> AdmissionRequest:
    """A review of *new*."""
    submitted = {"uid": "u", "operation": operation, "kind": {"kind": kind}, "object": new, "oldObject": old}
    body = {"apiVersion": review.API_VERSION, "kind": review.KIND, "request": submitted}
    return review.decode_request(msgspec.json.encode(body))


LARGE: dict[str, Any] = {"metadata": {"name": "x"}, "spec": {"externalIPs": [""] * (MAX_ITEMS + 1)}}
EDITS: list[dict[str, Any]] = [
    {**LARGE, "metadata": {"name": "x", "labels": {"a": "b"}}},
    {**LARGE, "metadata": {"name": "x", "annotations": {"a": "b"}}},
    {**LARGE, "spec": {**LARGE["spec"], "type": "LoadBalancer"}},
]


@pytest.mark.parametrize("path", sorted(path for path, route in ROUTES.items() if not route.mutates))
def test_an_object_over_budget_can_only_stay(path: str) -> None:
    """Finalizers and status may change, spec, labels and annotations may not."""
    decide, options = ROUTES[path].decide, DEFAULTS
    kept = {**LARGE, "metadata": {"name": "x", "finalizers": ["a"]}, "status": {"conditions": []}}
    found = decide(request("X", kept, LARGE), Snapshot(), options)
    assert found.allowed
    assert "more than 32,768 items" in found.warnings[0]
    for edit in EDITS:
        with pytest.raises(OverBudget):
            decide(request("X", edit, LARGE), Snapshot(), options)
    assert decide(request("X", None, LARGE, operation="DELETE"), Snapshot(), options).allowed


def test_a_group_over_budget_gets_no_defaults() -> None:
    """An old group that is not read must not be taken for a new one."""
    path, mended = names.MUTATE_GROUP_PATH, {"metadata": {"name": "x"}, "spec": {"interface": "eth0"}}
    large = {"metadata": {"name": "x"}, "spec": {"tolerations": [{}] * (MAX_ITEMS + 1)}}
    assert ROUTES[path].decide(request("X", mended, large), Snapshot(), DEFAULTS).patch == ()
    assert ROUTES[path].decide(request("X", mended, operation="CREATE"), Snapshot(), DEFAULTS).patch


def test_a_stored_status_of_any_size_locks_nothing() -> None:
    """A Service whose status has thousands of addresses can be edited."""
    stored = service("shop/web", group="lb/edge")
    wire = msgspec.to_builtins(stored)
    status = {"loadBalancer": {"ingress": [{"ip": "11.0.0.1"}] * 50_000}}
    edited = {**wire, "metadata": {**wire["metadata"], "labels": {"a": "b"}}}
    submitted = request("Service", {**edited, "status": status}, {**wire, "status": status})
    assert Operation.UPDATE is submitted.operation
    snapshot = Snapshot.from_objects([EDGE, pool()])
    assert ROUTES[names.VALIDATE_SERVICE_PATH].decide(submitted, snapshot, DEFAULTS).allowed
