"""``kavip plan --diff``: hidden passwords, quantities, kept VRIDs, and changes at one instant."""

import base64
import gzip
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kavip import names
from kavip.api.agentconfig import DetectionConfig
from kavip.api.group import Instances, PasswordAuth, SecretRef
from kavip.api.instant import read_instant
from kavip.api.meta import OwnerReference
from kavip.api.workload import ConfigMap, ManagedFields, Written, WrittenMetadata
from kavip.cli.views import diff, objectdiff, simulate
from kavip.cli.views.apply import applied
from kavip.cli.views.listing import Listing
from kavip.podtemplate.permissions import TemplatePermissions
from kavip.reconcile.group.manifests import config_map
from kavip.reconcile.plan import ReconcileOptions
from kavip.reconcile.rollout.configmap import PublishedRevisions, Revision, read_published, settings_of
from kavip.vrrp.compact import encode
from kavip.vrrp.packed import pack
from tests.cli.manifest import manifest
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


def compact(text: str) -> str:
    """*text* in the compact notation."""
    return encode([("", text)])


def applied_by_kavip(daemonset: Mapping[str, Any]) -> dict[str, Written]:
    """The DaemonSet of the group in the cluster, as kavip applied it; another writer added an annotation."""
    mine = ManagedFields(
        manager="kavip",
        operation="Apply",
        fields={"f:spec": {}, "f:metadata": {"f:labels": {}, "f:ownerReferences": {}}},
    )
    metadata = msgspec.convert(daemonset["metadata"], WrittenMetadata)
    metadata = msgspec.structs.replace(metadata, annotations={"deprecated.daemonset": "1"}, managed_fields=[mine])
    return {f"{names.DAEMON_SET} lb/edge": Written(metadata=metadata, spec=daemonset["spec"])}


def diff_text(published: list[Any], cluster: Listing) -> str:
    """The text of the difference."""
    planned = simulate.plan(
        published, cluster=cluster, options=diff.settings_of(cluster, ipam="auto", templates=TemplatePermissions())
    )
    return diff.text(diff.diff_of(planned, cluster))


def test_no_password_of_an_old_configuration_is_shown() -> None:
    """keepalived-operator wrote it in clear text; removed lines are shown without it, compressed ones too."""
    packed = base64.b64encode(gzip.compress(OLD_TEXT.encode())).decode()
    published = {
        **written(
            names.CONFIG_MAP,
            data={"keepalived.conf": OLD_TEXT, "agent.json": "{}"},
            binary_data={"next.conf.gz": packed},
        )
    }
    text = diff_text([], Listing(CLUSTER, written=published))
    assert "-    auth_pass (hidden)" in text
    assert "ConfigMap lb/edge next.conf" in text
    assert "s3cret7" not in text


@pytest.mark.parametrize(
    "content",
    [gzip.compress(b"")[:10] + b"\x07" * 20, gzip.compress(bytes(1 << 26), 9), b"no gzip", gzip.compress(b"\xff")],
    ids=["invalid block", "64 MiB of zeros", "no gzip", "no text"],
)
def test_a_next_text_that_cannot_be_read_is_shown_as_it_is(content: bytes) -> None:
    """Hostile bytes in a ConfigMap do not end the command, and it reads only some megabytes of them."""
    encoded = base64.b64encode(content).decode()
    data = {"keepalived.conf": "a\n", "agent.json": "{}"}
    found = written(names.CONFIG_MAP, data=data, binary_data={"next.conf.gz": encoded})
    assert f"-{encoded}" in diff_text([], Listing(CLUSTER, written=found)).splitlines()


def test_control_characters_of_a_cluster_are_escaped() -> None:
    """Lines and tabs of a text from another writer stay."""
    published = written(
        names.CONFIG_MAP, data={"keepalived.conf": "a {\n\tb \x1b[2J\x9b\u202e\r\n}\n", "agent.json": "{}"}
    )
    text = diff_text([], Listing(CLUSTER, written=published))
    assert "\n-\tb \\x1b[2J\\x9b\\u202e" in text
    assert all(line.replace("\t", "").isprintable() for line in text.split("\n"))


def test_a_service_keeps_its_vrid_and_address_when_another_is_added() -> None:
    """Only the difference of a group's status is patched, as in the API server."""
    text = diff_text([manifest(service("shop/api"))], Listing(CLUSTER))
    assert "KeepalivedGroup lb/edge: status.routerIDs[shop/api]: none -> 1" in text
    assert "shop/web]" not in text
    assert "Service shop/web" not in text


def test_quantities_and_fields_of_other_writers_are_no_difference() -> None:
    """The API server writes 0.5 as 500m, and adds defaults; neither is a difference."""
    limited = msgspec.structs.replace(
        EDGE, spec=msgspec.structs.replace(EDGE.spec, resources={"requests": {"cpu": "0.5", "memory": "1Gi"}})
    )
    planned = simulate.plan([], cluster=Listing((limited, *CLUSTER[1:])))
    (body,) = (each for each in planned.objects if each["kind"] == names.DAEMON_SET)
    spec = msgspec.json.decode(
        msgspec.json.encode(body["spec"]).replace(b'"0.5"', b'"500m"').replace(b"1Gi", b"1024Mi")
    )
    found = applied_by_kavip({**body, "spec": spec})
    assert "DaemonSet" not in diff_text([], Listing((limited, *CLUSTER[1:]), written=found))
    assert "DaemonSet" in diff_text([], Listing(CLUSTER, written=found))


def test_the_settings_of_the_running_kavip_are_no_difference() -> None:
    """Where its image is from, when it is pulled, and with which Secrets beside those of the group."""
    secret = {"name": "team"}
    mine = msgspec.structs.replace(EDGE, spec=msgspec.structs.replace(EDGE.spec, image_pull_secrets=[secret]))
    cluster = Listing((mine, *CLUSTER[1:]))
    options = ReconcileOptions(
        image="registry.example/kavip:1", pull_policy="Never", pull_secrets=("mirror",), agent_metrics="mehdy"
    )
    (body,) = (
        each for each in simulate.plan([], cluster=cluster, options=options).objects if each["kind"] == names.DAEMON_SET
    )
    running = Listing(cluster.objects, written=applied_by_kavip(body))
    assert diff.settings_of(running, ipam="auto", templates=TemplatePermissions()) == replace(options, ipam="auto")
    assert "DaemonSet" not in diff_text([], running)


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
def test_only_fields_that_kavip_applied_are_compared(fields: dict[str, Any], part: Any) -> None:
    """The API server records them: whole values, parts of maps, items of lists by their key."""
    value = {"a": {"x": 1}, "b": [{"name": "m", "v": 1}, {"name": "n", "v": 2}]}
    assert objectdiff._part(value, fields) == part


def test_a_manifest_is_applied_as_kubectl_would() -> None:
    """Defaults and the server's fields stay; annotations of the last apply that this one lacks are removed."""
    old = group("lb/edge", unicast_enabled=True, segment="default", no_preempt=True)
    over = applied(manifest(group("lb/edge")), old)
    assert (over.spec.unicast_enabled, over.spec.segment, over.spec.no_preempt) == (True, "default", None)
    assert over.metadata.uid == old.metadata.uid
    last = '{"metadata":{"annotations":{"a":"1","b":"1"}}}'
    was = service(
        "shop/web", annotations={"kubectl.kubernetes.io/last-applied-configuration": last, "a": "1", "b": "1", "c": "1"}
    )
    now = applied(manifest(service("shop/web", annotations={"a": "2"}, families=())), was)
    assert {key: now.metadata.annotation(key) for key in "abc"} == {"a": "2", "b": "", "c": "1"}
    assert now.spec.ip_families == ["IPv4"]


def published(old: Any, following: Any = None, *, switch_at: str = "") -> dict[str, Written]:
    """The group's ConfigMap for *old*, with a pending switchover to *following*."""
    coming = at(config_map_of(following), following) if following else None
    revisions = PublishedRevisions(at(config_map_of(old), old), coming, read_instant(switch_at))
    body = config_map(old, revisions, detection=DetectionConfig())
    return written(names.CONFIG_MAP, data=body["data"], binary_data=body.get("binaryData"))


def config_map_of(wanted: Any) -> ConfigMap:
    """The ConfigMap that files with the group *wanted* give."""
    planned = simulate.plan([], cluster=Listing((wanted, *CLUSTER[1:])))
    (body,) = (each for each in planned.objects if each["kind"] == names.CONFIG_MAP)
    return ConfigMap(data=body["data"])


def at(found: ConfigMap, wanted: Any) -> Revision:
    """The revision that runs with *found*."""
    read = read_published(found, settings_of(wanted))
    assert read is not None
    return read.current


def manifests_of(wanted: Any) -> list[Any]:
    """The group as a manifest."""
    return [manifest(wanted)]


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
def test_a_change_of_all_nodes_at_one_instant_is_reported(old: Any, wanted: Any, what: str) -> None:
    """The line names what cannot roll from node to node."""
    cluster = Listing((old, *CLUSTER[1:]), written=published(old))
    planned = simulate.plan(manifests_of(wanted), cluster=cluster)
    found = diff.diff_of(planned, cluster)
    expected = f"KeepalivedGroup lb/edge: all nodes change at one instant ({what}), when each is prepared"
    assert expected in diff.text(found).splitlines()
    assert diff.data(found)["together"] == [{"group": "lb/edge", "what": what}]
    assert not found.pending


def test_a_rolling_change_is_no_switchover() -> None:
    """A further Service rolls from node to node."""
    cluster = Listing(CLUSTER, written=published(EDGE))
    found = diff.diff_of(simulate.plan([manifest(service("shop/api"))], cluster=cluster), cluster)
    assert found.diffs
    assert not found.switchovers


@pytest.mark.parametrize("notation", [compact, pack, lambda text: pack(compact(text))])
def test_the_notation_of_a_text_is_no_difference(notation: Callable[[str], str]) -> None:
    """The ConfigMap of a large group is compact, or packed; the difference is that of the texts in full."""
    (found,) = published(EDGE).values()
    short = {**(found.data or {}), names.CONFIG_KEY: notation((found.data or {})[names.CONFIG_KEY])}
    assert short != found.data
    cluster = Listing(CLUSTER, written=written(names.CONFIG_MAP, data=short))
    unchanged = diff.diff_of(simulate.plan([], cluster=cluster), cluster)
    assert [what for what, _ in unchanged.diffs if "ConfigMap" in what] == []
    more = diff.diff_of(simulate.plan([manifest(service("shop/api"))], cluster=cluster), cluster)
    assert "+vrrp_instance shop/api {" in diff.text(more)
    assert "kavip: compact" not in diff.text(more)
    assert "kavip: packed" not in diff.text(more)


@pytest.mark.parametrize("switch_at", ["", "2026-01-01T00:00:10.000Z"])
@pytest.mark.parametrize(("old", "wanted"), [(SLOW, FAST), (EDGE, KEYED)], ids=["interval", "password"])
def test_a_pending_switchover_is_no_difference(old: Any, wanted: Any, switch_at: str) -> None:
    """Only what the files change beside it is shown, and that it is pending."""
    cluster = Listing((wanted, *CLUSTER[1:]), written=published(old, wanted, switch_at=switch_at))
    found = diff.diff_of(simulate.plan([], cluster=cluster), cluster)
    assert [what for what, _ in found.diffs if "ConfigMap" in what] == []
    assert not found.switchovers
    assert ["a switchover of all nodes is already pending" in str(each) for each in found.pending] == [True]
    back = diff.diff_of(simulate.plan(manifests_of(old), cluster=cluster), cluster)
    assert "next.conf" not in diff.text(back)
    assert back.diffs


def test_vrids_are_sorted_by_their_keys() -> None:
    """group/1 comes before group/10."""
    many = msgspec.structs.replace(
        EDGE, spec=msgspec.structs.replace(EDGE.spec, instances=Instances(mode="Shared", count=12))
    )
    cluster = Listing(CLUSTER, written=published(EDGE))
    lines = diff.text(diff.diff_of(simulate.plan(manifests_of(many), cluster=cluster), cluster)).splitlines()
    shown = [line.partition("[")[2].partition("]")[0] for line in lines if "routerIDs[group/" in line]
    assert shown == sorted(shown)
    assert len(shown) == 12


def test_what_an_earlier_status_shows_of_shared_instances_is_no_difference() -> None:
    """kavip 0.1 named the Services, which hold no VRIDs; a number of an instance that changes is one."""
    ids = {"group/0": 7, "shop/web": 7}
    shared = group("lb/edge", default=True, router_ids=ids, instances=Instances(mode="Shared", count=1))
    cluster = Listing((shared, *CLUSTER[1:]))
    assert "routerIDs" not in diff_text([], cluster)
    barred = group("lb/edge", blacklist_router_ids=[7], instances=Instances(mode="Shared", count=1), default=True)
    lines = diff_text(manifests_of(barred), cluster).splitlines()
    assert [line for line in lines if "routerIDs" in line] == [
        "KeepalivedGroup lb/edge: status.routerIDs[group/0]: 7 -> 1"
    ]
