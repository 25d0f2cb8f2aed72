"""What the tests of the allocator share: pools, and the question what a Service gets."""

from typing import Any

import msgspec

from kavip import names
from kavip.api.meta import Condition, LabelSelector
from kavip.api.pool import VIPPool
from kavip.api.service import Service
from kavip.ipam.allocate import Allocation, settle
from kavip.ipam.pools import Pools
from kavip.ipam.record import ASSIGNED_REASONS, write_assigned, write_stranded
from kavip.names import Reason
from tests.ipam.simulatedcontroller import entered
from tests.support.build import pool, service

EDGE = pool("edge", "192.0.2.128/28")
LAB = pool("lab", "198.51.100.0/24", "2001:db8::/64", priority=200)
PREFER: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "PreferDualStack"}
REQUIRE: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "RequireDualStack"}
SHARE = {names.SHARING_KEY_ANNOTATION: "web"}
REASSIGN = {names.REASSIGN_ANNOTATION: "true"}
FULL = [service(f"z/{index}", holds=[f"192.0.2.{128 + index}"]) for index in range(16)]
POOL_FIELD = "metadata.annotations[kavip.io/pool]"
WISH_FIELD = "metadata.annotations[kavip.io/addresses]"
SELECTIVE = pool("team", "203.0.113.0/28", namespace_selector=LabelSelector(match_labels={"env": "prod"}))
FOREIGN = Reason.FOREIGN_STATUS


def with_reason(found: Service, reason: Reason, status: str = "True", message: str | None = None) -> Service:
    """*found* with our own condition, which records what it holds."""
    holds = found.ingress_addresses
    if message is None and reason in ASSIGNED_REASONS and holds:
        message = write_stranded(holds, "x") if reason is Reason.STRANDED else write_assigned(holds, "x")
    condition = Condition(
        type=names.ConditionType.ADDRESS_ASSIGNED, status=status, reason=reason, message=message or ""
    )
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=[condition]))


def ours(key: str, holds: list[str], **more: Any) -> Service:
    """A Service to which kavip gave what it holds."""
    return with_reason(service(key, holds=holds, **more), Reason.ASSIGNED)


def outcome(subject: Service, *others: Service, pools: tuple[VIPPool, ...] = (EDGE, LAB), **more: Any) -> Any:
    """What is decided for *subject* beside *others*."""
    parsed = Pools.of(pools)
    return settle(subject, parsed, entered(parsed, (subject, *others)), **more)


def assigned_addresses(subject: Service, *others: Service, **more: Any) -> list[str]:
    """The addresses that *subject* gets."""
    found = outcome(subject, *others, **more)
    assert isinstance(found, Allocation), found
    return [str(address) for address in found.addresses]
