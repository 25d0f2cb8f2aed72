"""What kavip's metrics are each minute for four hours: while all is well, with each fault, and while somebody works."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kavip import names
from kavip.names import Reason

LEADER, STANDBY = ('namespace="kavip",pod="kavip-controller-a",instance="a"', 'namespace="kavip",pod="b",instance="b"')
NODE = 'namespace="lb",pod="edge-1",instance="192.0.2.11:9650"'
LATER = 'namespace="lb",pod="edge-2",instance="192.0.2.11:9650"'
"""The target of the pod that replaces the one of NODE."""
GROUP = {"group": "lb/edge"}
OF_NODE = {"namespace": "lb", "pod": "edge-1", "instance": "192.0.2.11:9650"}

OWN_VIPS = 'kavip_group_virtual_ips{%s,group="lb/edge",reason="%s"}'
ADVERTISED = 'kavip_services_advertised{%s,group="lb/edge",reason="%s"}'
CONDITION = 'kavip_group_conditions{%s,group="lb/edge",type="%s",status="%s",reason="%s"}'
COLLISIONS = f'kavip_group_vrid_collisions{{{LEADER},group="lb/edge"}}'
DUPLICATES = f'kavip_group_duplicate_addresses{{{LEADER},group="lb/edge"}}'
AGENTS = 'kavip_agents{%s,group="lb/edge",state="%s"}'
WAITING = 'kavip_services_waiting{%s,pool="%s",reason="%s"}'
POOL = 'kavip_pool_addresses{%s,pool="%s",family="ipv4",state="%s"}'
LEADS = "kavip_leader{%s}"
MOVES = 'keepalived_vrrp_become_master{%s,name="shop/web",intf="eth0",vrid="51",state="MASTER"}'
MOVES_OF_MEHDY = f'keepalived_become_master_total{{{NODE},iname="shop/web",intf="eth0",vrid="51"}}'
UP, CURRENT = "keepalived_up{%s}", "kavip_agent_config_current{%s}"
CHECK = 'kavip_agent_check_up{%s,check="api"}'
ERRORS = 'kavip_watch_errors_total{%s,kind="Service"}'
RECONCILES = f'kavip_reconcile_total{{{LEADER},kind="service",result="error"}}'
DROPPED = f"kavip_events_dropped_total{{{LEADER}}}"
REVIEWS = f'kavip_webhook_requests_total{{{STANDBY},path="/validate-service",verdict="error"}}'
SECONDS = f'kavip_webhook_request_seconds_bucket{{{STANDBY},path="/validate-service",le="%s"}}'
EXPIRY = f'kavip_certificate_expiry_timestamp_seconds{{{STANDBY},certificate="leaf"}}'

HEALTHY: Mapping[str, str] = {
    ADVERTISED % (LEADER, "Master"): "9x239",
    ADVERTISED % (LEADER, "NoEndpoints"): "1x239",  # a Service without pods
    **{ADVERTISED % (LEADER, each): "0x239" for each in names.ADVERTISED_REASONS[2:]},
    OWN_VIPS % (LEADER, "Master"): "1x239",
    **{OWN_VIPS % (LEADER, each): "0x239" for each in names.ADVERTISED_REASONS[1:]},
    CONDITION % (LEADER, "Accepted", "True", "Accepted"): "1x239",
    CONDITION % (LEADER, "Programmed", "True", "Programmed"): "1x239",
    CONDITION % (LEADER, "Ready", "True", "Ready"): "1x239",
    COLLISIONS: "0x239",
    DUPLICATES: "0x239",
    AGENTS % (LEADER, "silent"): "0x239",
    AGENTS % (LEADER, "answering"): "3x239",
    POOL % (LEADER, "edge", "total"): "16x239",
    POOL % (LEADER, "edge", "available"): "6x239",
    POOL % (LEADER, "single", "total"): "1x239",  # a pool for one Service
    POOL % (LEADER, "single", "available"): "0x239",
    LEADS % LEADER: "1x239",
    LEADS % STANDBY: "0x239",
    MOVES % NODE: "2x239",
    UP % NODE: "1x239",
    CURRENT % NODE: "1x239",
    CHECK % NODE: "1x239",
    'keepalived_up{instance="192.0.2.99:9165"}': "0x239",  # a keepalived without an agent of kavip
    ERRORS % LEADER: "3x239",
    RECONCILES: "1x239",
    DROPPED: "0x239",
    REVIEWS: "0x239",
    SECONDS % "0.1": "0+60x239",
    SECONDS % "+Inf": "0+60x239",
    EXPIRY: "600000x239",
}
"""What is measured each minute of four hours while all is well."""

BROKEN = "0x59 {}x59 0x119"
"""Well for an hour, broken for an hour, mended for two hours."""
GROWS = "0x59 1+1x59 60x119"
"""A counter that grows during the second hour."""


@dataclass(frozen=True)
class Fault:
    """*changed*: series in place of those of HEALTHY; *alert* fires with these *labels* and this *summary*."""

    what: str
    alert: str
    changed: Mapping[str, str]
    labels: Mapping[str, str]
    summary: str


def unadvertised(reason: Reason, alert: str, summary: str) -> Fault:
    """Two Services have *reason*."""
    return Fault(reason, alert, {ADVERTISED % (LEADER, reason): BROKEN.format(2)}, GROUP, summary)


def condition(kind: str, reason: Reason, alert: str, summary: str) -> Fault:
    """The condition *kind* of the group is False."""
    good = "Programmed" if kind == "Programmed" else kind
    changed = {
        CONDITION % (LEADER, kind, "True", good): "1x59 _x60 1x119",
        CONDITION % (LEADER, kind, "False", reason): "_x60 1x59 stale",
    }
    return Fault(f"{kind} {reason}", alert, changed, {**GROUP, "reason": reason.value}, summary)


FAULTS: Sequence[Fault] = [
    unadvertised(
        Reason.NO_MASTER,
        "KavipVIPWithoutMaster",
        "2 Services or virtualIPs of group lb/edge have a VIP that no node holds.",
    ),
    unadvertised(
        Reason.SPLIT_BRAIN,
        "KavipVIPSplitBrain",
        "2 Services or virtualIPs of group lb/edge have a VIP that several nodes hold.",
    ),
    unadvertised(
        Reason.ADDRESS_CONFLICT, "KavipAddressConflict", "Another machine on the network has VIPs of group lb/edge."
    ),
    unadvertised(
        Reason.ENDPOINTS_OUTSIDE_GROUP,
        "KavipEndpointsOutsideGroup",
        "2 Services of group lb/edge have endpoints only on nodes outside it.",
    ),
    unadvertised(
        Reason.UNKNOWN,
        "KavipVIPHolderUnknown",
        "It is not known which node holds the VIPs of 2 Services or virtualIPs of group lb/edge.",
    ),
    Fault(
        "a VIP of the group itself that no node holds",
        "KavipVIPWithoutMaster",
        {OWN_VIPS % (LEADER, "NoMaster"): BROKEN.format(1)},
        GROUP,
        "1 Services or virtualIPs of group lb/edge have a VIP that no node holds.",
    ),
    Fault(
        "a VIP of the group itself that several nodes hold",
        "KavipVIPSplitBrain",
        {OWN_VIPS % (LEADER, "SplitBrain"): BROKEN.format(1)},
        GROUP,
        "1 Services or virtualIPs of group lb/edge have a VIP that several nodes hold.",
    ),
    Fault(
        "a stranger of a VIP of the group",
        "KavipAddressConflict",
        {DUPLICATES: BROKEN.format(1)},
        GROUP,
        "Another machine on the network has VIPs of group lb/edge.",
    ),
    Fault(
        "flapping",
        "KavipVIPFlapping",
        {MOVES % NODE: GROWS},
        {"namespace": "lb", "name": "shop/web"},
        "The VIPs of instance shop/web moved 60 times in an hour.",
    ),
    Fault(
        "flapping, with the names of mehdy",
        "KavipVIPFlapping",
        {MOVES_OF_MEHDY: GROWS},
        {"namespace": "lb", "iname": "shop/web"},
        "The VIPs of instance shop/web moved 60 times in an hour.",
    ),
    Fault(
        "a VRID of others",
        "KavipVRIDCollision",
        {COLLISIONS: BROKEN.format(1)},
        GROUP,
        "Another router on the network uses 1 VRIDs of group lb/edge.",
    ),
    Fault(
        "a full pool",
        "KavipPoolExhausted",
        {WAITING % (LEADER, "edge", "PoolExhausted"): "_x60 3x59 stale", POOL % (LEADER, "edge", "available"): "0x239"}
        | {POOL % (LEADER, "edge", "total"): "9x59 16x59 9x119"},
        {"pool": "edge"},
        "3 Services get no address, because pool edge is full.",
    ),
    Fault(
        "a pool that is almost full",
        "KavipPoolNearlyExhausted",
        {POOL % (LEADER, "edge", "available"): "2x59 1x59 2x119"},
        {"pool": "edge", "family": "ipv4"},
        "Pool edge has 1 free ipv4 addresses left.",
    ),
    Fault(
        "a request that cannot be read",
        "KavipServicesWaiting",
        {WAITING % (LEADER, "", "InvalidRequest"): "_x60 1x59 stale"},
        {"pool": "", "reason": "InvalidRequest"},
        "1 Services get no address: InvalidRequest.",
    ),
    condition("Accepted", Reason.INVALID, "KavipGroupNotAccepted", "Group lb/edge is not accepted: Invalid."),
    condition(
        "Programmed",
        Reason.REFUSED_BY_AGENT,
        "KavipConfigurationRefused",
        "Nodes of group lb/edge refuse the configuration: RefusedByAgent.",
    ),
    condition(
        "Programmed",
        Reason.SECRET_MISSING,
        "KavipConfigurationRefused",
        "Nodes of group lb/edge refuse the configuration: SecretMissing.",
    ),
    condition(
        "Programmed",
        Reason.PENDING,
        "KavipNodesBehind",
        "Nodes of group lb/edge do not run the newest configuration.",
    ),
    condition("Ready", Reason.PODS_NOT_READY, "KavipPodsNotReady", "Group lb/edge lacks ready pods: PodsNotReady."),
    condition("Ready", Reason.NO_NODES, "KavipPodsNotReady", "Group lb/edge lacks ready pods: NoNodes."),
    Fault(
        "a silent agent",
        "KavipAgentsSilent",
        {AGENTS % (LEADER, "silent"): BROKEN.format(1), AGENTS % (LEADER, "answering"): "3x59 2x59 3x119"},
        GROUP,
        "The agents of 1 nodes of group lb/edge do not answer any more.",
    ),
    Fault(
        "no keepalived",
        "KavipKeepalivedDown",
        {UP % NODE: "1x59 0x59 1x119"},
        OF_NODE,
        "keepalived does not run on 192.0.2.11:9650.",
    ),
    Fault(
        "a health check",
        "KavipHealthCheckFailing",
        {CHECK % NODE: "1x59 0x59 1x119"},
        {**OF_NODE, "check": "api"},
        "Health check api fails on 192.0.2.11:9650.",
    ),
    Fault(
        "no leader",
        "KavipLeaderMissing",
        {LEADS % LEADER: "1x59 0x59 1x119"},
        {},
        "No replica of kavip leads: addresses are not assigned, and VIPs are not watched.",
    ),
    Fault(
        "no replica",
        "KavipLeaderMissing",
        {LEADS % LEADER: "1x59 stale _x59 1x119", LEADS % STANDBY: "0x59 stale _x59 0x119"},
        {},
        "No replica of kavip leads: addresses are not assigned, and VIPs are not watched.",
    ),
    Fault(
        "a broken watch",
        "KavipWatchBroken",
        {ERRORS % LEADER: GROWS},
        {"kind": "Service"},
        "kavip fails to list or watch objects of kind Service.",
    ),
    Fault(
        "writes that fail",
        "KavipReconcileErrors",
        {RECONCILES: GROWS},
        {"kind": "service"},
        "Reconciles of kind service fail again and again.",
    ),
    Fault(
        "a write that times out after each longest back-off",
        "KavipReconcileErrors",
        {RECONCILES: "0x59 1x5 2x5 3x5 4x5 5x5 6x5 7x5 8x5 9x5 10x5 10x119"},
        {"kind": "service"},
        "Reconciles of kind service fail again and again.",
    ),
    Fault(
        "dropped Events",
        "KavipEventsDropped",
        {DROPPED: GROWS},
        {},
        "kavip could not send 15 Events.",
    ),
    Fault(
        "a rule that raises",
        "KavipWebhookErrors",
        {REVIEWS: GROWS},
        {"path": "/validate-service"},
        "The webhook /validate-service failed to judge 15 requests.",
    ),
    Fault(
        "slow reviews",
        "KavipWebhookSlow",
        {SECONDS % "0.1": "0+60x59 3600x59 3660+60x119", SECONDS % "2.5": "0+60x239"},
        {"path": "/validate-service"},
        "The webhook /validate-service needs 2.476 s for its slowest requests.",
    ),
    Fault(
        "a certificate that is not renewed",
        "KavipCertificateExpiring",
        {EXPIRY: "600000x59 50000x59 600000x119"},
        {"certificate": "leaf"},
        "The certificate leaf expires in 11h 54m 20s.",
    ),
]

OF_LEADER = ("kavip_services", "kavip_group", "kavip_agents")
QUIET: Mapping[str, Mapping[str, str]] = {
    "all is well": {},
    "a roll-out over the nodes": {
        CONDITION % (LEADER, "Ready", "True", "Ready"): "1x59 _x20 1x158",
        CONDITION % (LEADER, "Ready", "False", "PodsNotReady"): "_x60 1x19 stale",
        AGENTS % (LEADER, "silent"): "0x59 1x1 0x4 1x1 0x4 1x1 0x160",
        UP % NODE: "1x59 stale",
        CURRENT % NODE: "1x59 stale",
        UP % LATER: "_x61 0 1x176",
        CURRENT % LATER: "_x61 0 1x176",
        MOVES % NODE: "2x59 stale",
        MOVES % LATER: "_x61 0 1x176",
        MOVES % 'namespace="lb",pod="edge-9",instance="192.0.2.12:9650"': "0x59 1x179",
    },
    "an upgrade of the controller and the webhook": {
        LEADS % LEADER: "1x59 stale",
        LEADS % STANDBY: "0x60 1x178",
        **{name: values.replace("239", "59 stale") for name, values in HEALTHY.items() if name.startswith(OF_LEADER)},
        ADVERTISED % (STANDBY, "Master"): "_x61 9x178",
        ADVERTISED % (STANDBY, "NoMaster"): "_x61 0x178",
        CONDITION % (STANDBY, "Programmed", "False", "Pending"): "_x61 1x4 stale",
        CONDITION % (STANDBY, "Programmed", "True", "Programmed"): "_x66 1x173",
        ERRORS % LEADER: "3x59 5 stale",
        ERRORS % STANDBY: "1x59 2x2 3x176",
        RECONCILES: "1x59 2 stale",
    },
    "a drain and a reboot of a node": {
        AGENTS % (LEADER, "silent"): "0x59 1x3 0x175",
        CONDITION % (LEADER, "Ready", "True", "Ready"): "1x59 _x5 1x173",
        CONDITION % (LEADER, "Ready", "False", "PodsNotReady"): "_x60 1x4 stale",
        CHECK % NODE: "1x59 0x3 1x175",
        UP % NODE: "1x59 stale _x3 0 1x174",
        MOVES % NODE: "2x59 stale _x3 0 1x174",
        MOVES % 'namespace="lb",pod="edge-9",instance="192.0.2.12:9650"': "0x59 1x179",
    },
    "a VIP that moves four times in half an hour": {  # each state has a series of its own
        MOVES % NODE: "1x9 stale _x9 2x9 stale _x9 3x9 stale _x9 4x179",
        (MOVES % NODE).replace("MASTER", "BACKUP"): "_x10 1x9 stale _x9 2x9 stale _x9 3x9 stale",
    },
    "a restart of the API server": {
        ERRORS % LEADER: "3x59 3+4x4 19x174",
        RECONCILES: "1x59 1+2x4 9x174",
    },
}
"""What happens in normal operation."""
