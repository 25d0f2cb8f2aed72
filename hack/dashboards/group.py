"""The dashboard of groups: their conditions, VIPs and nodes."""

from typing import Final

from hack.dashboards.model import Dashboard, Kind, Panel, Query, Row, legend
from hack.dashboards.shared import AGENTS_OF_GROUP, GROUP, OF_GROUP, agents, moves, services

GROUPS: Final = Dashboard(
    name="group",
    title="kavip / Group",
    description="The conditions, VIPs and nodes of a KeepalivedGroup.",
    variables=(GROUP,),
    rows=(
        Row(
            "Conditions",
            (
                Panel(
                    title="Conditions",
                    description="The conditions of each group, with their reasons. `kubectl describe` "
                    "has the messages.",
                    queries=(Query(f"max by (group, type, status, reason) (kavip_group_conditions{OF_GROUP})"),),
                    kind=Kind.TABLE,
                    alerts=(
                        "KavipGroupNotAccepted",
                        "KavipConfigurationRefused",
                        "KavipNodesBehind",
                        "KavipPodsNotReady",
                    ),
                ),
            ),
        ),
        Row(
            "VIPs",
            (
                services(OF_GROUP),
                moves(AGENTS_OF_GROUP),
                Panel(
                    title="VIPs that another machine has",
                    description="VIPs that a machine outside the cluster claims on the network.",
                    queries=(
                        Query(
                            f"sum by (group) (kavip_group_duplicate_addresses{OF_GROUP})",
                            legend("group"),
                        ),
                    ),
                    alerts=("KavipAddressConflict",),
                ),
                Panel(
                    title="VRIDs that another router uses",
                    description="VRIDs of the group in adverts that keepalived refuses: two routers with one VRID "
                    "disturb each other.",
                    queries=(Query(f"sum by (group) (kavip_group_vrid_collisions{OF_GROUP})", legend("group")),),
                    alerts=("KavipVRIDCollision",),
                ),
            ),
        ),
        Row(
            "Nodes",
            (
                agents(OF_GROUP),
                Panel(
                    title="VRRP instances that a node is MASTER of",
                    description="How the VIPs are spread over the nodes. After a drain or a fail-over a node has none.",
                    queries=(
                        Query(
                            'sum by (instance) (kavip_agent_instances{job=~"$group",state="MASTER"})',
                            legend("instance"),
                        ),
                    ),
                ),
                Panel(
                    title="keepalived",
                    description="Whether keepalived runs on each node (1). It does not before its first configuration.",
                    queries=(Query(f"min by (instance) (keepalived_up{AGENTS_OF_GROUP})", legend("instance")),),
                    alerts=("KavipKeepalivedDown",),
                ),
                Panel(
                    title="Newest configuration",
                    description="Whether each node runs the configuration that is mounted into its pod (1). The "
                    "condition Programmed says whether that is the newest one.",
                    queries=(
                        Query(f"min by (instance) (kavip_agent_config_current{AGENTS_OF_GROUP})", legend("instance")),
                    ),
                ),
            ),
        ),
    ),
)
