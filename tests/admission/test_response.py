"""The response for a verdict: code, one line, and limits of count and length."""

from kavip.admission.response import ReviewedObject, response
from kavip.admission.verdict import Verdict
from kavip.names import Reason
from tests.admission.evaluation import EDGE, create, reasons
from tests.support.build import pool, service


def test_several_findings_are_422_unless_all_are_403() -> None:
    """An invalid field together with an exceeded quota is a 422."""
    found = create(service("shop/web", group="lb/gone", pool="edge"), EDGE, pool("edge", max_per_namespace=0))
    assert reasons(found) == [Reason.GROUP_NOT_FOUND, Reason.QUOTA_EXCEEDED]
    answer = response("u1", found, ReviewedObject("Service", "web"))
    assert answer.status is not None
    assert answer.status.code == 422
    assert answer.status.message.startswith("Service web: 2 problems: ")


def test_a_warning_is_cut_at_256_bytes() -> None:
    """The API server cuts longer warnings; no character is split."""
    answer = response("u1", Verdict(warnings=("ä" * 200, "short", "short")), ReviewedObject("Service", "web"))
    assert answer.warnings is not None
    assert [len(text.encode()) for text in answer.warnings] == [255, 5]
    assert answer.warnings[0].endswith("ä...")


def test_warnings_are_bounded() -> None:
    """Of forty warnings 31 are shown; the last line has the number of the others."""
    answer = response("u1", Verdict(warnings=tuple(map(str, range(40)))), ReviewedObject("Service", "web"))
    assert answer.warnings == [*map(str, range(31)), "and 9 more warnings"]
    answer = response("u1", Verdict(warnings=tuple(map(str, range(32)))), ReviewedObject("Service", "web"))
    assert answer.warnings == [*map(str, range(32))]


def test_causes_are_bounded() -> None:
    """Of forty causes 31 are shown; the last one has the field of the next and the number of the others."""
    submitted = service(
        "shop/web", group="lb/edge", type="ClusterIP", external_ips=[f"203.0.113.{i}" for i in range(1, 41)]
    )
    found = create(submitted, EDGE, pool())
    assert len(found.refusals) == 41
    answer = response("u1", found, ReviewedObject("Service", "web"))
    assert answer.status is not None
    assert answer.status.details is not None
    causes = answer.status.details.causes or []
    assert len(causes) == 32
    assert (causes[-1].field, causes[-1].message) == ("spec.externalIPs[31]", "and 10 more problems; fix these first")
    assert answer.status.message.startswith("Service web: 41 problems: ")
    assert answer.status.message.endswith("; spec.externalIPs[31]: and 10 more problems; fix these first")


def test_the_message_names_the_object() -> None:
    """kubectl prints only this message if several objects of a file are refused; Helm always does."""
    found = create(service("shop/web", group="lb/gone"), EDGE)
    for subject, named in (
        (ReviewedObject("Service", "web", namespace="shop"), "Service shop/web: "),
        (ReviewedObject("VIPPool", "edge"), "VIPPool edge: "),
        (ReviewedObject("Service", "", namespace="shop"), "Service: "),
    ):
        answer = response("u1", found, subject)
        assert answer.status is not None
        assert answer.status.message.startswith(f"{named}metadata.annotations[")
