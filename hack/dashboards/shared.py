"""Panels of several dashboards, and the variables with which they select."""

from typing import Final

from hack.dashboards.model import Panel, Query, Variable, legend

GROUP: Final = Variable(name="group", series="kavip_services_advertised", label="group")
OF_GROUP: Final = '{group=~"$group"}'
"""Selects what the leader measures of the groups."""
AGENTS_OF_GROUP: Final = '{job=~"$group"}'
"""Selects what the agents of the groups measure."""
ALERTS_OF_VIPS: Final = ("KavipVIPWithoutMaster", "KavipVIPSplitBrain", "KavipEndpointsOutsideGroup")


def moves(selector: str) -> Panel:
    """How often VIPs moved to each node of *selector*; the state of an instance is a label, and changes with a move."""
    return Panel(
        title="VIPs taken over in an hour",
        description="How often the VRRP instances of a node became MASTER within the hour before.",
        queries=(
            Query(
                f"sum by (instance) (increase(max without (state) (keepalived_vrrp_become_master{selector})[1h:]))"
                f" or sum by (instance) (increase(keepalived_become_master_total{selector}[1h]))",
                legend("instance"),
            ),
        ),
        alerts=("KavipVIPFlapping",),
    )


def services(selector: str) -> Panel:
    """What is known of the VIPs of the Services of *selector*."""
    return Panel(
        title="Services by what is known of their VIPs",
        description="Services by the reason of their condition kavip.io/Advertised. With Master and NoEndpoints one "
        "node holds the VIPs; with the other reasons nothing answers, or it is not known.",
        queries=(Query(f"sum by (reason) (kavip_services_advertised{selector})", legend("reason")),),
        alerts=(*ALERTS_OF_VIPS, "KavipAddressConflict", "KavipVIPHolderUnknown"),
    )


def agents(selector: str) -> Panel:
    """Whether the agents of the groups of *selector* answer."""
    return Panel(
        title="Agents",
        description="Nodes whose agent answers the controller, and nodes whose agent is silent after it has answered.",
        queries=(Query(f"sum by (group, state) (kavip_agents{selector})", legend("group", "state")),),
        alerts=("KavipAgentsSilent",),
    )
