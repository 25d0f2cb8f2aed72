"""
Whether somebody else gives a Service its addresses: OpenShift, or whom the administrator means by ``--ipam never``.
"""

from typing import Final

from kavip import names
from kavip.api.cluster import Network
from kavip.ipam.selection import Case

NEVER: Final = "kavip assigns no addresses here (--ipam never): set spec.externalIPs, or let another controller assign"
PLATFORM: Final = (
    "the cluster's Network assigns addresses (spec.externalIP.autoAssignCIDRs); "
    f"annotate the Service with {names.POOL_ANNOTATION} to get one from kavip"
)


def left_to_platform(case: Case, network: Network | None, *, ipam: str) -> str:
    """Why kavip assigns nothing to the Service of *case*; "" where it does. What it has assigned stays its own."""
    if ipam == "always":
        return ""
    rules = network.spec.external_ip if network else None
    if ipam != "never" and (rules is None or not rules.auto_assign_cidrs):
        return ""
    if any(case.is_given(address) for address in case.held):
        return ""
    if ipam == "never":
        return NEVER
    return "" if case.pools.are_named_by(case.request) else PLATFORM
