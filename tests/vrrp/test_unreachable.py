"""Inputs that no user can write (``cases/inputs.yaml``), proved for names, identities, addresses, and every text."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kavip.api.cluster import Node
from kavip.api.group import GroupVirtualIP, Instances
from kavip.errors import UnsafeValue
from kavip.names import MAX_VIPS, SPREAD_ANNOTATION, VERBATIM_ANNOTATION
from kavip.vrrp.members import is_name
from tests.support import build
from tests.vrrp import confparser, keywordvalues
from tests.vrrp.samples import NEW, annotated, conf, nodes, peer_of
from tests.vrrp.triedinputs import LISTS

NAMED = {name: entry["name"] for name, entry in LISTS["unreachable"].items() if "name" in entry}
THROWN = {name: entry["place"] for name, entry in LISTS["unreachable"].items() if "place" in entry}


def instances(text: str) -> dict[str, dict[str, list[confparser.Statement]]]:
    """For each instance of *text*, the words of each keyword that opens a block, and its VRID."""
    found = {}
    for words, body in confparser.named(confparser.read(text)).items():
        if words[0] == "vrrp_instance":
            found[words[1]] = {each.words[0]: each.body or [confparser.Statement(each.words[1:])] for each in body}
    return found


@pytest.mark.parametrize("spec", keywordvalues.SPECS)
def test_no_instance_has_other_addresses(spec: str) -> None:
    """Each instance advertises one address, and all its others are of the same family, for any number of addresses."""
    many = [f"198.51.100.{number}" for number in range(1, MAX_VIPS)]
    own = [GroupVirtualIP(address=f"203.0.{number // 250}.{number % 250 + 1}") for number in range(300)]
    services = [annotated("a/none"), annotated("a/one", "2001:db8::1"), annotated("a/many", *many, "2001:db8::2")]
    found = instances(conf(build.group(**keywordvalues.SPECS[spec], virtual_ips=own), services, nodes(2)))
    assert found.keys() == {"a/one/v6", "a/many", "a/many/v6", "lb/edge/virtualips"}
    for blocks in found.values():
        (anchor,) = blocks["virtual_ipaddress"]
        excluded = blocks.get("virtual_ipaddress_excluded", [])
        assert {":" in each.words[0] for each in (anchor, *excluded)} == {":" in anchor.words[0]}


@pytest.mark.parametrize("spec", keywordvalues.SPECS)
@pytest.mark.parametrize("mode", ["PerService", "Shared"])
def test_no_two_instances_share_an_identity(spec: str, mode: str) -> None:
    """Names differ, and so do VRIDs within a family, also where a status has the same VRID for all."""
    held = dict.fromkeys(["a/a", "a/b", "a/s/192.0.2.140", "a/s/192.0.2.141", "group/0", "group/1"], 51)
    more = {**keywordvalues.SPECS[spec], "instances": Instances(mode=mode, count=3), "router_ids": held}
    group = build.group(**more, virtual_ips=[GroupVirtualIP(address="203.0.113.1")])
    both = ("192.0.2.130", "2001:db8::1"), ("192.0.2.131", "2001:db8::2")
    services = [annotated(key, *vips) for key, vips in zip(("a/a", "a/b"), both, strict=True)]
    services.append(annotated("a/s", "192.0.2.140", "192.0.2.141", spread=True))
    found = instances(conf(group, services, nodes(2)))
    identities = [(name.endswith("/v6"), blocks["virtual_router_id"][0].words) for name, blocks in found.items()]
    assert len(found) > 4
    assert len(set(identities)) == len(identities)


def test_every_reason_is_proved() -> None:
    """The reason for each such input is one of the four that are proved here."""
    others = {str(entry) for name, entry in LISTS["unreachable"].items() if name not in NAMED | THROWN}
    assert others == {"addresses", "identity"}


@pytest.mark.parametrize("name", NAMED)
def test_no_instance_has_another_name(name: str) -> None:
    """An instance is named after its Service, and no Service has such a name; one from a file gets no instance."""
    key = f"shop/{NAMED[name]}"
    assert not is_name(key)
    assert not instances(conf(build.group(), [annotated(key, "192.0.2.130")], nodes(1)))


def places(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments of :func:`written` with *text* in every field that a user writes and that could reach the file."""
    for keyword in (*keywordvalues.KNOWN, text):
        yield f"verbatimconfig {keyword}", {"service": {"verbatim": json.dumps({keyword: text})}}
    for keyword in (*keywordvalues.KNOWN_GLOBALLY, text):
        yield f"verbatimConfig {keyword}", {"verbatim_config": {keyword: text}}
    yield "verbatimconfig", {"service": {"verbatim": text}}
    yield "spreadvips", {"service": {"annotations": {SPREAD_ANNOTATION: text}}}
    yield "name of a Service", {"key": f"a/{text}"}
    yield "namespace of a Service", {"key": f"{text}/b"}
    yield "address of a Service", {"address": text}
    yield "external IP", {"service": {"external_ips": [text]}}
    yield "name of a group", {"name": f"lb/{text}"}
    yield "namespace of a group", {"name": f"{text}/edge"}
    for field in ("interface", "vrrp_interface", "interface_from_ip", "segment", "openshift_cluster_name"):
        yield field, {field: text}
    yield "allow_verbatim", {"allow_verbatim": [text]}
    yield "virtual_ips", {"virtual_ips": [GroupVirtualIP(address=text)]}
    yield "interface of virtual_ips", {"virtual_ips": [GroupVirtualIP(address="203.0.113.1", interface=text)]}
    yield "VRIDs of a status", {"router_ids": {text: 7}}
    yield "name of a node", {"node": build.node(text, "192.0.2.99")}
    yield "address of a node", {"node": build.node("n9", text)}


def written(
    *, key: str = "a/b", address: str = "192.0.2.130", name: str = "lb/edge", node: Node | None = None, **more: Any
) -> str:
    """The text of group *name* with one Service, on two or three nodes."""
    wanted: dict[str, Any] = more.pop("service", {})
    notes = {VERBATIM_ANNOTATION: wanted.pop("verbatim", ""), **wanted.pop("annotations", {})}
    service = build.service(key, holds=[address], annotations=notes, **wanted)
    peers = [*nodes(2), *([peer_of(node)] if node else [])]
    return conf(
        build.group(name, **{**NEW, "allow_verbatim": keywordvalues.EVERY, "allow_scripts": True, **more}),
        [service],
        peers,
    )


@pytest.mark.parametrize("name", THROWN)
def test_no_text_leaves_its_field(name: str) -> None:
    """In every field, such a text is left out or nothing is rendered; the rest keeps its form."""
    bare = confparser.read(written())
    known = {*keywordvalues.KNOWN, *keywordvalues.KNOWN_GLOBALLY, "script_user"}
    known |= {each.words[0] for block in bare for each in block.body}
    rendered = []
    for place, arguments in places(THROWN[name]):
        try:
            top = confparser.read(written(**arguments))
        except UnsafeValue:
            continue
        rendered.append(place)
        assert [block.words[0] for block in top if block.words[0] != "vrrp_instance"] == ["global_defs"], place
        inner = {each.words[0] for block in top for each in block.body}
        assert {word for word in inner if not word.startswith("@")} <= known, place
    assert {"verbatimconfig", "verbatimConfig router_id", "VRIDs of a status", "address of a Service"} <= {*rendered}
