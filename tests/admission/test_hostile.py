"""Hostile Services always get a verdict whose messages are safe for terminals and logs."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hack import refusals
from kavip import names
from kavip.admission import policy
from kavip.admission.response import ReviewedObject, response
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from tests.support.examples import examples
from tests.vrrp import keywordvalues

SNAPSHOT = refusals.snapshot()
LARGE = "large"
"""A placeholder for a text as long as an annotation may be."""
MOST_BYTES = 64 << 10  # of any response

odd = st.text() | st.text(st.characters(categories=("Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs", "Sm")), max_size=6)
values = st.sampled_from(("lb/edge", "edge", "true", "10.0.0.1", "192.0.2.130,2001:db8::1", LARGE)) | odd
verbatims = st.one_of(
    st.dictionaries(st.sampled_from(sorted(keywordvalues.KNOWN)) | odd, keywordvalues.values | odd | st.integers()).map(
        json.dumps
    ),
    st.recursive(st.none() | st.integers() | odd, lambda each: st.lists(each) | st.dictionaries(odd, each)).map(
        json.dumps
    ),
    odd,
)
annotations = st.fixed_dictionaries(
    {names.GROUP_ANNOTATION: st.just("lb/edge") | values},
    optional={
        names.VERBATIM_ANNOTATION: verbatims,
        **{
            key: values
            for key in names.SERVICE_ANNOTATIONS
            if key not in (names.GROUP_ANNOTATION, names.VERBATIM_ANNOTATION)
        },
        "kavip.io/\x1b[2J": values,
        "kavip.io/addresse": values,
    },
)
services = st.fixed_dictionaries(
    {"type": st.just("LoadBalancer")},
    optional={
        "externalIPs": st.lists(values, max_size=3),
        "loadBalancerIP": values,
        "loadBalancerClass": st.sampled_from((None, names.LOAD_BALANCER_CLASS)) | odd,
        "ipFamilyPolicy": values,
        "externalTrafficPolicy": st.sampled_from(("Local", "Cluster")) | odd,
    },
)


def lone_surrogates(value: object) -> bool:
    """Whether *value* could not have come over the wire."""
    return any("\ud800" <= letter <= "\udfff" for letter in json.dumps(value, ensure_ascii=False))


@pytest.mark.slow
@examples(60)
@given(annotations, services, st.sampled_from((Operation.CREATE, Operation.UPDATE)))
@example(
    {names.GROUP_ANNOTATION: "\x1b[2J", names.SPREAD_ANNOTATION: "\u202e\n"}, {"type": "LoadBalancer"}, Operation.CREATE
)
@example(
    {names.GROUP_ANNOTATION: "lb/edge", names.VERBATIM_ANNOTATION: json.dumps({"\x9b\n": "\u2028\0"})},
    {},
    Operation.CREATE,
)
def test_always_a_verdict(notes: dict[str, str], spec: dict[str, object], operation: Operation) -> None:
    """Each message, field and warning is one printable line, and the size of the response is bounded."""
    if lone_surrogates([notes, spec]):
        return
    notes = {key: value.replace(LARGE, "a" * 200_000) for key, value in notes.items()}
    submitted = msgspec.convert(
        {"metadata": {"name": "web", "namespace": "shop", "annotations": notes}, "spec": spec}, Service
    )
    old = Service(metadata=submitted.metadata) if operation is Operation.UPDATE else None
    found = policy.review(Review(operation=operation, subject=submitted, old=old), SNAPSHOT)
    assert all(refusal.message.strip() and refusal.field for refusal in found.refusals)
    answer = response("u", found, ReviewedObject("Service", "web"))
    words = [*(answer.warnings or ())]
    if answer.status:
        assert answer.status.details
        words += [
            answer.status.message or "",
            *(text for each in answer.status.details.causes or () for text in (each.field, each.message)),
        ]
    assert [text for text in words if not text.isprintable()] == []
    assert len(msgspec.json.encode(answer)) < MOST_BYTES
