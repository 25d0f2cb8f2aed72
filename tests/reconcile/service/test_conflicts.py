"""Which addresses of a Service were announced, by its conditions."""

import msgspec
import pytest

from kavip.api.address import parse_address
from kavip.api.meta import Condition
from kavip.names import ConditionType, Reason
from kavip.reconcile.service.conflicts import announced_addresses
from tests.support import build

FIRST = "192.0.2.128"
RECORD = f"{FIRST} from pool edge"


@pytest.mark.parametrize("reason", [Reason.NO_ENDPOINTS, Reason.ENDPOINTS_OUTSIDE_GROUP])
def test_an_address_without_endpoints_counts_as_announced(reason: Reason) -> None:
    """A node held it, also if no pod answered there."""
    assigned = Condition(type=ConditionType.ADDRESS_ASSIGNED, status="True", reason=Reason.ASSIGNED, message=RECORD)
    advertised = Condition(type=ConditionType.ADVERTISED, status="True", reason=reason)
    bare = build.service("shop/web", holds=[FIRST])
    status = msgspec.structs.replace(bare.status, conditions=[assigned, advertised])
    assert announced_addresses(msgspec.structs.replace(bare, status=status)) == {parse_address(FIRST)}
