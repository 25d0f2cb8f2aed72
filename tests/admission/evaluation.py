"""Evaluates the creation or the update of one object, with a few other objects in the cluster."""

from kavip.admission import policy
from kavip.admission.chain import PolicyOptions
from kavip.admission.verdict import Verdict
from kavip.api.review import Operation, Review
from kavip.snapshot import Object, Snapshot
from tests.support.build import group, namespace

SHOP = namespace("shop")
EDGE = group("lb/edge", segment="default")


def create(asked: Object, *world: Object, options: PolicyOptions | None = None) -> Verdict:
    """Evaluate the creation of *asked*."""
    snapshot = Snapshot.from_objects(world)
    return policy.review(Review(Operation.CREATE, asked), snapshot, options=options or PolicyOptions())


def update(old: Object, new: Object, *world: Object, options: PolicyOptions | None = None) -> Verdict:
    """Evaluate the update of *old* to *new*; *world* are the other objects."""
    snapshot = Snapshot.from_objects([*world, old])
    return policy.review(Review(Operation.UPDATE, new, old), snapshot, options=options or PolicyOptions())


def reasons(found: Verdict) -> list[str]:
    """The reasons of all refusals."""
    return [refusal.reason for refusal in found.refusals]
