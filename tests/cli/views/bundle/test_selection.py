"""The allowed fields, compared with the CRDs, and what of an object passes."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kavip import names
from kavip.api.installation import WholeObject
from kavip.api.meta import Metadata
from kavip.cli.views.bundle import selection
from kavip.cli.views.bundle.fields import ALLOWED
from kavip.cli.views.bundle.redaction import REMOVED
from kavip.cli.views.bundle.selection import allowed_part
from tests.support.manifests import ROOT

CRDS = {
    names.KEEPALIVED_GROUP: ROOT / "config" / "crd" / "bases" / "keepalivedgroups.redhatcop.redhat.io.yaml",
    names.VIP_POOL: ROOT / "config" / "crd" / "bases" / "vippools.kavip.io.yaml",
}
LEFT_OUT = {
    names.KEEPALIVED_GROUP: {"spec.imagePullSecrets"},
    names.VIP_POOL: set[str](),
}
"""Fields of kavip's own kinds of which nothing is in a bundle."""


@pytest.mark.parametrize("kind", CRDS)
def test_each_field_of_our_kinds_is_decided_upon(kind: str) -> None:
    """Each field of spec and status is allowed in part, or left out on purpose; and no path has a wrong name."""
    root = yaml.safe_load(CRDS[kind].read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    ours = {path for path in ALLOWED[kind] if not path.startswith("metadata")}
    assert [path for path in sorted(ours) if not exists(root, path)] == []
    first = {".".join(path.split("[")[0].split("{")[0].split(".")[:2]) for path in ours}
    known = {f"{part}.{name}" for part in ("spec", "status") for name in root["properties"][part]["properties"]}
    assert known - first == LEFT_OUT[kind]


def exists(schema: dict[str, Any], path: str) -> bool:
    """Whether *schema* has *path*; below a part without a schema everything exists."""
    for token in selection._TOKEN.findall(path):
        if token in ("{keys}", "{}") or schema.get("x-kubernetes-preserve-unknown-fields"):
            return True
        below = schema.get("items") if token == "[]" else schema.get("properties", {}).get(token)
        if below is None:
            return False
        schema = below
    return True


@pytest.mark.parametrize("kind", ALLOWED)
def test_the_paths_of_a_kind_agree(kind: str) -> None:
    """No path ends where another one goes on, and no mark stands beside a name."""
    ends = set(ALLOWED[kind])
    assert len(ends) == len(ALLOWED[kind])
    assert [path for path in ends if any(each.startswith((f"{path}.", f"{path}[", f"{path}{{")) for each in ends)] == []
    for tree in trees(selection._tree(kind)):
        assert len(tree) == 1 or tree.keys().isdisjoint(selection._MARKS)


def trees(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """*tree* and all trees below."""
    yield tree
    for each in tree.values():
        yield from trees(each)


def test_what_is_not_listed_is_left_out() -> None:
    """Of an object only listed fields pass, and only if they are of the listed form."""
    found = WholeObject(
        metadata=Metadata(
            name="web",
            namespace="shop",
            uid="x",
            labels={"tier": "front", "owner": "me"},
            annotations={names.POOL_ANNOTATION: "edge", names.VERBATIM_ANNOTATION: "{}", "other": "x"},
        ),
        spec={
            "type": {"no": "text"},
            "selector": {"app": "web"},
            "ports": [{"port": 80, "secret": "x", "name": ["x"]}, "x"],
            "clusterIPs": ["192.0.2.1", {"x": "y"}],
            "externalIPs": "192.0.2.1",
        },
        status={"conditions": [{"type": "A", "status": "True", "more": "x"}]},
    )
    assert allowed_part(names.SERVICE, found, labels={"tier", "absent"}) == {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "labels": {"tier": "front"},
            "annotations": {names.POOL_ANNOTATION: "edge"},
        },
        "spec": {"ports": [{"port": 80}], "clusterIPs": ["192.0.2.1"]},
        "status": {"conditions": [{"type": "A", "status": "True"}]},
    }


def test_keys_and_known_words_pass_without_the_rest() -> None:
    """Of a map that may hold anything only the keys pass; of a command only the words of kavip."""
    group = WholeObject(spec={"verbatimConfig": {"accept": "x"}, "podTemplate": {"spec": {"a": "x"}}})
    assert allowed_part(names.KEEPALIVED_GROUP, group)["spec"] == {
        "verbatimConfig": {"accept": REMOVED},
        "podTemplate": {"spec": REMOVED},
    }
    container = {"name": "kavip", "args": ["controller", "--token=x", 7], "env": [{"name": "A", "value": "x"}]}
    pod = WholeObject(spec={"containers": [container]})
    assert allowed_part(names.POD, pod)["spec"] == {
        "containers": [{"name": "kavip", "args": ["controller", REMOVED, REMOVED]}]
    }


def test_lists_and_maps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hostile object only the first elements and entries pass."""
    monkeypatch.setattr(selection, "MOST", 2)
    group = WholeObject(
        spec={"allowVerbatim": ["a", "b", "c"], "nodeSelector": {"a": "1", "b": "2", "c": "3"}},
    )
    assert allowed_part(names.KEEPALIVED_GROUP, group)["spec"] == {
        "allowVerbatim": ["a", "b"],
        "nodeSelector": {"a": "1", "b": "2"},
    }
