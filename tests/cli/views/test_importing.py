"""Where the Services of another load balancer go, judged by kavip's own admission policy and allocation."""

from dataclasses import replace
from typing import Any

import msgspec
import yaml

from kavip import names
from kavip.api.handover import HandedService, HandOver
from kavip.api.service import Service
from kavip.cli.views import importingoutput
from kavip.cli.views.importing import ImportPlan, plan_import, plan_manifests, with_imported
from kavip.cli.views.listing import Listing
from kavip.cli.views.scope import Scope
from kavip.convert.imported import Imported
from kavip.convert.metallb import Wishes, import_metallb
from kavip.convert.provider import KUBE_VIP, METALLB
from kavip.convert.steps import after
from kavip.snapshot import Object
from tests.convert.test_metallb import L2, pool
from tests.support import build

VIP, OTHER = "192.0.2.130", "192.0.2.131"
CLASS = "metallb.io/metallb"
IMPORTED = import_metallb([pool(), L2], Wishes(interface="eth0"))
METALLB_POOL, METALLB_SHARED, METALLB_IPS = (
    f"metallb.io/{each}" for each in ("address-pool", "allow-shared-ip", "loadBalancerIPs")
)


def theirs(key: str, *addresses: str, marked: bool = True, **more: Any) -> HandedService:
    """A Service that MetalLB serves."""
    notes = {**({"metallb.io/ip-allocated-from-pool": "first"} if marked else {}), **more.pop("annotations", {})}
    found = build.service(key, holds=addresses, annotations=notes, **more)
    return msgspec.convert(msgspec.to_builtins(found), HandedService)


def planned(
    *services: HandedService,
    imported: Imported = IMPORTED,
    others: tuple[Object, ...] = (),
    scope: Scope = Scope(),  # noqa: B008
) -> ImportPlan:
    """The plan for *services*, as the command prints it."""
    plain = [msgspec.convert(msgspec.to_builtins(each), Service) for each in services]
    cluster = with_imported(Listing((*plain, *others)), imported)
    return plan_import(imported, METALLB, services, cluster, scope)


def reasons(plan: ImportPlan) -> dict[str, list[str]]:
    """The reasons of the refused Services."""
    return {row.key: [str(each.reason) for each in row.refusals] for row in plan.refused}


def test_services_go_to_the_group_of_their_pool() -> None:
    """With the address that they have; the output can be applied, and shows what changes in them."""
    plan = planned(theirs("shop/web", VIP), theirs("shop/api", OTHER, load_balancer_class=CLASS))
    assert (reasons(plan), plan.remarks) == ({}, ())
    assert {row.key: row.patch["metadata"]["annotations"] for row in plan.rows} == {
        f"shop/{name}": {names.GROUP_ANNOTATION: "lb/l2", names.ADDRESSES_ANNOTATION: vip}
        for name, vip in (("web", VIP), ("api", OTHER))
    }
    text = importingoutput.text(plan, "text")
    assert [each["kind"] for each in yaml.safe_load_all(text) if each] == ["Namespace", "KeepalivedGroup", "VIPPool"]
    assert "# +  loadBalancerClass: kavip.io/keepalived" in text


def test_what_metallb_does_not_serve_is_left() -> None:
    """Other types, Services of kavip, Services of others outside its pools; the last are named."""
    plan = planned(
        theirs("a/plain", type="ClusterIP"),
        theirs("a/ours", VIP, load_balancer_class=names.LOAD_BALANCER_CLASS),
        theirs("a/other", "203.0.113.7", marked=False, load_balancer_class="example.com/lb"),
        theirs("a/pending", marked=False),
        build.in_deletion(theirs("a/gone", OTHER)),
    )
    assert plan.rows == ()
    assert [(each.subject, each.field) for each in plan.remarks] == [
        ("Service a/other", "status.loadBalancer"),
        ("Service a/pending", "status.loadBalancer"),
    ]


def test_annotations_are_translated_or_named() -> None:
    """The pool and the sharing key; any other annotation of MetalLB is a remark."""
    notes = {METALLB_POOL: "first", METALLB_SHARED: "web", "metallb.universe.tf/new": "x"}
    plan = planned(theirs("shop/web", VIP, annotations=notes))
    (row,) = plan.rows
    assert row.patch["metadata"]["annotations"] == {
        names.GROUP_ANNOTATION: "lb/l2",
        names.ADDRESSES_ANNOTATION: VIP,
        names.SHARING_KEY_ANNOTATION: "web",
        names.POOL_ANNOTATION: "first",
    }
    assert [each.field for each in plan.remarks] == ["metadata.annotations[metallb.universe.tf/new]"]


def test_services_that_share_an_address_go_together() -> None:
    """With one key, the oldest first; across namespaces, or with a class, they cannot."""
    young = theirs("shop/a", VIP, created="2026-05-01T00:00:00Z", annotations={METALLB_SHARED: "pair"})
    old = theirs("shop/b", VIP, port=81, annotations={METALLB_SHARED: "pair"})
    plan = planned(young, old, theirs("shop/c", OTHER))
    assert reasons(plan) == {}
    assert [[row.key for row in unit] for unit in plan.units] == [["shop/b", "shop/a"], ["shop/c"]]
    assert {row.goal.sharing_key for unit in plan.units[:1] for row in unit} == {"pair"}
    strange = planned(young, theirs("blog/b", VIP, port=81, annotations={METALLB_SHARED: "pair"}))
    assert reasons(strange) == {"blog/b": ["SharingRefused"], "shop/a": ["SharingRefused"]}
    classes = planned(*(after(each, {"spec": {"loadBalancerClass": CLASS}}) for each in (young, old)))
    assert reasons(classes) == {"shop/a": ["SharingRefused"], "shop/b": ["SharingRefused"]}


def test_the_pool_must_exist_for_a_hand_over() -> None:
    """Without the manifests of the import in the cluster, nothing is handed over."""
    service = theirs("shop/web", VIP)
    plain = msgspec.convert(msgspec.to_builtins(service), Service)
    plan = plan_import(IMPORTED, METALLB, [service], Listing((plain,)))
    assert reasons(plan) == {"shop/web": ["GroupNotFound"]}
    assert plan.units == ()


def test_pools_that_could_assign_an_address_again_are_named() -> None:
    """Before the hand-over; nothing is printed once they are closed."""
    (line,) = importingoutput.assigning(IMPORTED, METALLB.name)
    assert line.startswith("MetalLB still assigns from IPAddressPool first, ")
    assert importingoutput.assigning(replace(IMPORTED, assigning=()), METALLB.name) == []


def test_a_hand_over_under_way_continues() -> None:
    """A Service of another type with the mark is theirs still, with its external IPs as addresses."""
    mark = {names.HAND_OVER_ANNOTATION: HandOver().text(), names.GROUP_ANNOTATION: "lb/l2"}
    service = theirs("shop/web", type="NodePort", external_ips=[VIP], annotations=mark, marked=False)
    plan = planned(service)
    assert reasons(plan) == {}
    assert [row.addresses for row in plan.rows] == [service.external_addresses]


def test_json_is_for_programs() -> None:
    """Objects, Services and remarks."""
    found = importingoutput.data(planned(theirs("shop/web", VIP), theirs("a/pending", marked=False)))
    assert {key: len(value) for key, value in found.items()} == {"objects": 3, "services": 1, "remarks": 1}


def manifest(name: str, *, group: str = "", imported: Imported = IMPORTED, **more: Any) -> ImportPlan:
    """The plan for one Service in a manifest."""
    return plan_manifests(imported, METALLB, [build.service(name, **more)], Scope(), group=group)


def test_manifests_say_less() -> None:
    """The group follows from the pool or the address that the author named, from the only pool, or from the user."""
    named = manifest("shop/web", annotations={METALLB_IPS: f" {VIP} "})
    assert [row.patch["metadata"]["annotations"] for row in named.rows] == [
        {names.GROUP_ANNOTATION: "lb/l2", names.ADDRESSES_ANNOTATION: VIP}
    ]
    legacy = manifest("shop/web", load_balancer_ip=VIP)
    assert [row.addresses for row in legacy.rows] == [named.rows[0].addresses]
    two = import_metallb([pool("a", "192.0.2.0/28"), pool("b", "192.0.2.16/28"), L2], Wishes(interface="eth0"))
    assert [row.goal.group for row in manifest("shop/web", imported=two).rows] == ["lb/l2"]
    assert reasons(manifest("shop/web", imported=Imported())) == {"shop/web": ["GroupNotFound"]}
    assert reasons(manifest("shop/web", imported=Imported(), group="net/edge")) == {}
    assert manifest("shop/web", type="ClusterIP").rows == ()
    assert manifest("shop/web", load_balancer_class="example.com/lb").rows == ()


def test_manifests_with_an_unknown_pool_are_named() -> None:
    """Without its pool kavip chooses another one, so the author must know."""
    (remark,) = manifest("shop/web", annotations={METALLB_POOL: "typo"}).remarks
    assert (remark.subject, remark.field) == ("Service shop/web", "metadata.annotations")
    assert remark.text.startswith("pool typo is not in the files")
    assert manifest("shop/web", annotations={METALLB_POOL: "first"}).remarks == ()


def test_manifests_of_two_namespaces_cannot_share() -> None:
    """Those of one namespace can; one that is left out by name counts, too."""
    shared = {METALLB_SHARED: "key", METALLB_IPS: VIP}
    found = [build.service(key, annotations=shared) for key in ("one/a", "one/b", "two/c")]
    plan = plan_manifests(IMPORTED, METALLB, found, Scope(), group="")
    assert reasons(plan) == {key: ["SharingRefused"] for key in ("one/a", "one/b", "two/c")}
    assert "with two/c" in plan.rows[0].refusals[0].message
    assert "with one/a" in plan.rows[2].refusals[0].message
    assert reasons(plan_manifests(IMPORTED, METALLB, found[:2], Scope(), group="")) == {}
    part = plan_manifests(IMPORTED, METALLB, found, Scope(namespace="two"), group="")
    assert reasons(part) == {"two/c": ["SharingRefused"]}


def test_kube_vip_ignores_what_says_so() -> None:
    """Its own annotation leaves a Service alone."""
    service = msgspec.convert(
        msgspec.to_builtins(build.service("a/b", holds=[VIP], annotations={"kube-vip.io/ignore": "true"})),
        HandedService,
    )
    assert not KUBE_VIP.serves(service)
    assert METALLB.serves(service)
