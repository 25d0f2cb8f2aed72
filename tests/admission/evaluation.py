"""Evaluates the creation or the update of one object, with a few other objects in the cluster."""

from kavip.admission import policy
from kavip.admission.chain import PolicyOptions
from kavip.admission.verdict import Verdict
from kavip.api.review import Operation, Review
from kavip.snapshot import Object, Snapshot
from tests.support.build import group, namespace

SHOP = namespace("shop")
EDGE = group("lb/edge", segment="default")


def create(submitted: Object, *existing: Object, options: PolicyOptions | None = None) -> Verdict:
    """Evaluate the creation of *submitted*."""
    snapshot = Snapshot.from_objects(existing)
    return policy.review(Review(Operation.CREATE, submitted), snapshot, options=options or PolicyOptions())


def update(old: Object, new: Object, *existing: Object, options: PolicyOptions | None = None) -> Verdict:
    """Evaluate the update of *old* to *new*; *existing* are the other objects."""
    snapshot = Snapshot.from_objects([*existing, old])
    return policy.review(Review(Operation.UPDATE, new, old), snapshot, options=options or PolicyOptions())


def reasons(found: Verdict) -> list[str]:
    """The reasons of all refusals."""
    return [refusal.reason for refusal in found.refusals]
