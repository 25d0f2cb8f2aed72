"""Why a Service has an address or none: Service in, condition out, for each reason of ``AddressAssigned``."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from kavip import names
from kavip.api.meta import LabelSelector
from kavip.api.pool import Reservation
from kavip.api.service import Service
from kavip.names import Reason
from kavip.reconcile.plan import ConditionState, ReconcileOptions, ServicePlan
from kavip.reconcile.service.reconcile import plan_service
from kavip.snapshot import Object
from tests.reconcile.service.planning import ASSIGNED, WEB, web, with_condition
from tests.reconcile.simulatedcluster import GROUP, NOW, body_of, cluster
from tests.support import build

PROD = LabelSelector(match_labels={"env": "prod"})
EDGE = build.pool("edge", "192.0.2.128-192.0.2.141")
HOLDERS = [build.service(f"shop/h{n}", group=GROUP, holds=[f"192.0.2.{128 + n}"]) for n in range(14)]
DUAL: dict[str, Any] = {"families": ("IPv4", "IPv6"), "ip_family_policy": "RequireDualStack"}


def lab(name: str, third: int, **more: Any) -> Object:
    """A pool with free addresses."""
    return build.pool(name, f"198.51.{third}.0/24", **more)


class Case(NamedTuple):
    """*service* with *objects*, and its expected condition."""

    reason: Reason
    status: str
    message: str
    service: Service
    objects: tuple[Object, ...]
    options: ReconcileOptions = ReconcileOptions()


CASES = (
    Case(Reason.ASSIGNED, "True", "192.0.2.128 from pool edge", web(), (EDGE,)),
    Case(
        Reason.ASSIGNED,
        "True",
        "192.0.2.128 from pool edge; no IPv6 address yet: pool edge has none to give",
        web(families=("IPv4", "IPv6"), ip_family_policy="PreferDualStack"),
        (EDGE,),
    ),
    Case(
        Reason.ASSIGNED,
        "True",
        "192.0.2.128 from pool edge; no IPv6 address yet: "
        "namespace shop may hold no more addresses of pool edge (maxPerNamespace)",
        web(families=("IPv4", "IPv6"), ip_family_policy="PreferDualStack"),
        (build.pool("edge", "192.0.2.128/30", "2001:db8::/126", max_per_namespace=1),),
    ),
    Case(
        Reason.ASSIGNED,
        "True",
        "192.0.2.128 from pool edge; no IPv6 address yet: pool edge has none to give",
        web(families=("IPv4", "IPv6"), ip_family_policy="PreferDualStack"),
        (build.pool("edge", "192.0.2.128/30", max_per_namespace=1),),
    ),
    Case(
        Reason.STRANDED,
        "True",
        "keeps 203.0.113.7, although 203.0.113.7 is in no pool; "
        'set kavip.io/reassign to "true" to move to a legal address',
        with_condition(web(holds=["203.0.113.7"]), ASSIGNED, "True", "Assigned", message="203.0.113.7 from pool old"),
        (EDGE,),
    ),
    Case(
        Reason.FOREIGN_STATUS,
        "True",
        "203.0.113.7 was written by another controller, and kavip leaves it alone, because 203.0.113.7 is in no pool; "
        'set kavip.io/reassign to "true" to get an address from kavip',
        web(holds=["203.0.113.7"]),
        (EDGE,),
    ),
    Case(Reason.NO_POOL, "False", "there is no VIPPool; create one", web(), ()),
    Case(
        Reason.NO_POOL,
        "False",
        "no pool has autoAssign: true; name one with kavip.io/pool: office",
        web(),
        (lab("lab", 100, auto_assign=False, namespace_selector=PROD), lab("office", 101, auto_assign=False)),
    ),
    Case(
        Reason.NO_POOL,
        "False",
        "no pool has autoAssign: true; pool lab cannot serve namespace shop (namespaceSelector); "
        "let a pool select it or add one",
        web(),
        (lab("lab", 100, auto_assign=False, namespace_selector=PROD),),
    ),
    Case(
        Reason.NO_POOL,
        "False",
        "pool edge is not in force: spec.addresses[0]: '10.0.0.1/8': has host bits set; write 10.0.0.0/8 or "
        "10.0.0.1; fix it",
        web(),
        (build.pool("edge", "10.0.0.1/8"),),
    ),
    Case(Reason.POOL_NOT_FOUND, "False", 'pool "egde" does not exist; did you mean "edge"?', web(pool="egde"), (EDGE,)),
    Case(
        Reason.POOL_SELECTOR_MISMATCH,
        "False",
        "pool lab cannot serve namespace shop (namespaceSelector); name another pool; pools that would serve: edge",
        web(pool="lab"),
        (EDGE, lab("lab", 100, namespace_selector=PROD)),
    ),
    Case(
        Reason.POOL_SELECTOR_MISMATCH,
        "False",
        "pools lab, office cannot serve the labels of Service shop/web (serviceSelector); "
        "name one with kavip.io/pool: spare",
        web(),
        (
            lab("lab", 100, service_selector=PROD),
            lab("office", 101, service_selector=PROD),
            lab("spare", 102, auto_assign=False),
        ),
    ),
    Case(
        Reason.POOL_EXHAUSTED,
        "False",
        "pool edge is full: 14 of 14 assigned; free an address or enlarge the pool",
        web(),
        (EDGE, *HOLDERS),
    ),
    Case(
        Reason.POOL_EXHAUSTED,
        "False",
        "pool edge is full: 14 of 14 assigned; "
        "pools office, lab have room but cannot serve namespace shop (namespaceSelector); "
        "pool other has room but can serve only KeepalivedGroup lb/other (groups); "
        "pool spare has room but must be requested (autoAssign: false; set kavip.io/pool); "
        "free an address or enlarge the pool",
        web(),
        (
            EDGE,
            lab("lab", 100, namespace_selector=PROD),
            lab("office", 101, namespace_selector=PROD, priority=50),
            lab("other", 102, groups=["lb/other"]),
            lab("spare", 103, auto_assign=False),
            *HOLDERS,
        ),
    ),
    Case(
        Reason.POOL_EXHAUSTED,
        "False",
        "pool edge is full: 14 of 14 assigned; free an address or enlarge the pool; pools that would serve: lab, spare",
        web(pool="edge"),
        (
            EDGE,
            lab("lab", 100),
            lab("office", 101, namespace_selector=PROD),
            lab("spare", 102, auto_assign=False),
            *HOLDERS,
        ),
    ),
    Case(
        Reason.POOL_EXHAUSTED,
        "False",
        "pool edge is full: 1 of 3 assigned, 2 kept back (reservations, nodes, groups, API server); "
        "free an address or enlarge the pool",
        web(),
        (
            build.pool(
                "edge", "192.0.2.128-192.0.2.130", reservations=[Reservation(address="192.0.2.129", service="shop/b")]
            ),
            build.service("shop/h", group=GROUP, holds=["192.0.2.128"]),
            build.node("n9", "192.0.2.130"),
        ),
    ),
    Case(
        Reason.POOL_EXHAUSTED,
        "False",
        "pool edge is full: IPv6 1 of 1 assigned; free an address or enlarge the pool",
        web(**DUAL),
        (
            build.pool("edge", "192.0.2.128/28", "2001:db8::1"),
            build.service("shop/h", group=GROUP, holds=["2001:db8::1"], families=("IPv6",)),
        ),
    ),
    Case(
        Reason.ADDRESS_NOT_IN_POOL,
        "False",
        "address 10.0.0.1 is in no pool; pools: edge 192.0.2.128-192.0.2.141",
        web(wants="10.0.0.1"),
        (EDGE,),
    ),
    Case(
        Reason.ADDRESS_IN_USE,
        "False",
        "address 192.0.2.130 is used by Service shop/h2; ask for another or share it with kavip.io/sharing-key",
        web(wants="192.0.2.130"),
        (EDGE, HOLDERS[2]),
    ),
    Case(
        Reason.ADDRESS_NOT_ALLOWED,
        "False",
        "address 192.0.2.130 is an address of Node n9; ask for another",
        web(wants="192.0.2.130"),
        (EDGE, build.node("n9", "192.0.2.130")),
    ),
    Case(
        Reason.ADDRESS_NOT_ALLOWED,
        "False",
        "address 192.0.2.130 is excluded from pool edge; ask for another",
        web(wants="192.0.2.130"),
        (build.pool("edge", "192.0.2.128/28", exclude=["192.0.2.130"]),),
    ),
    Case(
        Reason.SHARING_REFUSED,
        "False",
        "address 192.0.2.130 is used by Service shop/h and cannot be shared: both use TCP/80; ask for another",
        web(wants="192.0.2.130", annotations={names.SHARING_KEY_ANNOTATION: "k"}),
        (
            EDGE,
            build.service(
                "shop/h", group=GROUP, holds=["192.0.2.130"], annotations={names.SHARING_KEY_ANNOTATION: "k"}
            ),
        ),
    ),
    Case(
        Reason.FAMILY_NOT_AVAILABLE,
        "False",
        "pool edge has no IPv6 addresses; add them to a pool or change spec.ipFamilyPolicy",
        web(**DUAL),
        (EDGE,),
    ),
    Case(
        Reason.QUOTA_EXCEEDED,
        "False",
        "namespace shop has 2 of 2 addresses of pool edge (maxPerNamespace); free one or ask for a larger quota; "
        "pools that would serve: lab",
        web(pool="edge"),
        (build.pool("edge", max_per_namespace=2), lab("lab", 100), *HOLDERS[:2]),
    ),
    Case(
        Reason.QUOTA_EXCEEDED,
        "False",
        "namespace shop has 0 of 1 addresses of pool edge (maxPerNamespace), and both families need 2; free one or ask "
        "for a larger quota",
        web(**DUAL),
        (build.pool("edge", "192.0.2.128/30", "2001:db8::/126", max_per_namespace=1),),
    ),
    Case(
        Reason.INVALID_REQUEST,
        "False",
        "metadata.annotations[kavip.io/addresses]: '10.0.0': want one IPv4 or IPv6 address, such as 192.0.2.10 or "
        "2001:db8::10",
        web(wants="10.0.0"),
        (EDGE,),
    ),
    Case(
        Reason.LEFT_TO_PLATFORM,
        "Unknown",
        "the cluster's Network assigns addresses (spec.externalIP.autoAssignCIDRs); "
        "annotate the Service with kavip.io/pool to get one from kavip",
        web(),
        (EDGE, build.network("198.51.100.0/24")),
    ),
    Case(
        Reason.LEFT_TO_PLATFORM,
        "Unknown",
        "kavip assigns no addresses here (--ipam never): set spec.externalIPs, or let another controller assign",
        web(),
        (EDGE,),
        ReconcileOptions(ipam="never"),
    ),
)


def planned(service: Service, *objects: Object, options: ReconcileOptions = ReconcileOptions()) -> ServicePlan:  # noqa: B008 - frozen
    """The plan of *service*."""
    return plan_service(cluster(service, build.group(), *objects), WEB, now=NOW, options=options)


def condition(plan: ServicePlan) -> Mapping[str, Any]:
    """``AddressAssigned``, as *plan* writes it."""
    found: Mapping[str, Any] = next(each for each in body_of(plan)["conditions"] if each["type"] == ASSIGNED)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.reason)
def test_every_reason_has_its_message(case: Case) -> None:
    """
    It has the object, the number and the next step. The Event has the same text, and waiting is counted by reason.
    """
    plan = planned(case.service, *case.objects, options=case.options)
    found = condition(plan)
    assert (found["status"], found["reason"], found["message"]) == (case.status, case.reason, case.message)
    told_of = [(notice.reason, notice.message) for notice in plan.events if notice.reason == case.reason]
    assert told_of == (
        [] if case.reason is Reason.ASSIGNED and case.service.status.conditions else [(case.reason, case.message)]
    )
    assert plan.unmet == (case.reason if case.status == "False" else "")


def test_every_reason_is_in_the_table() -> None:
    """The table has each reason that a Service may get for its address."""
    every = list(Reason)
    assert {case.reason for case in CASES} == set(every[: every.index(Reason.LEFT_TO_PLATFORM) + 1])


def test_a_lost_address_is_named_with_its_new_holder() -> None:
    """The condition has the state, and may be unchanged. The Event has the change."""
    full = "pool edge is full: 1 of 1 assigned; free an address or enlarge the pool"
    mine = with_condition(web(holds=["192.0.2.128"], created="2025"), ASSIGNED, "False", "PoolExhausted", message=full)
    older = build.service("shop/old", group=GROUP, holds=["192.0.2.128"], created="2020")
    plan = planned(mine, build.pool("edge", "192.0.2.128"), older)
    assert body_of(plan)["loadBalancer"] == {"ingress": None}
    assert [(notice.message, notice.warning) for notice in plan.events if notice.reason == "PoolExhausted"] == [
        (f"{full} (was 192.0.2.128; 192.0.2.128 belongs to Service shop/old, which is older)", True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "service",
    [
        web(wants="9" * 250_000),
        web(wants="192.0.2.1," * 25_000),
        web(pool="p" * 250_000),
        web(annotations={names.SHARING_KEY_ANNOTATION: "\u2603" * 80_000}, wants="172.16.0.4"),
        web(annotations={names.SHARING_KEY_ANNOTATION: "\n" * 250_000}),
        web(load_balancer_ip="\u2603" * 250_000),
        web(annotations={names.REASSIGN_ANNOTATION: "\U0001f40c" * 60_000}),
        web(holds=[f"203.0.{n // 250}.{n % 250}" for n in range(2_000)]),
        with_condition(web(holds=[f"192.0.{n // 250}.{n % 250}" for n in range(2_000)]), ASSIGNED, "True", "Assigned"),
        web(pool="many"),
        web(wants="203.0.113.1"),
        web(),
    ],
)
def test_the_length_of_a_message_is_limited(service: Service) -> None:
    """The API server accepts 32,768 bytes. The comparison uses the shortened text, so it is written once."""
    groups = [f"{'n' * 63}/{'.'.join(['g' * 63] * 3)}.g{n}" for n in range(64)]
    pools = [build.pool(f"p{n:03}{'x' * 240}", f"10.{n}.0.0/24", groups=groups[n:]) for n in range(40)]
    spans = [f"172.16.{n // 64}.{n % 64 * 4}" for n in range(4_000)]
    pools.append(build.pool("many", *spans, groups=groups))
    plan = planned(service, *pools)
    message = condition(plan)["message"]
    assert len(message.encode()) <= 8_192
    assert "\n" not in message


def test_a_verdict_limits_its_message() -> None:
    """The condition fits for any text of an agent or an object."""
    assert len(ConditionState("False", "Invalid", "\U0001f40c" * 100_000).message.encode()) < 32_768
