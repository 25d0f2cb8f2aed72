"""What the tests of the rules ask: may this be created, may this be changed, in this world?"""

from kavip.admission import policy
from kavip.admission.chain import Options
from kavip.admission.verdict import Verdict
from kavip.api.review import Operation, Review
from kavip.snapshot import Object, Snapshot
from tests.support.build import group, namespace

SHOP = namespace("shop")
EDGE = group("lb/edge", segment="default")


def create(asked: Object, *world: Object, options: Options | None = None) -> Verdict:
    """Judge the creation of *asked* in *world*."""
    snapshot = Snapshot.from_objects(world)
    return policy.review(Review(Operation.CREATE, asked), snapshot, options=options or Options())


def update(old: Object, new: Object, *world: Object, options: Options | None = None) -> Verdict:
    """Judge the change of *old*, which is part of *world*, to *new*."""
    snapshot = Snapshot.from_objects([*world, old])
    return policy.review(Review(Operation.UPDATE, new, old), snapshot, options=options or Options())


def reasons(found: Verdict) -> list[str]:
    """The reasons of all refusals."""
    return [refusal.reason for refusal in found.refusals]
