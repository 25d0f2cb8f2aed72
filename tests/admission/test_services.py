"""What is asked of a Service beside the cases of the table: what waits, what counts, what is left to others."""

from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.admission import policy, verdict
from kavip.admission.chain import Options
from kavip.admission.verdict import Awaited, Subject
from kavip.api.group import Instances
from kavip.api.meta import Condition, LabelSelector
from kavip.api.pool import Cooling, PoolStatus, VIPPool
from kavip.api.service import Service
from kavip.names import Reason
from tests.admission.evaluation import EDGE, SHOP, create, reasons, update
from tests.support import build
from tests.support.build import group, metadata, pool, service


def test_a_plain_service_of_the_default_group_is_judged() -> None:
    """What the default group takes must be right, too: an address outside every pool is refused."""
    found = create(service("shop/web", wants="203.0.113.9"), group("lb/edge", default=True), pool(), SHOP)
    assert reasons(found) == [Reason.ADDRESS_NOT_IN_POOL]


def test_what_may_be_on_its_way_is_named() -> None:
    """A missing group and a missing pool are both awaited: they may come with the same kubectl apply."""
    found = create(service("shop/web", group="lb/new", pool="new"), EDGE, pool())
    assert found.awaits == (Awaited(names.KEEPALIVED_GROUP, "lb/new"), Awaited(names.VIP_POOL, "new"))


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


def resting(*addresses: str) -> VIPPool:
    """A pool in whose status the first address rests for ``shop/old``."""
    entry = Cooling(address="192.0.2.130", service="shop/old", until="2026-03-01T12:01:00Z")
    return msgspec.structs.replace(pool("edge", *addresses, cooldown_seconds=60), status=PoolStatus(cooling=[entry]))


def test_who_asks_for_an_address_that_cools_down_waits() -> None:
    """Accepted, and told until when; who freed it hears nothing. Free addresses are not its business."""
    world = EDGE, resting("192.0.2.130/31")
    found = create(service("shop/web", group="lb/edge", wants="192.0.2.130"), *world)
    assert found.allowed
    (warning,) = found.warnings
    assert warning == (
        "the Service waits for an address: metadata.annotations[kavip.io/addresses]: address 192.0.2.130 rests until "
        "2026-03-01T12:01:00Z for Service shop/old, which freed it; wait for it, or ask for another"
    )
    assert create(service("shop/old", group="lb/edge", wants="192.0.2.130"), *world).warnings == ()
    assert create(service("shop/web", group="lb/edge"), *world).warnings == ()


def test_an_address_that_cools_down_is_no_external_ip_yet() -> None:
    """An external IP holds at once and cannot wait: refused, but not to who freed it."""
    world = EDGE, resting("192.0.2.130/31")
    asked: dict[str, Any] = {"group": "lb/edge", "type": "ClusterIP", "external_ips": ["192.0.2.130"]}
    found = create(service("shop/web", **asked), *world)
    assert reasons(found) == [Reason.ADDRESS_IN_USE]
    assert found.refusals[0].message.endswith(
        "rests until 2026-03-01T12:01:00Z for Service shop/old, which freed it; choose another address, or come back "
        "then"
    )
    assert create(service("shop/old", **asked), *world).allowed


def test_a_quota_is_forbidden_where_the_pool_is_named_and_waits_elsewhere() -> None:
    """Who names the pool gets 403; who does not may yet find another pool."""
    strict = pool("edge", max_per_namespace=0)
    named = create(service("shop/web", group="lb/edge", pool="edge"), EDGE, strict)
    assert reasons(named) == [Reason.QUOTA_EXCEEDED]
    answer = verdict.response("u1", named, Subject("Service", "web"))
    assert answer.status is not None
    assert (answer.status.code, answer.status.reason) == (403, "Forbidden")
    assert create(service("shop/web", group="lb/edge"), EDGE, strict).allowed


def test_an_edit_that_ends_sharing_is_refused() -> None:
    """A Service that shares its address may not be given a port that another one of them uses."""
    key = {names.SHARING_KEY_ANNOTATION: "k"}
    first = service("shop/a", group="lb/edge", port=80, annotations=key, holds=["192.0.2.130"])
    old = service("shop/b", group="lb/edge", port=81, annotations=key, holds=["192.0.2.130"])
    new = service("shop/b", group="lb/edge", port=80, annotations=key, holds=["192.0.2.130"])
    assert update(old, old, EDGE, pool(), first).allowed
    assert reasons(update(old, new, EDGE, pool(), first)) == [Reason.SHARING_REFUSED]


def test_an_edit_that_strands_is_accepted_and_told() -> None:
    """Labels that the pool of the address does not select: the address stays, and kubectl says so."""
    picky = pool("edge", service_selector=LabelSelector(match_labels={"tier": "gold"}))
    given = Condition(type=names.Condition.ADDRESS_ASSIGNED, status="True", reason=Reason.ASSIGNED)
    old = service("shop/web", group="lb/edge", labels={"tier": "gold"}, holds=["192.0.2.130"])
    old = msgspec.structs.replace(old, status=msgspec.structs.replace(old.status, conditions=[given]))
    new = msgspec.structs.replace(old, metadata=msgspec.structs.replace(old.metadata, labels=None))
    assert not update(old, old, EDGE, picky).warnings
    found = update(old, new, EDGE, picky)
    assert found.allowed
    (warning,) = found.warnings
    assert warning.startswith("the Service keeps 192.0.2.130, although 192.0.2.130 is in pool edge, which does not")


def test_the_platform_is_left_its_own() -> None:
    """Where OpenShift assigns addresses, a Service that names no kavip pool is not judged by kavip's pools."""
    network = build.network("198.51.100.0/24")
    asked = service("shop/web", group="lb/edge")
    assert create(asked, EDGE, network) == policy.PASSED
    assert create(asked, EDGE, network, options=Options(ipam="always")).warnings
    assert create(asked, EDGE, options=Options(ipam="never")) == policy.PASSED


def test_what_kavip_gave_is_judged_beside_a_platform_too() -> None:
    """The controller goes on with it, so admission does."""
    given = Condition(type=names.Condition.ADDRESS_ASSIGNED, status="True", reason=Reason.ASSIGNED)

    def sharing(name: str, port: int) -> Service:
        key = {names.SHARING_KEY_ANNOTATION: "k"}
        made = service(f"shop/{name}", group="lb/edge", port=port, annotations=key, holds=["192.0.2.130"])
        return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=[given]))

    cluster = EDGE, pool(), sharing("a", 80), build.network("198.51.100.0/24")
    assert reasons(update(sharing("b", 81), sharing("b", 80), *cluster)) == [Reason.SHARING_REFUSED]
    assert update(sharing("b", 81), sharing("b", 82), *cluster).allowed


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


def test_the_ways_out_of_255_are_named() -> None:
    """Groups with room, those of shared instances first, and none that is full, closed or going; else what to make."""
    full = group("lb/full", blacklist_router_ids=list(range(1, 256)))
    asked = service("shop/web", group="lb/full")
    closed = group("lb/a-closed", allowed_namespaces=LabelSelector(match_labels={"team": "net"}))
    gone = metadata("lb/a-going", deletion_timestamp="2026-05-01T00:00:00Z")
    going = msgspec.structs.replace(group("lb/a-going"), metadata=gone)
    shared = group("lb/shared", instances=Instances(mode="Shared", count=4))
    (refusal,) = create(asked, full, closed, going, shared, EDGE, pool()).refusals
    assert "; name a group with room (lb/shared, lb/edge), or have spec.instances.mode: Shared set" in refusal.message
    (refusal,) = create(asked, full, closed, going, pool()).refusals
    assert "; make a group on another segment, or have spec.instances.mode: Shared set" in refusal.message


@pytest.mark.parametrize(
    ("text", "meant"),
    [("edge", "lb/edge"), ("kavip/edge", "lb/edge"), ("LB/Edge", "lb/edge"), ("lb/edeg", "lb/edge"), ("l/x" * 99, "")],
)
def test_the_group_that_was_meant_is_named(text: str, meant: str) -> None:
    """The one of that name in another namespace, or the one that is most like it."""
    (refusal,) = create(service("shop/web", group=text), EDGE, pool()).refusals
    assert (f'did you mean "{meant}"?' in refusal.message) == bool(meant)


def test_an_ipv6_address_is_the_same_in_capitals() -> None:
    """Upper case is accepted, and told canonically."""
    six = pool("six", "2001:db8::/120")
    holder = service("shop/first", group="lb/edge", families=["IPv6"], holds=["2001:db8::a"])
    (refusal,) = create(
        service("shop/web", group="lb/edge", wants="2001:DB8::A", families=["IPv6"]), EDGE, six, holder
    ).refusals
    assert refusal.message.startswith("address 2001:db8::a is used by Service shop/first")
