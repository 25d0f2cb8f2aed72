"""The envelope of a review: decoded, evaluated, answered."""

import base64
import json
import re
from typing import Any

import msgspec
import pytest

from kavip.api import rawobject, review
from kavip.api.group import GroupSpec
from kavip.api.pool import PoolSpec
from kavip.api.rawobject import OverBudget, UncheckedUpdate
from kavip.api.review import AdmissionResponse, Operation, Status, StatusCause, StatusDetails
from kavip.api.service import Service, ServiceSpec
from kavip.errors import BadInput

SERVICE: dict[str, Any] = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"type": "LoadBalancer"}}


def body(**request: Any) -> bytes:
    """A review as the API server sends it."""
    parsed_review = {"uid": "u1", "operation": "CREATE", "object": SERVICE, "oldObject": None, **request}
    return json.dumps({"apiVersion": review.API_VERSION, "kind": review.KIND, "request": parsed_review}).encode()


def test_a_create_has_a_new_object_only() -> None:
    """``oldObject: null`` is no object."""
    request = review.decode_request(body(userInfo={"username": "jane"}))
    assert review.decode_user(request).username == "jane"
    parsed_review = review.decode_objects(request, Service)
    assert (parsed_review.operation, parsed_review.old) == (Operation.CREATE, None)
    assert parsed_review.subject.key == "shop/web"


def test_a_small_service_exceeds_no_limit() -> None:
    """The sizes in a small Service are not checked: the limits of small objects are lower, and it has no selector."""
    assert rawobject.FEW_ITEMS <= review._MAX_ENTRIES
    assert rawobject.FEW_BYTES <= review._MAX_ANNOTATIONS
    assert not any("LabelSelector" in str(info.type) for info in msgspec.structs.fields(ServiceSpec))


@pytest.mark.parametrize("spec", [ServiceSpec, GroupSpec, PoolSpec])
def test_every_list_object_and_selector_of_a_spec_is_bounded(spec: type[ServiceSpec | GroupSpec | PoolSpec]) -> None:
    """Except the ports of a Service, whose items are counted before they are decoded."""
    large = re.compile(r"list\[|dict\[|.*LabelSelector")
    fields = {info.name for info in msgspec.structs.fields(spec) if large.match(str(info.type))}
    assert fields
    assert {name for name, _ in review._LARGE_FIELDS[spec]} == fields - {"ports"}


def test_a_delete_is_about_the_old_object() -> None:
    """The subject of a DELETE is the old object."""
    parsed_review = review.decode_objects(
        review.decode_request(body(operation="DELETE", object=None, oldObject=SERVICE)), Service
    )
    assert parsed_review.old is None
    assert parsed_review.subject.key == "shop/web"


def test_the_namespace_of_the_request_is_used() -> None:
    """An object without a namespace gets that of the request."""
    raw = {"metadata": {"name": "web"}}
    assert (
        review.decode_objects(review.decode_request(body(object=raw, namespace="shop")), Service).subject.key
        == "shop/web"
    )


@pytest.mark.parametrize(
    ("large", "message"),
    [
        ({"metadata": {"annotations": {"a": "x" * (1 << 20)}}}, "metadata.annotations: 1048577: want at most"),
        ({"spec": {"externalIPs": ["192.0.2.1"] * 10_000}}, "spec.externalIPs: 10000: want at most 1024 entries"),
    ],
)
def test_an_absurdly_large_object_is_refused(large: dict[str, Any], message: str) -> None:
    """An object that would delay other reviews is refused unless an UPDATE leaves it; an old one counts as absent."""
    with pytest.raises(OverBudget, match=message):
        review.decode_objects(review.decode_request(body(object=large)), Service)
    with pytest.raises(UncheckedUpdate, match=message):
        review.decode_objects(review.decode_request(body(object=large, oldObject=large, operation="UPDATE")), Service)
    mended = review.decode_objects(review.decode_request(body(oldObject=large, operation="UPDATE")), Service)
    assert (mended.old, mended.lacks_old) == (None, True)


def test_only_the_metadata_of_a_deleted_object_counts() -> None:
    """A stored object can be deleted, however large its spec is."""
    large = {"metadata": {"name": "web"}, "spec": {"externalIPs": [""] * 100_000}}
    parsed_review = review.decode_request(body(operation="DELETE", object=None, oldObject=large))
    assert review.decode_objects(parsed_review, Service).subject.key == "web"


@pytest.mark.parametrize("name", ["uid", "name", "namespace"])
def test_names_in_the_envelope_are_bounded(name: str) -> None:
    """A response has these names, so they are refused before they are copied."""
    with pytest.raises(BadInput, match=f"request.{name}: .* want at most 1,024"):
        review.decode_request(body(**{name: "x" * 1025}))


def test_the_user_is_bounded() -> None:
    """A user in thousands of groups is not decoded."""
    parsed_review = review.decode_request(body(userInfo={"username": "x" * review.MAX_USER_INFO}))
    with pytest.raises(BadInput, match=r"request.userInfo: .* want at most 65,536"):
        review.decode_user(parsed_review)


def test_many_ports_are_accepted() -> None:
    """A Service may have thousands of ports."""
    many = {"spec": {"ports": [{"name": f"p{number}", "port": number} for number in range(5_000)]}}
    assert (
        len(review.decode_objects(review.decode_request(body(object=many)), Service).subject.spec.ports or ()) == 5_000
    )


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "AdmissionReview"),
        (b"\xff\xfe", "cannot be read"),
        (b"[]", r"Expected `object`, got `array`"),
        (b"{}", "missing required field"),
        (b"[" * 100_000, "cannot be read"),
        (body().replace(b"k8s.io/v1", b"k8s.io/v1beta1"), "want admission.k8s.io/v1, AdmissionReview"),
        (body(uid=""), "request.uid"),
        (body(operation="LOOK"), r"Invalid enum value 'LOOK'"),
    ],
)
def test_a_malformed_envelope_is_bad_input(data: bytes, message: str) -> None:
    """A body that is no AdmissionReview of v1 is refused with the cause."""
    with pytest.raises(BadInput, match=message):
        review.decode_request(data)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"object": None}, "request.object"),
        ({"object": {"spec": {"ports": "80"}}}, r"Service.*Expected `array \| null`, got `str` - at `\$.spec.ports`"),
        ({"object": 7}, "Expected `object`, got `int`"),
    ],
)
def test_a_malformed_object_is_bad_input_and_not_quoted(request_: dict[str, Any], message: str) -> None:
    """The message has the path of the error, not the content."""
    parsed_review = review.decode_request(body(**request_))
    with pytest.raises(BadInput, match=message):
        review.decode_objects(parsed_review, Service)


def test_a_response_has_all_findings() -> None:
    """Code, causes and warnings are in the body under Kubernetes' names."""
    cause = StatusCause(reason="Invalid", message="no", field="spec.externalIPs[0]")
    details = StatusDetails(name="web", kind="Service", causes=[cause])
    status = Status(code=422, reason="Invalid", message="no", status="Failure", details=details)
    response = AdmissionResponse(uid="u1", allowed=False, status=status, warnings=["mind"])
    assert json.loads(review.encode_response(response)) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "u1",
            "allowed": False,
            "status": {
                "code": 422,
                "reason": "Invalid",
                "message": "no",
                "status": "Failure",
                "details": {
                    "name": "web",
                    "kind": "Service",
                    "causes": [{"reason": "Invalid", "message": "no", "field": "spec.externalIPs[0]"}],
                },
            },
            "warnings": ["mind"],
        },
    }


def test_a_patch_travels_as_base64() -> None:
    """The API server wants the patch as base64, with its type."""
    response = AdmissionResponse(uid="u1", allowed=True, patch=b"[]", patch_type="JSONPatch")
    sent = json.loads(review.encode_response(response))["response"]
    assert (base64.b64decode(sent["patch"]), sent["patchType"]) == (b"[]", "JSONPatch")
