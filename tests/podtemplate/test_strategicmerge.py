"""Strategic merge patches, compared with the real kubectl and with the OpenAPI of the API server."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given

from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs
from kavip.errors import BadInput
from kavip.podtemplate.podschema import POD_TEMPLATE
from kavip.podtemplate.strategicmerge import Schema, merge
from tests.podtemplate.patches import Json, patches, templates
from tests.support.examples import examples

PAIR = {"name": "a", "image": "x", "args": ["1"], "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}
POD: Json = {"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [PAIR, {"name": "b"}], "hostNetwork": True}}


def patched(original: Json, patch: Json) -> Json | None:
    """The result of kavip; None for a malformed patch."""
    try:
        return merge(original, patch, POD_TEMPLATE)
    except BadInput:
        return None


def patched_by_kubectl(programs: Programs, original: Json, patch: Json) -> Json | None:
    """The result of ``kubectl patch --local --type=strategic``; None for an error."""
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "x"}, "spec": {"template": original}}
    wanted = json.dumps({"spec": {"template": patch}})
    command = [str(programs["kubectl"]), "patch", "--local", "--type=strategic", "--filename=-", "--output=json"]
    done = subprocess.run(
        [*command, f"--patch={wanted}"],
        input=json.dumps(body),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        return None
    found: Json = json.loads(done.stdout)["spec"]["template"]
    return found


CASES: dict[str, tuple[Json, Json | None]] = {
    "an item is merged, and comes first": (
        {"spec": {"containers": [{"name": "b", "image": "y"}]}},
        {**POD, "spec": {"containers": [PAIR, {"name": "b", "image": "y"}], "hostNetwork": True}},
    ),
    "a new item comes first": (
        {"spec": {"containers": [{"name": "c"}]}},
        {**POD, "spec": {"containers": [{"name": "c"}, PAIR, {"name": "b"}], "hostNetwork": True}},
    ),
    "an item is deleted": (
        {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}},
        {**POD, "spec": {"containers": [{"name": "b"}], "hostNetwork": True}},
    ),
    "a list is replaced": (
        {"spec": {"containers": [{"name": "c"}, {"$patch": "replace"}]}},
        {**POD, "spec": {"containers": [{"name": "c"}], "hostNetwork": True}},
    ),
    "a list without a key is replaced": (
        {"spec": {"containers": [{"name": "a", "args": ["2"]}]}},
        {**POD, "spec": {"containers": [{**PAIR, "args": ["2"]}, {"name": "b"}], "hostNetwork": True}},
    ),
    "null removes a field": (
        {"spec": {"hostNetwork": None}},
        {**POD, "spec": {"containers": [PAIR, {"name": "b"}]}},
    ),
    "a map is replaced": (
        {"metadata": {"labels": {"b": "2", "$patch": "replace"}}},
        {**POD, "metadata": {"labels": {"b": "2"}}},
    ),
    "an order is set": (
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        {**POD, "spec": {"containers": [{"name": "b"}, PAIR], "hostNetwork": True}},
    ),
    "an unknown directive": ({"spec": {"$patch": "merge"}}, None),
    "an item without its key": ({"spec": {"containers": [{"image": "y"}]}}, None),
    "an order that lacks an item": (
        {"spec": {"containers": [{"name": "b"}], "$setElementOrder/containers": [{"name": "a"}]}},
        None,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_patch_merges(case: str) -> None:
    """Each directive has its effect, and a malformed one is an error."""
    patch, wanted = CASES[case]
    assert patched(POD, patch) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_kubectl_merges_alike(case: str, programs: Programs) -> None:
    """kubectl has the same results."""
    patch, wanted = CASES[case]
    assert patched_by_kubectl(programs, POD, patch) == wanted


@pytest.mark.slow
@examples(150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(original=templates(), patch=patches())
def test_any_patch_is_that_of_kubectl(programs: Programs, original: Json, patch: Json) -> None:
    """Any patch of any template gives what kubectl gives, or is an error for both."""
    assert patched(original, patch) == patched_by_kubectl(programs, original, patch)


@given(original=templates(), patch=patches())
def test_a_patch_changes_no_argument(original: Json, patch: Json) -> None:
    """The arguments stay as they are."""
    before = json.dumps([original, patch])
    patched(original, patch)
    assert json.dumps([original, patch]) == before


@pytest.mark.apiserver
def test_the_schema_is_that_of_the_api_server(control_plane: ControlPlane) -> None:
    """The API server merges the same lists by the same keys."""
    found = json.loads(control_plane.kubectl("get", "--raw=/openapi/v2").stdout)["definitions"]
    wanted = dict(_merging(found, found["io.k8s.api.core.v1.PodTemplateSpec"], ""))
    assert wanted == {path: key for path, key in _known(POD_TEMPLATE, "") if path in wanted or key == ""}
    assert {path for path, _ in _known(POD_TEMPLATE, "")} >= wanted.keys()


def _merging(definitions: Json, schema: Json, path: str) -> Iterator[tuple[str, str]]:
    """The lists in *schema* that merge, each with its key; "" for lists of words."""
    for name, inner in schema.get("properties", {}).items():
        where = f"{path}.{name}"
        if "merge" in inner.get("x-kubernetes-patch-strategy", ""):
            yield where, inner.get("x-kubernetes-patch-merge-key", "")
        target: Any = inner.get("items", inner).get("$ref", "")
        if target and where.count(".") < 6:
            yield from _merging(definitions, definitions[target.removeprefix("#/definitions/")], where)


def _known(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    """The same of kavip's schema."""
    yield from ((f"{path}.{name}", key) for name, key in schema.keys.items())
    yield from ((f"{path}.{name}", "") for name in schema.sets)
    for name, child in schema.children.items():
        yield from _known(child, f"{path}.{name}")
