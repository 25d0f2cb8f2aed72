"""The policy: what is refused and in which words, what passes, and what an update may leave as it was."""

import msgspec
import pytest

from kavip import names
from kavip.api.cluster import ExternalIP, ExternalIPPolicy, Network, NetworkSpec
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import LabelSelector, Metadata
from kavip.api.pool import Reservation
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.names import Reason
from kavip.snapshot import Object, Snapshot
from kavip.webhook import policy, services, verdict
from kavip.webhook.checks import Options
from kavip.webhook.verdict import Awaited, Subject, Verdict
from tests.build import group, metadata, namespace, node, pool, service

SHOP = namespace("shop")
EDGE = group("lb/edge", segment="default")


def create(asked: Object, *world: Object, options: Options | None = None) -> Verdict:
    """Judge the creation of *asked* in *world*."""
    snapshot = Snapshot.from_objects(world)
    return policy.review(Review(Operation.CREATE, asked), snapshot, options=options or Options())


def update(old: Object, new: Object, *world: Object) -> Verdict:
    """Judge the change of *old*, which is part of *world*, to *new*."""
    return policy.review(Review(Operation.UPDATE, new, old), Snapshot.from_objects([*world, old]))


def reasons(found: Verdict) -> list[str]:
    """The reasons of all refusals."""
    return [refusal.reason for refusal in found.refusals]


# --- Services -----------------------------------------------------------------------------------------------------
def test_a_clean_service_hears_nothing() -> None:
    """A Service without a fault is allowed without a warning."""
    assert create(service("shop/web", group="lb/edge"), EDGE, pool(), SHOP) == policy.PASSED


def test_a_plain_service_of_the_default_group_is_judged() -> None:
    """What the default group takes must be right, too: an address outside every pool is refused."""
    found = create(service("shop/web", wants="203.0.113.9"), group("lb/edge", default=True), pool(), SHOP)
    assert reasons(found) == [Reason.ADDRESS_NOT_IN_POOL]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (service("shop/web", pool="gone"), "it has neither group annotation nor class, and no default group takes it"),
        (
            service("shop/web", group="no", pool="gone", load_balancer_class="example.com/other"),
            "its spec.loadBalancerClass is example.com/other",
        ),
        (
            service("shop/web", type="ClusterIP", pool="gone"),
            "it is not of type LoadBalancer, and has no externalIPs with a group annotation",
        ),
    ],
)
def test_a_service_that_is_not_managed_is_not_judged(asked: Service, why: str) -> None:
    """Only a warning tells that the annotations do nothing, and why."""
    found = create(asked, EDGE)
    field = "metadata.annotations[kavip.io/pool]"
    assert found == Verdict(warnings=(f"{field}: does nothing, for kavip does not manage this Service: {why}",))


def test_a_class_without_any_default_group_names_the_groups() -> None:
    """Our class without annotation needs a default group; the message lists those there are."""
    asked = service("shop/web", load_balancer_class=names.LOAD_BALANCER_CLASS)
    found = create(asked, EDGE, pool())
    assert [(refusal.field, refusal.message) for refusal in found.refusals] == [
        (
            "spec.loadBalancerClass",
            f'"kavip.io/keepalived": no group is the default one; annotate {names.GROUP_ANNOTATION}; groups: lb/edge',
        )
    ]


def test_what_may_be_on_its_way_is_named() -> None:
    """A missing group and a missing pool are both awaited: they may come with the same kubectl apply."""
    found = create(service("shop/web", group="lb/new", pool="new"), EDGE, pool())
    assert found.awaits == (Awaited(names.KEEPALIVED_GROUP, "lb/new"), Awaited(names.VIP_POOL, "new"))


def test_a_missing_group_may_be_softened_to_a_warning() -> None:
    """With allow_missing_group: warn the Service waits for its group."""
    asked = service("shop/web", group="lb/new")
    found = create(asked, EDGE, pool(), options=Options(allow_missing_group="warn"))
    assert found.allowed
    assert found.warnings == (
        f'{services.GROUP_FIELD}: group "lb/new" does not exist; did you mean "lb/edge"?; the Service waits for it',
    )


def test_a_group_that_is_being_deleted_takes_nobody() -> None:
    """A Service may not join a group that goes."""
    leaving = msgspec.structs.replace(EDGE, metadata=metadata("lb/edge", deletion_timestamp="2026-05-01T00:00:00Z"))
    found = create(service("shop/web", group="lb/edge"), leaving, pool())
    assert [refusal.message for refusal in found.refusals] == ['group "lb/edge" is being deleted; name another']


def test_a_service_that_only_has_to_wait_is_accepted() -> None:
    """No pool, and a full pool that is named: accepted with a warning, for others may free or add something."""
    full = pool("edge", "192.0.2.130")
    holder = service("shop/first", group="lb/edge", holds=["192.0.2.130"])
    for found in (
        create(service("shop/web", group="lb/edge"), EDGE),
        create(service("shop/web", group="lb/edge", pool="edge"), EDGE, full, holder),
    ):
        assert found.allowed
        assert [text.partition(":")[0] for text in found.warnings] == ["the Service waits for an address"]


def test_a_quota_is_forbidden_where_the_pool_is_named_and_waits_elsewhere() -> None:
    """Who names the pool gets 403; who does not may yet find another pool."""
    strict = pool("edge", max_per_namespace=0)
    named = create(service("shop/web", group="lb/edge", pool="edge"), EDGE, strict)
    assert reasons(named) == [Reason.QUOTA_EXCEEDED]
    answer = verdict.response("u1", named, Subject("Service", "web"))
    assert answer.status is not None
    assert (answer.status.code, answer.status.reason) == (403, "Forbidden")
    assert create(service("shop/web", group="lb/edge"), EDGE, strict).allowed


def test_several_findings_are_422_unless_all_are_403() -> None:
    """A mistake beside a quota is a mistake."""
    found = create(service("shop/web", group="lb/gone", pool="edge"), EDGE, pool("edge", max_per_namespace=0))
    assert reasons(found) == [Reason.GROUP_NOT_FOUND, Reason.QUOTA_EXCEEDED]
    answer = verdict.response("u1", found, Subject("Service", "web"))
    assert answer.status is not None
    assert answer.status.code == 422
    assert answer.status.message.startswith("2 problems: ")


def test_an_address_that_somebody_else_waits_for_is_told() -> None:
    """Two Services ask for one address, neither has it: accepted with a warning, the older one gets it."""
    first = service("shop/first", group="lb/edge", wants="192.0.2.130")
    found = create(service("shop/web", group="lb/edge", wants="192.0.2.130"), EDGE, pool(), first)
    assert found.allowed
    (warning,) = found.warnings
    assert warning == (
        "metadata.annotations[kavip.io/addresses]: 192.0.2.130 is asked for by Service shop/first too; "
        "the older one gets it"
    )


def test_an_edit_that_ends_sharing_is_refused() -> None:
    """A Service that shares its address may not be given a port that another one of them uses."""
    key = {names.SHARING_KEY_ANNOTATION: "k"}
    first = service("shop/a", group="lb/edge", port=80, annotations=key, holds=["192.0.2.130"])
    old = service("shop/b", group="lb/edge", port=81, annotations=key, holds=["192.0.2.130"])
    new = service("shop/b", group="lb/edge", port=80, annotations=key, holds=["192.0.2.130"])
    assert update(old, old, EDGE, pool(), first).allowed
    assert reasons(update(old, new, EDGE, pool(), first)) == [Reason.SHARING_REFUSED]


def test_the_platform_is_left_its_own() -> None:
    """Where OpenShift assigns addresses, a Service that names no kavip pool is not judged by kavip's pools."""
    network = Network(
        metadata=Metadata(name="cluster"),
        spec=NetworkSpec(external_ip=ExternalIP(auto_assign_cidrs=["198.51.100.0/24"])),
    )
    asked = service("shop/web", group="lb/edge")
    assert create(asked, EDGE, network) == policy.PASSED
    assert create(asked, EDGE, network, options=Options(ipam="always")).warnings
    assert create(asked, EDGE, options=Options(ipam="never")) == policy.PASSED


def test_unknown_and_empty_annotations_are_told() -> None:
    """A key under kavip.io/ that means nothing, and a value that says nothing, are warnings."""
    found = create(
        service("shop/web", group="lb/edge", annotations={"kavip.io/poool": "edge", names.POOL_ANNOTATION: ""}),
        EDGE,
        pool(),
    )
    assert found.warnings == (
        "metadata.annotations[kavip.io/pool]: is empty and counts as absent; remove it",
        "metadata.annotations[kavip.io/poool]: kavip does not know this key; did you mean kavip.io/pool?",
    )


@pytest.mark.parametrize("shared", [True, False])
def test_the_255_are_counted_over_the_segment(shared: bool) -> None:
    """Services of all groups of a segment count, with or without a VIP; leftovers and this Service itself do not."""
    one = group("lb/one", segment="s" if shared else "t", router_ids={"shop/a": 1, "gone/x": 9})
    other = group("lb/other", segment="s", blacklist_router_ids=list(range(3, 256)))
    members = [service("shop/a", group="lb/one"), service("shop/b", group="lb/other")]
    found = create(service("shop/web", group="lb/other"), one, other, *members, pool(), SHOP)
    assert reasons(found) == ([Reason.ROUTER_IDS_EXHAUSTED] if shared else [])
    again = update(members[1], members[1], one, other, members[0], pool())
    assert again.allowed


def test_spreading_takes_a_vrid_for_each_address() -> None:
    """Turning spreadvips on is refused where the VRIDs do not suffice, and says how many are needed."""
    tight = group("lb/edge", blacklist_router_ids=list(range(2, 256)))
    old = service("shop/web", group="lb/edge", external_ips=["192.0.2.133", "192.0.2.134"])
    new = service(
        "shop/web",
        group="lb/edge",
        external_ips=["192.0.2.133", "192.0.2.134"],
        annotations={names.SPREAD_ANNOTATION: "true"},
    )
    found = update(old, new, tight, pool())
    assert [refusal.message.partition(":")[0] for refusal in found.refusals] == [
        'group "lb/edge" has 1 virtual router ID left, this Service needs 3'
    ]


def test_a_shared_group_takes_any_number() -> None:
    """In Shared mode a Service needs no VRID of its own."""
    tight = group(
        "lb/edge",
        blacklist_router_ids=list(range(2, 256)),
        instances=msgspec.structs.replace(EDGE.spec.instances, mode="Shared", count=1),
    )
    members = [service(f"shop/s{number}", group="lb/edge") for number in range(300)]
    assert create(service("shop/web", group="lb/edge"), tight, pool(), *members).allowed


# --- externalIPs --------------------------------------------------------------------------------------------------
def _external(*addresses: str) -> Service:
    return service("shop/web", group="lb/edge", type="ClusterIP", external_ips=list(addresses))


def _network(**policy_: list[str]) -> Network:
    platform = ExternalIP(policy=ExternalIPPolicy(**policy_), auto_assign_cidrs=["10.9.0.0/24"])
    return Network(metadata=Metadata(name="cluster"), spec=NetworkSpec(external_ip=platform))


@pytest.mark.parametrize(
    ("address", "network", "expected"),
    [
        ("192.0.2.130", None, []),
        ("203.0.113.1", None, [Reason.ADDRESS_NOT_IN_POOL]),
        ("192.0.2.140", None, [Reason.ADDRESS_NOT_ALLOWED]),
        ("192.0.2.139", None, [Reason.ADDRESS_NOT_ALLOWED]),
        ("192.0.2.131", None, [Reason.ADDRESS_NOT_ALLOWED]),
        ("198.51.100.1", None, [Reason.POOL_SELECTOR_MISMATCH]),
        ("10.1.0.1", None, []),
        ("203.0.113.1", _network(allowed_cidrs=["203.0.113.0/24"]), []),
        (
            "203.0.113.1",
            _network(allowed_cidrs=["203.0.113.0/24"], rejected_cidrs=["203.0.113.0/28"]),
            [Reason.ADDRESS_NOT_ALLOWED],
        ),
        ("192.0.2.130", _network(), [Reason.ADDRESS_NOT_ALLOWED]),
        ("10.9.0.7", _network(), []),
    ],
)
def test_an_external_ip_must_have_been_given_away(
    address: str, network: Network | None, expected: list[Reason]
) -> None:
    """A platform policy binds first, then the pools: excluded, reserved, selected, a node's own."""
    world: list[Object] = [
        EDGE,
        SHOP,
        node("n1", "192.0.2.131"),
        pool("edge", exclude=["192.0.2.140"], reservations=[Reservation(address="192.0.2.139", service="a/b")]),
        pool("staff", "198.51.100.0/30", groups=["lb/other"]),
        pool("quiet", "10.1.0.0/24", auto_assign=False),
    ]
    found = create(_external(address), *world, *([network] if network else []))
    assert reasons(found) == expected


def test_external_ips_without_any_rule_are_a_warning() -> None:
    """With no pool and no policy anywhere nobody has said no."""
    found = create(_external("203.0.113.1"), EDGE)
    assert found.allowed
    assert found.warnings == (
        "spec.externalIPs[0]: 203.0.113.1: no VIPPool and no platform policy says who may have it; create a VIPPool",
    )


def test_an_external_ip_that_was_there_stays() -> None:
    """An old address is not judged when another one is added beside it; the new one is."""
    old = _external("203.0.113.1")
    assert update(old, _external("203.0.113.1", "192.0.2.130"), EDGE, pool()).allowed
    found = update(old, _external("203.0.113.1", "203.0.113.2"), EDGE, pool())
    assert [refusal.field for refusal in found.refusals] == ["spec.externalIPs[1]"]


def test_external_ips_may_be_left_unchecked() -> None:
    """With external_ips_scope: off nothing is said about them."""
    found = create(_external("203.0.113.1"), EDGE, pool(), options=Options(external_ips_scope="off"))
    assert found == policy.PASSED


# --- what passes --------------------------------------------------------------------------------------------------
def test_an_update_may_leave_an_old_violation() -> None:
    """What was wrong before and is not touched passes with a warning; what is touched is judged."""
    old = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "yes"})
    relabelled = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "yes"}, labels={"a": "b"})
    found = update(old, relabelled, EDGE, pool())
    assert found.allowed
    assert [text.partition(": ")[0] for text in found.warnings] == ["accepted, because it is not new"] * 2
    touched = service("shop/web", group="lb/gone", annotations={names.SPREAD_ANNOTATION: "no"}, labels={"a": "b"})
    assert [refusal.field for refusal in update(old, touched, EDGE, pool()).refusals] == [services.SPREAD_FIELD]


def test_becoming_managed_is_judged_like_creation() -> None:
    """A ClusterIP Service with an old annotation that becomes a LoadBalancer has everything judged."""
    old = service("shop/web", group="lb/gone", type="ClusterIP")
    assert reasons(update(old, service("shop/web", group="lb/gone"), EDGE, pool())) == [Reason.GROUP_NOT_FOUND]


def test_an_untouched_service_passes_when_its_world_got_worse() -> None:
    """A group that has become closed and full meanwhile refuses no edit of the Services that it has."""
    closed = group(
        "lb/edge",
        blacklist_router_ids=list(range(1, 256)),
        allowed_namespaces=LabelSelector(match_labels={"team": "net"}),
    )
    old = service("shop/web", group="lb/edge", holds=["192.0.2.130"])
    new = service("shop/web", group="lb/edge", holds=["192.0.2.130"], labels={"a": "b"})
    assert update(old, new, closed, SHOP, pool()).allowed


@pytest.mark.parametrize("asked", [service("shop/web", group="lb/gone"), group("lb/x", interface="no/good")])
def test_deletion_always_passes(asked: Service | KeepalivedGroup) -> None:
    """Neither a DELETE nor an edit of an object in deletion is judged."""
    assert policy.review(Review(Operation.DELETE, asked), Snapshot()) == policy.PASSED
    leaving = msgspec.structs.replace(
        asked, metadata=msgspec.structs.replace(asked.metadata, deletion_timestamp="2026-05-01T00:00:00Z")
    )
    assert policy.review(Review(Operation.UPDATE, leaving, asked), Snapshot()) == policy.PASSED


# --- groups and pools ---------------------------------------------------------------------------------------------
def test_an_old_group_may_be_edited_elsewhere() -> None:
    """A flaw that keepalived-operator let pass stays until its own field is edited."""
    old = group("lb/old", interface="much-too-long-a-name", verbatim_config={"notify": "x"})
    new = group("lb/old", interface="much-too-long-a-name", verbatim_config={"notify": "x"}, unicast_enabled=True)
    assert update(old, new).allowed
    touched = group("lb/old", interface="much-too-long-a-name!", verbatim_config={"notify": "x"})
    assert [refusal.field for refusal in update(old, touched).refusals] == ["spec.interface"]


def test_blacklisting_a_vrid_in_use_is_told() -> None:
    """The edit is accepted; the warning names the numbers whose VIPs will move."""
    old = group("lb/edge", router_ids={"shop/web": 7, "gone/x": 8})
    new = group("lb/edge", router_ids={"shop/web": 7, "gone/x": 8}, blacklist_router_ids=[7, 8])
    found = update(old, new, service("shop/web", group="lb/edge"))
    assert found.allowed
    assert found.warnings == ("spec.blacklistRouterIDs: 7: in use now; their VIPs will move to other instances",)


def test_a_change_of_running_instances_is_told() -> None:
    """A new interface is accepted, and its owner hears that VIPs will pause."""
    world = service("shop/web", group="lb/edge")
    old = group("lb/edge", router_ids={"shop/web": 7})
    found = update(old, group("lb/edge", router_ids={"shop/web": 7}, interface="eth1"), world)
    assert found.allowed
    assert [text.partition(":")[0] for text in found.warnings] == ["spec.interface"]


def test_a_selector_without_nodes_is_told() -> None:
    """A group that no node serves is accepted with a warning, unless no node is known at all."""
    asked = group("lb/edge", node_selector={"role": "edge"})
    assert create(asked, node("n1", "192.0.2.1")).warnings == (
        "spec.nodeSelector: selects no node; no VIP of this group will answer",
    )
    assert create(asked).warnings == ()


def test_the_default_group_may_be_edited() -> None:
    """The one default group is no second one."""
    only = group("lb/edge", default=True)
    assert update(only, group("lb/edge", default=True, unicast_enabled=True)).allowed


def test_deleting_a_pool_strands_nobody() -> None:
    """The refusal names the Services; with the annotation, or without holders, the pool may go."""
    holder = service("shop/web", group="lb/edge", holds=["192.0.2.130"])
    snapshot = Snapshot.from_objects([EDGE, pool(), holder])
    found = policy.review(Review(Operation.DELETE, pool()), snapshot)
    assert [refusal.field for refusal in found.refusals] == ["metadata.name"]
    willing = pool()
    notes = {names.ALLOW_STRANDING_ANNOTATION: "true"}
    willing = msgspec.structs.replace(willing, metadata=metadata("edge", annotations=notes))
    assert policy.review(Review(Operation.DELETE, willing), snapshot).allowed
    snapshot.drop(names.SERVICE, "shop/web")
    assert policy.review(Review(Operation.DELETE, pool()), snapshot).allowed


def test_many_stranded_services_are_counted() -> None:
    """The first twenty are listed, the rest is a number."""
    holders = [service(f"shop/s{i:02}", group="lb/edge", holds=[f"10.0.0.{i}"]) for i in range(1, 26)]
    found = update(pool("edge", "10.0.0.0/24"), pool("edge", "10.0.1.0/24"), EDGE, *holders)
    assert len(found.refusals) == 1
    assert "leaves 25 addresses in use without a pool: shop/s01 (10.0.0.1), " in found.refusals[0].message
    assert "shop/s20 (10.0.0.20) and 5 more; move" in found.refusals[0].message


def test_an_external_ip_that_loses_its_pool_is_told() -> None:
    """externalIPs are not taken away with the pool: a warning."""
    holder = service("shop/web", group="lb/edge", type="ClusterIP", external_ips=["192.0.2.130"])
    found = update(pool(), pool("edge", "192.0.2.136/29"), EDGE, holder)
    assert found.allowed
    assert found.warnings == ("spec.addresses: leaves externalIPs without a pool: shop/web (192.0.2.130)",)


def test_holders_that_no_longer_match_are_told() -> None:
    """A pool that turns to other groups keeps whom it has, and says so."""
    holder = service("shop/web", group="lb/edge", holds=["192.0.2.130"])
    found = update(pool(), pool(groups=["lb/other"]), EDGE, holder)
    assert found.allowed
    assert found.warnings == ("spec: no longer serves shop/web; they keep their addresses, as stranded",)


def test_an_old_overlap_does_not_block_other_edits() -> None:
    """Two pools that overlap since before kavip may be edited, but not made to overlap anew."""
    rival = pool("rival", "192.0.2.128/27")
    old = pool("edge")
    assert update(old, pool("edge", priority=5), rival).allowed
    assert reasons(update(old, pool("edge", "192.0.2.128/29"), rival)) == [Reason.OVERLAP]


def test_a_warning_is_cut_at_256_bytes() -> None:
    """The API server passes on no more; characters stay whole."""
    answer = verdict.response("u1", Verdict(warnings=("ä" * 200, "short", "short")), Subject("Service", "web"))
    assert answer.warnings is not None
    assert [len(text.encode()) for text in answer.warnings] == [255, 5]
    assert answer.warnings[0].endswith("ä...")
