"""The dashboard of nodes: keepalived, and the agent beside it."""

from typing import Final

from hack.dashboards.model import Dashboard, Health, Kind, Panel, Query, Row, Unit, Variable, legend
from hack.dashboards.shared import AGENTS_OF_GROUP, GROUP, moves
from kavip.agent.report.exporters import GEN2BRAIN, MEHDY

_NODE: Final = Variable(name="node", series=f"kavip_agent_config_current{AGENTS_OF_GROUP}", label="instance")
_OF_NODE: Final = '{instance=~"$node"}'


def _packets(field: str, what: str) -> Query:
    """The packets per second that keepalived counts in *field* on each node, with the names of either exporter."""
    names = (f"keepalived_vrrp_{field}", f"keepalived_{MEHDY[field]}_total")
    return Query(
        " or ".join(f"sum by (instance) (rate({name}{_OF_NODE}[$__rate_interval]))" for name in names),
        f"{{{{instance}}}} {what}",
    )


def _of_node(metric: str, *by: str) -> Query:
    """A gauge of the agent, by node and other labels."""
    labels = ("instance", *by)
    return Query(f"max by ({', '.join(labels)}) ({metric}{_OF_NODE})", legend(*labels))


def _increases(metric: str, what: str) -> Query:
    """The increase of a counter of the agent between two points of the graph."""
    return Query(f"sum by (instance) (increase({metric}{_OF_NODE}[$__rate_interval]))", f"{{{{instance}}}} {what}")


NODES: Final = Dashboard(
    name="node",
    title="kavip / Node",
    description="keepalived and the agent on the nodes of a group.",
    variables=(GROUP, _NODE),
    rows=(
        Row(
            "keepalived",
            (
                Panel(
                    title="keepalived runs",
                    description="1 if keepalived answers on all chosen nodes. It does not run before its first "
                    "configuration.",
                    queries=(Query(f"min(keepalived_up{_OF_NODE})"),),
                    kind=Kind.STAT,
                    health=Health.NONE_IS_BAD,
                    alerts=("KavipKeepalivedDown",),
                ),
                Panel(
                    title="Configuration is current",
                    description="1 if all chosen nodes run the configuration that is mounted into their pods.",
                    queries=(Query(f"min(kavip_agent_config_current{_OF_NODE})"),),
                    kind=Kind.STAT,
                    health=Health.NONE_IS_BAD,
                ),
                Panel(
                    title="Configuration is refused",
                    description="1 if a chosen node refuses its mounted configuration; keepalived keeps the last one.",
                    queries=(Query(f"max(kavip_agent_config_refused{_OF_NODE})"),),
                    kind=Kind.STAT,
                    health=Health.SOME_IS_BAD,
                ),
                Panel(
                    title="Instances left out",
                    description="VRRP instances that the chosen nodes refuse; the others run.",
                    queries=(Query(f"sum(kavip_agent_left_out_instances{_OF_NODE})"),),
                    kind=Kind.STAT,
                    health=Health.SOME_IS_BAD,
                ),
                Panel(
                    title="Failing health checks",
                    description="Health checks of the group that fail, each node counted.",
                    queries=(Query(f"sum(kavip_agent_check_up{_OF_NODE} == bool 0) or vector(0)"),),
                    kind=Kind.STAT,
                    health=Health.SOME_IS_BAD,
                    alerts=("KavipHealthCheckFailing",),
                ),
                Panel(
                    title="Addresses of others",
                    description="VIPs of the group that another machine claims, each node counted.",
                    queries=(Query(f"sum(kavip_agent_address_conflicts{_OF_NODE})"),),
                    kind=Kind.STAT,
                    health=Health.SOME_IS_BAD,
                ),
                Panel(
                    title="Versions of keepalived",
                    description="The keepalived program in the pod of each node.",
                    queries=(_of_node("kavip_agent_keepalived_info", "version"),),
                    kind=Kind.TABLE,
                ),
            ),
        ),
        Row(
            "VRRP",
            (
                Panel(
                    title="Instances by state",
                    description="VRRP instances by family and state. A MASTER holds its VIPs.",
                    queries=(_of_node("kavip_agent_instances", "family", "state"),),
                ),
                moves(_OF_NODE),
                Panel(
                    title="Adverts",
                    description="Adverts per second. A MASTER sends them, and all other nodes receive them.",
                    queries=(_packets("advert_sent", "sent"), _packets("advert_rcvd", "received")),
                    unit=Unit.PER_SECOND,
                ),
                Panel(
                    title="Refused packets",
                    description="VRRP packets per second that keepalived refuses. Those of another router with the "
                    "same VRID have another password, or other addresses. A change of the password refuses some, too.",
                    queries=tuple(
                        _packets(field, GEN2BRAIN[field].lower())
                        for field in ("auth_failure", "authtype_mismatch", "addr_list_err", "ip_ttl_err")
                    ),
                    unit=Unit.PER_SECOND,
                ),
            ),
        ),
        Row(
            "Agent",
            (
                Panel(
                    title="Reloads",
                    description="Reloads of keepalived, reloads that it did not survive or confirm, and "
                    "configurations that were refused before it saw them.",
                    queries=(
                        _increases("kavip_agent_reloads_total", "reloads"),
                        _increases("kavip_agent_reload_failures_total", "failed"),
                        _increases("kavip_agent_refusals_total", "refused"),
                    ),
                ),
                Panel(
                    title="Duration of the last reload",
                    description="How long keepalived took to confirm its newest configuration.",
                    queries=(_of_node("kavip_agent_last_reload_seconds"),),
                    unit=Unit.DURATION,
                ),
                Panel(
                    title="Health checks",
                    description="Whether each health check passes (1).",
                    queries=(_of_node("kavip_agent_check_up", "check"),),
                    alerts=("KavipHealthCheckFailing",),
                ),
                Panel(
                    title="Duration of health checks",
                    description="How long the last answer of each health check took.",
                    queries=(_of_node("kavip_agent_check_seconds", "check"),),
                    unit=Unit.DURATION,
                ),
                Panel(
                    title="Claims of other machines",
                    description="VIPs that another machine claims: withheld before this node takes them, or while it "
                    "holds them.",
                    queries=(_of_node("kavip_agent_address_conflicts", "kind"),),
                ),
                Panel(
                    title="Work of the agent on the network",
                    description="VIPs that the agent asked the network for, announcements that defended a VIP, and "
                    "addresses that a daemon had left behind and the agent removed.",
                    queries=(
                        _increases("kavip_agent_probed_addresses_total", "asked for"),
                        _increases("kavip_agent_defences_total", "defended"),
                        _increases("kavip_agent_stale_addresses_removed_total", "removed"),
                    ),
                ),
            ),
        ),
    ),
)
