"""The members of a group equal those of a new Snapshot with all Services."""

import random
from collections.abc import Callable, Iterable, Mapping
from itertools import chain

import msgspec
import pytest

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.meta import Condition, LabelSelector
from kavip.api.service import Ingress, LoadBalancer, Service, ServiceStatus
from kavip.ipam.record import Record
from kavip.names import Reason
from kavip.snapshot import Snapshot
from tests.support import build

KEYS = [f"{namespace}/{name}" for namespace in ("lab", "shop") for name in ("a", "b", "c")]
GROUPS = ("lb/edge", "lb/inner")


def happen(snapshot: Snapshot, luck: random.Random) -> None:
    """Apply one random change to a Service, a group or a namespace."""
    key = luck.choice(KEYS)
    group = luck.choice(GROUPS)
    match luck.choice(("put", "put", "put", "drop", "group", "ungroup", "namespace", "outcast")):
        case "put":
            foreign = ServiceStatus(
                LoadBalancer([Ingress(ip="203.0.113.9")]) if luck.random() < 0.3 else LoadBalancer()
            )
            service = build.service(key, group=luck.choice(("", "", *GROUPS)))
            status = luck.choice((foreign, chose(luck.choice((*GROUPS, "lb/gone")))))
            snapshot.put(msgspec.structs.replace(service, status=status))
        case "drop":
            snapshot.drop(names.SERVICE, key)
        case "group":
            allowed = LabelSelector(match_labels={"env": "prod"}) if luck.random() < 0.5 else None
            snapshot.put(build.group(group, default=luck.random() < 0.7, allowed_namespaces=allowed))
        case "ungroup":
            snapshot.drop(names.KEEPALIVED_GROUP, group)
        case "namespace":
            snapshot.put(build.namespace(key.partition("/")[0], env=luck.choice(("prod", "test"))))
        case "outcast":
            snapshot.drop(names.NAMESPACE, key.partition("/")[0])


def chose(group: str) -> ServiceStatus:
    """The status of a Service for which kavip chose *group*."""
    message = Record(Reason.ASSIGNED, "192.0.2.1 from pool edge").with_group(group)
    condition = Condition(
        type=names.ConditionType.ADDRESS_ASSIGNED, status="True", reason=Reason.ASSIGNED, message=message
    )
    return ServiceStatus(conditions=[condition])


def shared_out(services: Iterable[Service]) -> dict[str, tuple[Service, ...]]:
    """*services* by the last letter of their names."""
    found: dict[str, list[Service]] = {}
    for each in services:
        found.setdefault(each.key[-1], []).append(each)
    return {share: tuple(found[share]) for share in sorted(found)}


def guest_of(snapshot: Snapshot, group: KeepalivedGroup | None) -> Callable[[Service], Service | None]:
    """A Service of a namespace that *group* allows."""
    return lambda each: each if group and snapshot.allows(group, each.metadata.namespace) else None


def in_order(shares: Mapping[str, tuple[Service, ...]]) -> list[Service]:
    """All members, with each share in order."""
    assert all(list(some) == sorted(some, key=lambda each: each.key) for some in shares.values())
    return sorted(chain.from_iterable(shares.values()), key=lambda each: each.key)


@pytest.mark.slow
def test_members_equal_those_of_a_new_snapshot() -> None:
    """
    After any changes and at any time of the query, members and derived values equal those of a Snapshot without memory.
    """
    luck = random.Random(11)
    found = set()
    for _ in range(40):
        snapshot = Snapshot()
        for _ in range(60):
            happen(snapshot, luck)
            every = (snapshot.services, snapshot.groups, snapshot.namespaces)
            for key in luck.sample(GROUPS, luck.choice((0, 1, 2))):
                first = Snapshot.from_objects(each for store in every for each in store.values())
                expected = [each for _, each in sorted(snapshot.services.items()) if first.group_of(each) == key]
                assert list(snapshot.members(key)) == expected
                group = snapshot.groups.get(key)
                assert in_order(snapshot.parts(key)) == expected
                allowed = [each for each in expected if group and first.allows(group, each.metadata.namespace)]
                derived = snapshot.derived(key, group and group.spec, guest_of(snapshot, group), lambda each: each[-1])
                assert dict(derived) == shared_out(allowed)
                found.add((key, len(expected), group is snapshot.default_group))
    assert {(size, is_default) for _, size, is_default in found} >= {(0, True), (0, False), (2, True), (2, False)}


def test_an_unchanged_share_is_the_same_object() -> None:
    """Shares that were returned before do not change."""
    snapshot = Snapshot.from_objects([build.group(GROUPS[0]), *(build.service(key, group=GROUPS[0]) for key in KEYS)])

    def ask() -> Mapping[str, tuple[Service, ...]]:
        return snapshot.derived(GROUPS[0], None, lambda each: each, lambda key: key[-1])

    before = ask()
    kept = dict(before)
    assert ask() is before
    snapshot.put(build.service("shop/b", group=GROUPS[0], labels={"a": "b"}))
    after = ask()
    assert [after[share] is before[share] for share in "abc"] == [True, False, True]
    snapshot.drop(names.SERVICE, "shop/c")
    snapshot.drop(names.SERVICE, "lab/c")
    assert (list(ask()), dict(before) == kept) == (["a", "b"], True)
