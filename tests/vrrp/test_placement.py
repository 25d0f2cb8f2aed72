"""The nodes that rank first for the VIPs of Services that ask for spread: in the model of a group, and in its text."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import product

import pytest

from kavip.api.group import KeepalivedGroup
from kavip.vrrp import config, keys, routerids
from kavip.vrrp.instances import Instance, Model, model_of
from kavip.vrrp.members import Peer, member_of
from kavip.vrrp.running import running_instances
from kavip.vrrp.staging import stage
from tests.support import build
from tests.vrrp.samples import NEW, annotated, model, nodes

VIPS = ("192.0.2.130", "192.0.2.131", "192.0.2.132", "2001:db8::1", "2001:db8::2", "2001:db8::3")
SERVICES = [annotated(f"shop/s{number}", *VIPS, spread=True) for number in range(10)]
IPV4 = [annotated(f"shop/s{number}", *VIPS[:3], spread=True) for number in range(10)]


def first_nodes(found: Model) -> dict[str, str]:
    """The node with the highest priority, by instance."""
    return {each.name: max(each.priorities, key=lambda pair: pair[1])[0] for each in found.instances}


def masters(instances: Sequence[Instance], able: Collection[str] | None = None) -> Counter[str]:
    """How many of *instances* each node is elected for; *able*: the nodes that take part, by default the sources."""
    found: Counter[str] = Counter()
    for each in instances:
        nodes_of = able or {node for node, _ in each.sources or each.priorities}
        found[max((number, node) for node, number in each.priorities if node in nodes_of)[1]] += 1
    return found


@pytest.mark.parametrize(("mode", "size"), [*product(("unicast", "multicast"), (3, 5))])
def test_vips_are_first_on_different_nodes(mode: str, size: int) -> None:
    """Three VIPs of each family are on three nodes; both modes have the same order."""
    group = build.group(**{**NEW, "unicast_enabled": mode == "unicast"})
    for service in SERVICES:
        found = model(group, [service], nodes(size)).instances
        for family in (4, 6):
            assert set(masters([each for each in found if each.family == family]).values()) == {1}


def test_only_services_that_ask_for_it() -> None:
    """The VIPs of a Service without spreadvips are in one instance with the hash order, whatever other Services do."""
    alone = model(build.group(**NEW), [annotated("shop/web", "192.0.2.140")], nodes(3))
    beside = model(build.group(**NEW), [annotated("shop/web", "192.0.2.140"), *IPV4[:2]], nodes(3))
    assert first_nodes(alone).items() <= first_nodes(beside).items()


def test_a_service_added_or_removed_moves_no_other_vip() -> None:
    """The order of a Service's nodes does not depend on the other Services."""
    group = build.group(**NEW)
    every = dict(each for one in IPV4 for each in first_nodes(model(group, [one], nodes(3))).items())
    for number in range(1, len(IPV4)):
        assert first_nodes(model(group, IPV4[:number], nodes(3))).items() <= every.items()


def test_nodes_that_cannot_be_master_do_not_count() -> None:
    """A node that is not listed yet, or has no address of the family, is no place for a VIP."""
    n1, n2, n3, n4 = nodes(4)
    peers = [n1, n2, replace(n3, ipv6=None), Peer("n4", accepted=n4.addresses, is_listed=False)]
    for service in SERVICES:
        found = model(build.group(**NEW), [service], peers).instances
        held = {family: masters([each for each in found if each.family == family]) for family in (4, 6)}
        assert sorted(held[4].values()) == [1, 1, 1]
        assert sorted(held[6].values()) == [1, 2]


def test_only_nodes_with_endpoints_count() -> None:
    """With policy Local the VIPs are spread over the nodes with an endpoint; without any, over all nodes."""
    group = build.group(**NEW)
    for service in IPV4:
        member = member_of(service, group)
        ids = routerids.assign({}, keys.wanted_keys(group, [member]), blacklist=frozenset(), taken=frozenset())
        for ready, wanted in (({"n1", "n4"}, [1, 2]), ({"n1", "n2", "n4"}, [1, 1, 1]), ({"gone"}, [1, 1, 1])):
            there = replace(member, local=True, endpoints=frozenset(ready))
            found = model_of(group, [there], nodes(4), ids)
            able = ready & {"n1", "n2", "n3", "n4"} or {"n1", "n2", "n3", "n4"}
            assert sorted(masters(found.instances, able).values()) == wanted


def test_the_first_nodes_are_as_written() -> None:
    """The text gives the first nodes the highest numbers of the hash order, so no number leaves the band."""
    service = next(each for each in IPV4 if model(build.group(**NEW), [each], nodes(3)) != hashed(each))
    spread, alone = model(build.group(**NEW), [service], nodes(3)), hashed(service)
    for ours, theirs in zip(spread.instances, alone.instances, strict=True):
        assert sorted(number for _, number in ours.priorities) == sorted(number for _, number in theirs.priorities)
    text = config.render(spread).text
    drawn = [int(number) for number in re.findall(r"@n\d priority (\d+)", text)]
    assert min(drawn) > 150


def hashed(service: object) -> Model:
    """The model of a Service whose VIPs are placed one by one."""
    group = build.group(**NEW)
    member = replace(member_of(service, group), spread=True)  # type: ignore[arg-type]
    ids = routerids.assign({}, keys.wanted_keys(group, [member]), blacklist=frozenset(), taken=frozenset())
    singles = [model_of(group, [replace(member, addresses=(each,))], nodes(3), ids) for each in member.addresses]
    return replace(singles[0], instances=tuple(each for one in singles for each in one.instances))


def staged(before: KeepalivedGroup, after: KeepalivedGroup, *, is_kept: bool) -> tuple[Model, Model]:
    """The model that runs in *before*, and what may be published before the switch to *after*."""
    service = next(each for each in IPV4 if model(before, [each], nodes(3)) != hashed(each))
    runs = model(before, [service], nodes(3))
    later = service if is_kept else annotated(service.key, *VIPS[:3])
    member = member_of(later, after)
    ids = routerids.assign({}, keys.wanted_keys(after, [member]), blacklist=frozenset(), taken=frozenset())
    wanted, running = model_of(after, [member], nodes(3), ids), running_instances(config.render(runs).text)
    return runs, stage(wanted, running, group=after, members=[member], peers=nodes(3))


@pytest.mark.parametrize("is_kept", [True, False], ids=["unicast", "without spreadvips"])
def test_vips_stay_until_a_switch(is_kept: bool) -> None:
    """Before all nodes switch, instances that run keep their first nodes; also those that end with the switch."""
    before, after = build.group(**{**NEW, "unicast_enabled": not is_kept}), build.group(**NEW)
    runs, now = staged(before, after, is_kept=is_kept)
    assert first_nodes(now) == first_nodes(runs)
