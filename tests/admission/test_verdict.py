"""How findings are told: codes, one line, how many, how long."""

from kavip.admission import verdict
from kavip.admission.verdict import Subject, Verdict
from kavip.names import Reason
from tests.admission.evaluation import EDGE, create, reasons
from tests.support.build import pool, service


def test_several_findings_are_422_unless_all_are_403() -> None:
    """A mistake beside a quota is a mistake."""
    found = create(service("shop/web", group="lb/gone", pool="edge"), EDGE, pool("edge", max_per_namespace=0))
    assert reasons(found) == [Reason.GROUP_NOT_FOUND, Reason.QUOTA_EXCEEDED]
    answer = verdict.response("u1", found, Subject("Service", "web"))
    assert answer.status is not None
    assert answer.status.code == 422
    assert answer.status.message.startswith("Service web: 2 problems: ")


def test_a_warning_is_cut_at_256_bytes() -> None:
    """The API server passes on no more; characters stay whole."""
    answer = verdict.response("u1", Verdict(warnings=("ä" * 200, "short", "short")), Subject("Service", "web"))
    assert answer.warnings is not None
    assert [len(text.encode()) for text in answer.warnings] == [255, 5]
    assert answer.warnings[0].endswith("ä...")


def test_warnings_are_few() -> None:
    """Of forty 31 are told; the last says how many more there are."""
    answer = verdict.response("u1", Verdict(warnings=tuple(map(str, range(40)))), Subject("Service", "web"))
    assert answer.warnings == [*map(str, range(31)), "and 9 more warnings"]
    answer = verdict.response("u1", Verdict(warnings=tuple(map(str, range(32)))), Subject("Service", "web"))
    assert answer.warnings == [*map(str, range(32))]


def test_a_refusal_lists_as_many_causes_as_a_reader_mends() -> None:
    """Of forty problems 31 are told in full; the last cause says where the others begin, and how many they are."""
    asked = service(
        "shop/web", group="lb/edge", type="ClusterIP", external_ips=[f"203.0.113.{i}" for i in range(1, 41)]
    )
    found = create(asked, EDGE, pool())
    assert len(found.refusals) == 41
    answer = verdict.response("u1", found, Subject("Service", "web"))
    assert answer.status is not None
    assert answer.status.details is not None
    causes = answer.status.details.causes or []
    assert len(causes) == 32
    assert (causes[-1].field, causes[-1].message) == ("spec.externalIPs[31]", "and 10 more problems: mend these first")
    assert answer.status.message.startswith("Service web: 41 problems: ")
    assert answer.status.message.endswith("; spec.externalIPs[31]: and 10 more problems: mend these first")


def test_the_message_names_the_object() -> None:
    """Where several objects of one file are refused, kubectl prints nothing else of each, and Helm never does."""
    found = create(service("shop/web", group="lb/gone"), EDGE)
    for subject, named in (
        (Subject("Service", "web", namespace="shop"), "Service shop/web: "),
        (Subject("VIPPool", "edge"), "VIPPool edge: "),
        (Subject("Service", "", namespace="shop"), "Service: "),
    ):
        answer = verdict.response("u1", found, subject)
        assert answer.status is not None
        assert answer.status.message.startswith(f"{named}metadata.annotations[")
