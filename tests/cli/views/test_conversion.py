"""What becomes of all Services with external IPs, judged by kavip's own admission policy and allocation."""

from typing import Any

import pytest
from msgspec.structs import replace

from kavip import names
from kavip.api.group import GroupStatus
from kavip.api.meta import Condition
from kavip.api.service import Service
from kavip.cli.views import conversionoutput
from kavip.cli.views.conversion import plan_conversion
from kavip.cli.views.listing import Listing
from kavip.cli.views.scope import Scope
from kavip.errors import BadInput
from kavip.names import Reason
from kavip.snapshot import Object
from tests.convert.test_externalips import OTHER, VIP, external
from tests.support import build

EXISTING = (build.group(), build.pool(), build.node("n1", "192.0.2.11"))


def planned(*objects: Object, scope: Scope = Scope(), **more: Any) -> Any:  # noqa: B008 - frozen
    """The plan for *objects* beside a group and a pool."""
    return plan_conversion(Listing((*EXISTING, *objects), **more), scope)


def reasons(*objects: Object) -> dict[str, list[str]]:
    """The reasons of the refused Services."""
    return {row.key: [str(each.reason) for each in row.refusals] for row in planned(*objects).refused}


def test_what_kavip_can_assign_is_converted() -> None:
    """The diff shows the fields of the Service that change, and nothing else."""
    plan = planned(external(VIP))
    assert [row.key for row in plan.converted] == ["shop/web"]
    (diff,) = conversionoutput.diffs(plan)
    assert [line for line in diff.splitlines()[3:] if line[0] in "+-"] == [
        "+    kavip.io/addresses: 192.0.2.130",
        "-  externalIPs:",
        "-  - 192.0.2.130",
        "-  type: ClusterIP",
        "+  allocateLoadBalancerNodePorts: false",
        "+  loadBalancerClass: kavip.io/keepalived",
        "+  type: LoadBalancer",
    ]
    assert conversionoutput.remarks(plan) == []


def test_an_address_outside_all_pools_is_refused_and_a_pool_is_printed() -> None:
    """The printed pool has the addresses of these Services as few ranges, for requests by name."""
    lost = [external("203.0.113.8", key="a/x"), external("203.0.113.7", "203.0.113.9", key="a/y")]
    assert reasons(*lost, external(VIP)) == {"a/x": ["AddressNotInPool"], "a/y": ["AddressNotInPool"]}
    plan = planned(*lost)
    assert conversionoutput.pool("old", plan.without_pool).splitlines()[-4:] == [
        "spec:",
        "  addresses:",
        "  - 203.0.113.7-203.0.113.9",
        "  autoAssign: false",
    ]
    made = build.pool("old", "203.0.113.7-203.0.113.9", auto_assign=False)
    assert reasons(*lost, made) == {}


def test_pools_restrict_who_is_converted() -> None:
    """A pool for other groups, an excluded address, and addresses of two pools prevent the conversion."""
    assert reasons(external("198.51.100.1"), build.pool("other", "198.51.100.0/28", groups=["lb/other"])) == {
        "shop/web": ["PoolSelectorMismatch"]
    }
    excluded = build.pool("other", "198.51.100.0/28", exclude=["198.51.100.1"])
    assert reasons(external("198.51.100.1"), excluded) == {"shop/web": ["AddressNotAllowed"]}
    assert reasons(external("198.51.100.1"), build.pool("full", "198.51.100.0/28", max_per_namespace=1)) == {}
    two = build.pool("second", "198.51.100.0/28")
    assert reasons(external(VIP, "198.51.100.1"), two) == {"shop/web": ["AddressNotAllowed"]}


def test_services_that_share_an_address_get_a_key_first() -> None:
    """With the same key the second one may have the address; Services of two namespaces may not share it."""
    web, api = external(VIP, key="shop/web"), external(VIP, OTHER, key="shop/api", port=81)
    plan = planned(web, api)
    assert plan.refused == ()
    assert dict(plan.sharing) == dict.fromkeys(("shop/api", "shop/web"), f"external-ips-{VIP}")
    assert all(f"+    kavip.io/sharing-key: external-ips-{VIP}" in each for each in conversionoutput.diffs(plan))
    assert reasons(web, external(VIP, key="blog/web", port=81)) == {
        "blog/web": ["SharingRefused"],
        "shop/web": ["SharingRefused"],
    }


def test_a_service_that_was_not_chosen_gets_the_key_too() -> None:
    """Without it, admission would refuse the chosen one; an unconnected Service gets none."""
    web, api = external(VIP, key="shop/web"), external(VIP, key="shop/api", port=81)
    pair = external("192.0.2.140", key="shop/c"), external("192.0.2.140", key="shop/d", port=81)
    plan = planned(web, api, *pair, scope=Scope(("shop/web",)))
    assert [row.key for row in plan.converted] == ["shop/web"]
    assert dict(plan.sharing) == dict.fromkeys(("shop/api", "shop/web"), f"external-ips-{VIP}")
    assert conversionoutput.remarks(plan) == [
        f"shop/api: gets the annotation {names.SHARING_KEY_ANNOTATION}=external-ips-{VIP} too"
    ]


def test_a_name_that_does_not_exist_is_an_error() -> None:
    """Before anything is written; the probable one is named."""
    with pytest.raises(BadInput, match=r"'shop/wbe': no such Service; did you mean shop/web"):
        planned(external(VIP), scope=Scope.of(["wbe"], "", "shop"))


def test_no_service_is_converted_while_keepalived_operator_runs() -> None:
    """kavip would not assign the address; the refusal is the message of the group's condition."""
    waits = Condition(type="Accepted", status="False", reason=Reason.OLD_OPERATOR_RUNNING, message="lb/op runs")
    group = replace(build.group(), status=GroupStatus(conditions=[waits]))
    assert reasons(external(VIP), group) == {"shop/web": ["OldOperatorRunning"]}


def test_a_second_family_is_announced() -> None:
    """A dual-stack Service gets an address of the other family too, as any LoadBalancer does: a remark says so."""
    dual = build.pool("dual", "198.51.100.0/28", "2001:db8::/120")
    service = external("198.51.100.1", families=["IPv4", "IPv6"], ip_family_policy="PreferDualStack")
    plan = planned(service, dual)
    assert plan.refused == ()
    assert [line for line in conversionoutput.remarks(plan) if line.startswith("shop/web: gets 2001:db8::")]


def test_services_that_kavip_does_not_serve_are_left() -> None:
    """They are named, and only they: a Service without external IPs is no subject."""
    plan = planned(build.service("a/plain", type="ClusterIP", external_ips=[VIP]), build.service("a/other"))
    assert (plan.rows, plan.left) == ((), ("a/plain",))


def test_the_user_chooses_services() -> None:
    """By key, by namespace, or both."""
    services = [external(f"192.0.2.{host}", key=key) for host, key in ((130, "a/x"), (131, "a/y"), (132, "b/x"))]
    chosen = {
        scope: [row.key for row in planned(*services, scope=scope).rows]
        for scope in (Scope(), Scope(("a/x",)), Scope(namespace="a"), Scope(("a/x", "b/x"), "b"))
    }
    assert list(chosen.values()) == [["a/x", "a/y", "b/x"], ["a/x"], ["a/x", "a/y"], ["b/x"]]


def test_pools_that_cannot_be_read_are_left_to_the_api_server() -> None:
    """A user without the right to list pools converts all the same: admission refuses what is wrong."""
    objects: tuple[Object, ...] = (build.group(), external(VIP))
    plan = plan_conversion(Listing(objects, absent=frozenset({names.VIP_POOL})))
    assert [row.key for row in plan.converted] == ["shop/web"]
    assert plan.without_pool == ()


def test_json_is_for_programs() -> None:
    """Everything that the text says is there as fields."""
    service: Service = external("203.0.113.7", key="shop/lost")
    found = conversionoutput.data(planned(external(VIP), service))
    assert {key: len(value) for key, value in found.items()} == {
        "converted": 1,
        "left": 0,
        "refused": 1,
        "sharing": 0,
        "withoutPool": 1,
    }
    (converted,) = found["converted"]
    assert (converted["name"], converted["group"], converted["addresses"]) == ("web", "lb/edge", [VIP])
    assert converted["patch"]["spec"]["externalIPs"] is None
    assert found["refused"][0]["causes"][0]["reason"] == "AddressNotInPool"
