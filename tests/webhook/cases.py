"""
Every refusal, once: what is asked, of which cluster, and what the user reads.

The unit tests judge these objects with the policy; the tests with a real API server apply them with kubectl.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kavip import names
from kavip.api.group import GroupVirtualIP, Instances
from kavip.api.meta import LabelSelector
from kavip.api.pool import Reservation
from kavip.snapshot import Object, Snapshot
from tests.build import group, namespace, node, pool, service

GROUP = f"metadata.annotations[{names.GROUP_ANNOTATION}]"
SPREAD = f"metadata.annotations[{names.SPREAD_ANNOTATION}]"
VERBATIM = f"metadata.annotations[{names.VERBATIM_ANNOTATION}]"
POOL = f"metadata.annotations[{names.POOL_ANNOTATION}]"
ADDRESSES = f"metadata.annotations[{names.ADDRESSES_ANNOTATION}]"


def cluster() -> Snapshot:
    """One cluster for all cases: two groups, one of them full, two pools, a node in one of them, a holder."""
    full = list(range(3, 256))
    return Snapshot.from_objects(
        [
            namespace("shop"),
            namespace("guest"),
            node("n1", "192.0.2.131"),
            pool("edge", exclude=["192.0.2.140"], reservations=[Reservation(address="192.0.2.139", service="a/b")]),
            pool("staff", "198.51.100.0/30", groups=["lb/other"]),
            group("lb/edge", default=True, blacklist_router_ids=[1, 2], segment="default"),
            group("lb/other"),
            group("lb/full", blacklist_router_ids=full, segment="full"),
            group("lb/closed", allowed_namespaces=LabelSelector(match_labels={"team": "net"})),
            service("shop/first", group="lb/full", holds=["192.0.2.130"]),
            service("shop/second", group="lb/full"),
        ]
    )


@dataclass(frozen=True)
class Case:
    """*sentence*; the object; field and message of each cause. *shape*: the CRD refuses it before kavip does."""

    sentence: str
    asked: Object
    causes: Sequence[tuple[str, str]]
    code: int = 422
    shape: bool = False


def cause(field: str, message: str) -> tuple[str, str]:
    """One cause: kubectl prints ``field: message``."""
    return field, message


def _verbatim(text: str) -> dict[str, str]:
    return {names.VERBATIM_ANNOTATION: text}


SERVICES = [
    Case(
        "a group without a namespace",
        service("shop/web", group="edge"),
        [(GROUP, '"edge": want <namespace>/<name> of a KeepalivedGroup, both DNS names; did you mean "lb/edge"?')],
    ),
    Case(
        "a group that is no DNS name",
        service("shop/web", group="lb/Edge!"),
        [(GROUP, '"lb/Edge!": want <namespace>/<name> of a KeepalivedGroup, both DNS names')],
    ),
    Case(
        "a group that does not exist",
        service("shop/web", group="lb/edeg"),
        [(GROUP, 'group "lb/edeg" does not exist; did you mean "lb/edge"?')],
    ),
    Case(
        "a group that is like no other",
        service("shop/web", group="nowhere/nothing"),
        [
            cause(
                GROUP,
                'group "nowhere/nothing" does not exist; groups: lb/closed, lb/edge, lb/full, lb/other',
            )
        ],
    ),
    Case(
        "a namespace that the group does not serve",
        service("shop/web", group="lb/closed"),
        [
            cause(
                GROUP,
                'group "lb/closed" does not serve namespace shop (spec.allowedNamespaces); '
                "name another group, or have the namespace labelled",
            )
        ],
        code=403,
    ),
    Case(
        "spreadvips that is neither true nor false",
        service("shop/web", group="lb/edge", annotations={names.SPREAD_ANNOTATION: "yes"}),
        [(SPREAD, '"yes": want "true" or "false"')],
    ),
    Case(
        "verbatimconfig that is no JSON",
        service("shop/web", group="lb/edge", annotations=_verbatim("garp_master_repeat 2")),
        [(VERBATIM, """'garp_master_repeat 2': want a JSON object of strings, such as {"garp_master_repeat": "2"}""")],
    ),
    Case(
        "verbatimconfig with a keyword that runs programs",
        service("shop/web", group="lb/edge", annotations=_verbatim('{"notify": "/bin/sh"}')),
        [(VERBATIM, "'notify': it runs programs or reads files, which no Service may; remove it")],
    ),
    Case(
        "a group without a VRID left",
        service("shop/web", group="lb/full"),
        [
            cause(
                GROUP,
                'group "lb/full" has 0 virtual router IDs left, this Service needs 1: 255 - 253 blacklisted - 2 in use '
                'on segment "full"; name a group of another segment, or one with spec.instances.mode: Shared',
            )
        ],
    ),
    Case(
        "a pool that does not exist",
        service("shop/web", group="lb/edge", pool="egde"),
        [(POOL, 'pool "egde" does not exist; did you mean "edge"?')],
    ),
    Case(
        "a pool that serves other groups",
        service("shop/web", group="lb/edge", pool="staff"),
        [(POOL, "pool staff serves only KeepalivedGroup lb/other; name another pool")],
    ),
    Case(
        "an address that is none",
        service("shop/web", group="lb/edge", wants="192.0.2.999"),
        [(ADDRESSES, "'192.0.2.999': want one IPv4 or IPv6 address, such as 192.0.2.10 or 2001:db8::10")],
    ),
    Case(
        "an address outside every pool",
        service("shop/web", group="lb/edge", wants="203.0.113.1"),
        [
            cause(
                ADDRESSES,
                "address 203.0.113.1 is in no pool; "
                "pools: edge 192.0.2.128-192.0.2.139, 192.0.2.141-192.0.2.143, staff 198.51.100.0/30",
            )
        ],
    ),
    Case(
        "an address that another Service has",
        service("shop/web", group="lb/edge", wants="192.0.2.130"),
        [
            cause(
                ADDRESSES,
                "address 192.0.2.130 is used by Service shop/first; "
                "ask for another or share it with kavip.io/sharing-key",
            )
        ],
    ),
    Case(
        "an address of a node",
        service("shop/web", group="lb/edge", wants="192.0.2.131"),
        [(ADDRESSES, "address 192.0.2.131 is an address of Node n1; ask for another")],
    ),
    Case(
        "an address that is excluded",
        service("shop/web", group="lb/edge", wants="192.0.2.140"),
        [(ADDRESSES, "address 192.0.2.140 is excluded from pool edge; ask for another")],
    ),
    Case(
        "an address that is reserved for another",
        service("shop/web", group="lb/edge", wants="192.0.2.139"),
        [(ADDRESSES, "address 192.0.2.139 is reserved for Service a/b in pool edge; ask for another")],
    ),
    Case(
        "an address of a family that the Service does not have",
        service("shop/web", group="lb/edge", wants="2001:db8::1"),
        [
            cause(
                ADDRESSES,
                "2001:db8::1 is IPv6, but the Service has only IPv4; ask for IPv4, or change spec.ipFamilies",
            )
        ],
    ),
    Case(
        "an external IP outside every pool",
        service("shop/web", group="lb/edge", external_ips=["203.0.113.1"]),
        [
            cause(
                "spec.externalIPs[0]",
                '"203.0.113.1": in no VIPPool; choose an address of edge (192.0.2.128/28), staff (198.51.100.0/30)',
            )
        ],
    ),
    Case(
        "an external IP that another Service has",
        service("shop/web", group="lb/edge", type="ClusterIP", external_ips=["192.0.2.130"]),
        [
            cause(
                "spec.externalIPs[0]",
                '"192.0.2.130": in use by Service shop/first; choose another address, or share it by '
                "kavip.io/sharing-key",
            )
        ],
    ),
    Case(
        "everything at once",
        service(
            "shop/web",
            group="lb/edeg",
            pool="egde",
            external_ips=["203.0.113.1"],
            annotations={names.SPREAD_ANNOTATION: "yes"},
        ),
        [
            (GROUP, 'group "lb/edeg" does not exist; did you mean "lb/edge"?'),
            (SPREAD, '"yes": want "true" or "false"'),
            (POOL, 'pool "egde" does not exist; did you mean "edge"?'),
            cause(
                "spec.externalIPs[0]",
                '"203.0.113.1": in no VIPPool; choose an address of edge (192.0.2.128/28), staff (198.51.100.0/30)',
            ),
        ],
    ),
]

GROUPS = [
    Case(
        "a second default group",
        group("lb/new", default=True),
        [
            cause(
                f"metadata.labels[{names.DEFAULT_GROUP_LABEL}]",
                '"true": lb/edge is the default group already; remove the label there first',
            )
        ],
    ),
    Case(
        "a blacklist outside 1 to 255",
        group("lb/new", blacklist_router_ids=[0, 256]),
        [
            ("spec.blacklistRouterIDs[0]", "0: want a VRID from 1 to 255"),
            ("spec.blacklistRouterIDs[1]", "256: want a VRID from 1 to 255"),
        ],
        shape=True,
    ),
    Case(
        "a blacklist that names a VRID twice",
        group("lb/new", blacklist_router_ids=[7, 7]),
        [("spec.blacklistRouterIDs[1]", "7: already at blacklistRouterIDs[0]; remove it")],
        shape=True,
    ),
    Case(
        "a blacklist that leaves too few VRIDs",
        group("lb/full", blacklist_router_ids=list(range(2, 256)), segment="full"),
        [
            cause(
                "spec.blacklistRouterIDs",
                "the instances of this group need 2 virtual router IDs, but only 1 can be had: 255 - 254 blacklisted - "
                '2 in use on segment "full"; blacklist fewer, choose another segment, or set spec.instances.mode: '
                "Shared",
            )
        ],
    ),
    Case(
        "shared instances without room",
        group("lb/new", blacklist_router_ids=list(range(2, 256)), instances=Instances(mode="Shared", count=4)),
        [("spec.instances.count", "4: the blacklist leaves 1 VRIDs; want at most that many")],
    ),
    Case(
        "a virtual IP that a Service has",
        group("lb/new", virtual_ips=[GroupVirtualIP(address="192.0.2.130/24")]),
        [("spec.virtualIPs[0].address", '"192.0.2.130/24": in use by Service shop/first; choose another address')],
    ),
    Case(
        "a keyword of global_defs that runs programs",
        group("lb/new", verbatim_config={"startup_script": "/bin/sh"}),
        [
            cause(
                "spec.verbatimConfig[startup_script]",
                "'/bin/sh': runs programs or writes files: set spec.allowScripts, or remove it",
            )
        ],
    ),
]

POOLS = [
    Case(
        "a pool that overlaps another",
        pool("new", "192.0.2.136/29"),
        [
            cause(
                "spec.addresses",
                "192.0.2.136/29 overlaps 192.0.2.128/28 of pool edge; remove it from one of the two",
            )
        ],
    ),
    Case(
        "a range with host bits",
        pool("new", "203.0.113.7/24"),
        [("spec.addresses[0]", "'203.0.113.7/24': has host bits set; write 203.0.113.0/24 or 203.0.113.7")],
        shape=True,
    ),
    Case(
        "a range that is reversed",
        pool("new", "203.0.113.9-203.0.113.1"),
        [("spec.addresses[0]", "'203.0.113.9-203.0.113.1': is reversed; write 203.0.113.1-203.0.113.9")],
    ),
    Case(
        "an exclusion outside the pool",
        pool("new", "203.0.113.0/28", exclude=["203.0.113.200"]),
        [("spec.exclude[0]", "'203.0.113.200': is outside spec.addresses; remove it")],
    ),
    Case(
        "a shrink that strands a Service",
        pool("edge", "192.0.2.136/29"),
        [
            cause(
                "spec.addresses",
                "leaves 1 address in use without a pool: shop/first (192.0.2.130); move these Services first, or "
                'annotate the pool kavip.io/allow-stranding: "true"',
            )
        ],
    ),
    Case(
        "an exclusion that strands a Service",
        pool("edge", exclude=["192.0.2.130"]),
        [
            cause(
                "spec.exclude",
                "leaves 1 address in use without a pool: shop/first (192.0.2.130); move these Services first, or "
                'annotate the pool kavip.io/allow-stranding: "true"',
            )
        ],
    ),
]

ALL = [*SERVICES, *GROUPS, *POOLS]
