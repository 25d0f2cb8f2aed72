"""``kavip plan --diff`` on literals: passwords stay hidden, amounts are amounts, and what stands keeps its VRIDs."""

import base64
import gzip
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.group import Instances, PasswordAuth, SecretRef
from kavip.api.instant import read_instant
from kavip.api.meta import OwnerReference
from kavip.api.workload import ConfigMap, ManagedFields, Written, WrittenMetadata
from kavip.cli.sources.overlay import Standing, laid
from kavip.cli.views import diff as drift
from kavip.cli.views import simulate
from kavip.reconcile.group.manifests import config_map
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, read_published, settings_of
from tests.cli.test_explain import new
from tests.support.build import group, namespace, node, pool, service

EDGE = group("lb/edge", default=True, router_ids={"shop/web": 7})
CLUSTER = (
    EDGE,
    pool("edge"),
    namespace("shop"),
    node("n1", "198.51.100.1"),
    service("shop/web", group="lb/edge", holds=["192.0.2.129"]),
)
OLD_TEXT = "vrrp_instance shop/web {\n  authentication {\n    auth_type PASS\n    auth_pass s3cret7\n  }\n}\n"


def written(kind: str, **more: Any) -> dict[str, Written]:
    """One object that kavip made for the group."""
    owner = OwnerReference(
        api_version="v1alpha1", kind="KeepalivedGroup", name="edge", uid=EDGE.metadata.uid, controller=True
    )
    return {
        f"{kind} lb/edge": Written(
            metadata=WrittenMetadata(name="edge", namespace="lb", owner_references=[owner]), **more
        )
    }


def told(given: list[Any], standing: Standing) -> str:
    """What the difference says."""
    planned = simulate.plan(given, standing=standing, options=drift.settings_of(standing, ipam="auto"))
    return drift.text(drift.drift_of(planned, standing))


def test_no_password_of_an_old_configuration_is_shown() -> None:
    """The predecessor wrote it in clear text; of a text that goes, the lines are shown without it, packed ones too."""
    packed = base64.b64encode(gzip.compress(OLD_TEXT.encode())).decode()
    given = {
        **written(
            names.CONFIG_MAP,
            data={"keepalived.conf": OLD_TEXT, "agent.json": "{}"},
            binary_data={"next.conf.gz": packed},
        )
    }
    text = told([], Standing(CLUSTER, written=given))
    assert "-    auth_pass (hidden)" in text
    assert "ConfigMap lb/edge next.conf" in text
    assert "s3cret7" not in text


def test_what_stands_in_a_cluster_steers_no_terminal() -> None:
    """Escapes in a text that somebody else wrote are spelled out; its lines and tabs stay."""
    given = written(names.CONFIG_MAP, data={"keepalived.conf": "a {\n\tb \x1b[2J\x9b\u202e\r\n}\n", "agent.json": "{}"})
    text = told([], Standing(CLUSTER, written=given))
    assert "\n-\tb \\x1b[2J\\x9b\\u202e" in text
    assert all(line.replace("\t", "").isprintable() for line in text.split("\n"))


def test_what_stands_keeps_its_vrid_and_address_when_another_comes() -> None:
    """The status of a group is patched by the difference alone, as the API server does it."""
    text = told([new(service("shop/api"))], Standing(CLUSTER))
    assert "KeepalivedGroup lb/edge: status.routerIDs[shop/api]: none -> 1" in text
    assert "shop/web]" not in text
    assert "Service shop/web" not in text


def test_amounts_are_compared_as_amounts_and_strangers_fields_are_none_of_ours() -> None:
    """The API server writes 0.5 as 500m, and fills in what nobody gave; both are no difference."""
    limited = msgspec.structs.replace(
        EDGE, spec=msgspec.structs.replace(EDGE.spec, resources={"requests": {"cpu": "0.5", "memory": "1Gi"}})
    )
    planned = simulate.plan([], standing=Standing((limited, *CLUSTER[1:])))
    (body,) = (each for each in planned.objects if each["kind"] == names.DAEMON_SET)
    spec = msgspec.json.decode(
        msgspec.json.encode(body["spec"]).replace(b'"0.5"', b'"500m"').replace(b"1Gi", b"1024Mi")
    )
    mine = ManagedFields(
        manager="kavip",
        operation="Apply",
        fields={"f:spec": {}, "f:metadata": {"f:labels": {}, "f:ownerReferences": {}}},
    )
    metadata = msgspec.convert(body["metadata"], WrittenMetadata)
    metadata = msgspec.structs.replace(metadata, annotations={"deprecated.daemonset": "1"}, managed_fields=[mine])
    found = {f"{names.DAEMON_SET} lb/edge": Written(metadata=metadata, spec=spec)}
    assert "DaemonSet" not in told([], Standing((limited, *CLUSTER[1:]), written=found))
    assert "DaemonSet" in told([], Standing(CLUSTER, written=found))


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"f:a": {}}, {"a": {"x": 1}}),
        (
            {"f:a": {"f:x": {}}, "f:b": {".": {}, 'k:{"name":"n"}': {".": {}, "f:name": {}}}},
            {"a": {"x": 1}, "b": [{"name": "n"}]},
        ),
        ({"f:b": {'k:{"name":"n"}': {"f:name": {}, "f:v": {}}}}, {"b": [{"name": "n", "v": 2}]}),
        ({"f:gone": {}}, {}),
    ],
)
def test_only_the_fields_that_kavip_applied_count(fields: dict[str, Any], part: Any) -> None:
    """By the API server's own record: whole values, parts of maps, items of lists by their key."""
    value = {"a": {"x": 1}, "b": [{"name": "m", "v": 1}, {"name": "n", "v": 2}]}
    assert drift._owned(value, fields) == part


def test_a_file_over_a_cluster_is_what_apply_would_make() -> None:
    """The webhook's defaults and the server's fields stay, what the last apply gave and this one does not goes."""
    old = group("lb/edge", unicast_enabled=True, segment="default", no_preempt=True)
    over = laid(new(group("lb/edge")), old)
    assert (over.spec.unicast_enabled, over.spec.segment, over.spec.no_preempt) == (True, "default", None)
    assert over.metadata.uid == old.metadata.uid
    last = '{"metadata":{"annotations":{"a":"1","b":"1"}}}'
    was = service(
        "shop/web", annotations={"kubectl.kubernetes.io/last-applied-configuration": last, "a": "1", "b": "1", "c": "1"}
    )
    now = laid(new(service("shop/web", annotations={"a": "2"}, families=())), was)
    assert {key: now.metadata.annotation(key) for key in "abc"} == {"a": "2", "b": "", "c": "1"}
    assert now.spec.ip_families == ["IPv4"]


def published(old: Any, following: Any = None, *, switch_at: str = "") -> dict[str, Written]:
    """The group's ConfigMap as *old* makes it; with *following* beside it, for which it waits."""
    coming = at(made(following), following) if following else None
    body = config_map(old, PublishedRevisions(at(made(old), old), coming, read_instant(switch_at)))
    return written(names.CONFIG_MAP, data=body["data"], binary_data=body.get("binaryData"))


def made(wanted: Any) -> ConfigMap:
    """The ConfigMap that files make of the group."""
    planned = simulate.plan([], standing=Standing((wanted, *CLUSTER[1:])))
    (body,) = (each for each in planned.objects if each["kind"] == names.CONFIG_MAP)
    return ConfigMap(data=body["data"])


def at(found: ConfigMap, wanted: Any) -> Revision:
    """What runs where *found* does."""
    read = read_published(found, settings_of(wanted))
    assert read is not None
    return read.current


def given(wanted: Any) -> list[Any]:
    """The group as a file has it."""
    return [new(wanted)]


SLOW = group("lb/edge", default=True, router_ids={"shop/web": 7}, vrrp_version=3)
FAST = group("lb/edge", default=True, router_ids={"shop/web": 7}, vrrp_version=3, advert_interval_milliseconds=200)
KEYED = group(
    "lb/edge", default=True, router_ids={"shop/web": 7}, password_auth=PasswordAuth(secret_ref=SecretRef(name="vrrp"))
)


@pytest.mark.parametrize(
    ("old", "wanted", "what"),
    [
        (SLOW, FAST, "interval"),
        (EDGE, FAST, "interval, version"),
        (EDGE, KEYED, "password"),
        (
            EDGE,
            msgspec.structs.replace(EDGE, spec=msgspec.structs.replace(EDGE.spec, interface="eth1")),
            "interface",
        ),
        (
            EDGE,
            msgspec.structs.replace(
                EDGE, spec=msgspec.structs.replace(EDGE.spec, instances=Instances(mode="Shared", count=2))
            ),
            "the instances in which VIPs live",
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_all_nodes_change_together_is_said(old: Any, wanted: Any, what: str) -> None:
    """A change that cannot roll from node to node says so, and what of it cannot."""
    standing = Standing((old, *CLUSTER[1:]), written=published(old))
    planned = simulate.plan(given(wanted), standing=standing)
    found = drift.drift_of(planned, standing)
    said = f"KeepalivedGroup lb/edge: all nodes change at one instant ({what}), when each is prepared"
    assert said in drift.text(found).splitlines()
    assert drift.data(found)["together"] == [{"group": "lb/edge", "what": what}]
    assert not found.waits


def test_what_may_roll_is_not_said_to_wait() -> None:
    """One more Service is nothing that nodes must do together."""
    standing = Standing(CLUSTER, written=published(EDGE))
    found = drift.drift_of(simulate.plan([new(service("shop/api"))], standing=standing), standing)
    assert found.diffs
    assert not found.together


@pytest.mark.parametrize("switch_at", ["", "2026-01-01T00:00:10.000Z"])
@pytest.mark.parametrize(("old", "wanted"), [(SLOW, FAST), (EDGE, KEYED)], ids=["interval", "password"])
def test_what_waits_already_is_no_difference(old: Any, wanted: Any, switch_at: str) -> None:
    """Of a group in the middle of a switch only what the files change beside it is shown; that it waits is told."""
    standing = Standing((wanted, *CLUSTER[1:]), written=published(old, wanted, switch_at=switch_at))
    found = drift.drift_of(simulate.plan([], standing=standing), standing)
    assert [diff for what, diff in found.diffs if "ConfigMap" in what] == []
    assert not found.together
    assert ["waits already for all nodes to change at one instant" in str(each) for each in found.waits] == [True]
    back = drift.drift_of(simulate.plan(given(old), standing=standing), standing)
    assert "next.conf" not in drift.text(back)
    assert back.diffs


def test_vrids_are_told_in_the_order_of_their_names() -> None:
    """group/1 comes before group/10."""
    many = msgspec.structs.replace(
        EDGE, spec=msgspec.structs.replace(EDGE.spec, instances=Instances(mode="Shared", count=12))
    )
    standing = Standing(CLUSTER, written=published(EDGE))
    lines = drift.text(drift.drift_of(simulate.plan(given(many), standing=standing), standing)).splitlines()
    told = [line.partition("[")[2].partition("]")[0] for line in lines if "routerIDs[group/" in line]
    assert told == sorted(told)
    assert len(told) == 12
