"""The model of a group in Shared mode."""

from kavip.api.group import GroupVirtualIP
from kavip.names import Reason
from kavip.vrrp import keys, routerids
from kavip.vrrp.instances import model_of
from kavip.vrrp.members import member_of
from kavip.vrrp.sharding import shard_members, shard_of, shared_instances
from tests.support import build
from tests.vrrp.samples import annotated, model, named, nodes, shared, vips


def test_shared_instances() -> None:
    """In Shared mode every Shared instance runs, with an anchor that depends on its VRID only."""
    services = [annotated(f"a/s{number}", f"192.0.2.{number}") for number in range(130, 140)]
    found = named(model(build.group(instances=shared(4)), services, nodes(2)))
    assert list(found) == ["group/0", "group/1", "group/2", "group/3"]
    assert [str(each.anchor) for each in found.values()] == [f"169.254.255.{number}/32" for number in (1, 2, 3, 4)]
    assert sorted(str(vip.address) for each in found.values() for vip in each.excluded) == sorted(
        f"192.0.2.{number}" for number in range(130, 140)
    )


def test_shared_instances_of_both_families() -> None:
    """The first IPv6 VIP adds the IPv6 instance of every Shared instance; an empty group has none."""
    group = build.group(instances=shared(2))
    assert list(named(model(group, [annotated("a/s", "2001:db8::1")], nodes(2)))) == ["group/0/v6", "group/1/v6"]
    assert model(group, [], nodes(2)).instances == ()


def test_a_service_never_moves_between_shared_instances() -> None:
    """The Shared instance of a Service depends on its name only, and the instances are used evenly."""
    used = [shard_of(f"a/s{number}", 16) for number in range(1600)]
    assert used == [shard_of(f"a/s{number}", 16) for number in range(1600)]
    assert {name: used.count(name) > 60 for name in used} == dict.fromkeys(shared_instances(16), True)


def test_more_than_255_services() -> None:
    """Shared mode lifts the limit of 255 Services, and only its instances need VRIDs."""
    group = build.group(instances=shared())
    services = [annotated(f"a/s{number}", f"198.51.{number // 250}.{number % 250}") for number in range(1000)]
    members = [member_of(service, group) for service in services]
    ids = routerids.assign({}, keys.wanted_keys(group, members), blacklist=frozenset(), taken=frozenset())
    found = model_of(group, members, nodes(3), ids)
    assert (len(found.instances), found.problems) == (16, {})
    assert sorted(ids) == sorted(shared_instances(16))


def test_entries_of_earlier_versions_that_hold_nothing() -> None:
    """kavip 0.1 named the Services of Shared instances too; keys with VRIDs of their own hold these."""
    own = {"group/0": 1, "group/1.vlan7": 2, "a/local": 3, "a/spread/192.0.2.9": 4, "lb/edge/virtualips/9": 9}
    assert keys.holding_keys({**own, "a/s": 1, "a/t": 2, "group/service": 1}) == own
    per_service = {"a/s": 1, "a/spread/192.0.2.9": 2, "group/s": 3}
    assert keys.holding_keys(per_service) == per_service


def test_no_service_has_the_name_of_a_shared_instance() -> None:
    """In a namespace "group", a Service whose name is a number is not served, and uses no VRID."""
    services = [*(annotated(f"group/{number}", "192.0.2.1") for number in (0, 1)), annotated("a/s", "192.0.2.2")]
    group = build.group(instances=shared(2))
    members = [member_of(service, group) for service in services]
    ids = {"group/0": 1, "group/1": 2}
    found = model_of(group, members, nodes(2), ids)
    assert list(found.problems) == ["group/0", "group/1"]
    assert keys.wanted_keys(group, members) == ("group/0", "group/1")


def test_local_service_in_shared_mode() -> None:
    """A Service that only some nodes can serve has its own instances, also in Shared mode."""
    local = annotated("a/local", "192.0.2.160", external_traffic_policy="Local")
    found = named(model(build.group(instances=shared(2)), [local, annotated("a/s", "192.0.2.1")], nodes(2)))
    assert list(found) == ["a/local", "group/0", "group/1"]
    assert found["a/local"].router_id == 3


def test_lines_in_shared_mode() -> None:
    """The lines of a Service cannot apply to a Shared instance; the Service is served, and has a problem."""
    found = model(
        build.group(instances=shared(2)), [annotated("a/s", "192.0.2.1", verbatim='{"accept": ""}')], nodes(2)
    )
    assert all(instance.lines == () for instance in found.instances)
    assert "are shared" in found.problems["a/s"].message


def test_virtual_ips_of_the_group_in_shared_mode() -> None:
    """The VIPs of the group itself are in a Shared instance too, and need no VRID of their own."""
    group = build.group(instances=shared(2), virtual_ips=[GroupVirtualIP(address="192.0.2.5")])
    assert keys.wanted_keys(group, []) == ("group/0", "group/1")
    assert [vips(each)[1:] for each in model(group, [], nodes(2)).instances].count(["192.0.2.5"]) == 1


def test_a_shared_instance_without_a_vrid() -> None:
    """A Shared instance without a VRID is a problem of its Services only."""
    group = build.group(instances=shared(2))
    members = [member_of(annotated(f"a/s{number}", f"192.0.2.{number}"), group) for number in range(1, 9)]
    found = model_of(group, members, nodes(2), {"group/1": 9})
    homeless = {each.key for each in members if shard_of(each.key, 2) == "group/0"}
    assert 0 < len(homeless) < 8
    assert found.problems.keys() == homeless


def test_spread_in_shared_mode() -> None:
    """A Service with ``spreadvips`` has an instance per address beside the Shared instances, with its own lines."""
    spread = annotated("a/web", "192.0.2.160", "192.0.2.161", spread=True, verbatim='{"accept": ""}')
    found = named(model(build.group(instances=shared(2)), [spread, annotated("a/s", "192.0.2.1")], nodes(2)))
    assert list(found) == ["a/web/192.0.2.160", "a/web/192.0.2.161", "group/0", "group/1"]
    assert [each.router_id for each in found.values()] == [3, 4, 1, 2]
    assert [line.keyword for line in found["a/web/192.0.2.160"].lines] == ["accept"]


def test_an_address_without_a_vrid_stays_in_the_shared_instance() -> None:
    """Each address is in one instance, and the Service has the problem."""
    group = build.group(instances=shared(1))
    members = shard_members(group, [member_of(annotated("a/web", "192.0.2.160", "192.0.2.161", spread=True), group)])
    ids = {"group/0": 1, "a/web/192.0.2.161": 2}
    found = model_of(group, keys.keep_shared(group, members, ids), nodes(2), ids)
    assert {each.name: vips(each)[-1:] for each in found.instances} == {
        "a/web/192.0.2.161": ["192.0.2.161"],
        "group/0": ["192.0.2.160"],
    }
    assert found.problems["a/web"].reason is Reason.ROUTER_IDS_EXHAUSTED
    assert keys.keep_shared(group, members, {**ids, "a/web/192.0.2.160": 3}) is members
