"""Any invalid object may stay as it is and may be deleted (property tests)."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.review import cluster
from fuzz import shapes
from kavip import names
from kavip.admission import policy
from kavip.admission.chain import ALLOWED, PolicyOptions
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from tests.support.examples import examples

SNAPSHOT = cluster(20)
KINDS = (Service, KeepalivedGroup, VIPPool)
OPTIONS = [
    PolicyOptions(external_ips_scope=scope, ipam=ipam) for scope in ("managed", "all") for ipam in ("auto", "always")
]
Anything = Service | KeepalivedGroup | VIPPool


def one_of(kind: type[Anything]) -> st.SearchStrategy[Any]:
    """Odd objects of *kind*; every other Service is managed by kavip."""
    found: st.SearchStrategy[Any] = shapes.OBJECTS[kind].map(lambda data: msgspec.convert(data, kind))
    return found | found.map(_ours) if kind is Service else found


def _ours(service: Service) -> Service:
    notes = {**(service.metadata.annotations or {}), names.GROUP_ANNOTATION: "lb/g0"}
    metadata = msgspec.structs.replace(service.metadata, annotations=notes)
    spec = msgspec.structs.replace(service.spec, type="LoadBalancer", load_balancer_class=None)
    return msgspec.structs.replace(service, metadata=metadata, spec=spec)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@examples(15)
@given(st.data())
def test_an_update_of_other_fields_is_accepted(kind: type[Anything], data: st.DataObject) -> None:
    """An update that changes only a finalizer has warnings, but no refusal."""
    old = data.draw(one_of(kind))
    owner = msgspec.structs.replace(old.metadata, finalizers=["example.com/other"])
    new = msgspec.structs.replace(old, metadata=owner)
    options = data.draw(st.sampled_from(OPTIONS))
    found = policy.review(Review(Operation.UPDATE, new, old), SNAPSHOT, options=options)
    assert found.refusals == ()


@pytest.mark.parametrize("kind", (Service, KeepalivedGroup), ids=lambda kind: kind.__name__)
@examples(15)
@given(st.data())
def test_deletion_is_never_refused(kind: type[Anything], data: st.DataObject) -> None:
    """No deletion is refused, and an edit that only removes finalizers from an object in deletion has no finding."""
    submitted = data.draw(one_of(kind))
    assert policy.review(Review(Operation.DELETE, submitted), SNAPSHOT).allowed
    metadata = msgspec.structs.replace(
        submitted.metadata, deletion_timestamp="2026-05-01T00:00:00Z", finalizers=["a/b"]
    )
    held = msgspec.structs.replace(submitted, metadata=metadata)
    leaving = msgspec.structs.replace(submitted, metadata=msgspec.structs.replace(metadata, finalizers=None))
    assert policy.review(Review(Operation.UPDATE, leaving, held), SNAPSHOT) == ALLOWED
