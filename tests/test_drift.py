"""``kavip plan --diff`` on literals: passwords stay hidden, amounts are amounts, and what stands keeps its VRIDs."""

import base64
import gzip
from typing import Any

import msgspec
import pytest

from kavip import drift, names, offline
from kavip.api.meta import OwnerReference
from kavip.api.workload import ManagedFields, Written, WrittenMetadata
from kavip.overlay import Standing, laid
from tests.build import group, namespace, node, pool, service
from tests.test_explain import new

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
    planned = offline.plan(given, standing=standing, options=drift.settings_of(standing, ipam="auto"))
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
    planned = offline.plan([], standing=Standing((limited, *CLUSTER[1:])))
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
