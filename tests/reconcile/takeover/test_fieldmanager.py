"""kavip becomes the field manager of the objects that keepalived-operator made."""

from typing import Any

from kavip.reconcile.takeover.fieldmanager import take_over_spec


def claims(manager: str, operation: str, fields: dict[str, Any], subresource: str = "") -> dict[str, Any]:
    """One entry of ``managedFields``."""
    entry = {"manager": manager, "operation": operation, "apiVersion": "apps/v1", "time": "2026-01-01T00:00:00Z"}
    return {
        **entry,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": subresource} if subresource else {}),
    }


def test_fields_of_spec_become_kavips() -> None:
    """The fields of two managers join those of kavip. Their fields outside spec stay theirs."""
    entries = [
        claims("manager", "Update", {"f:metadata": {"f:labels": {}}, "f:spec": {"f:template": {"f:a": {}}}}),
        claims("kubectl-rollout", "Update", {"f:spec": {"f:template": {"f:b": {}}}}),
        claims("kavip", "Apply", {"f:spec": {"f:template": {"f:c": {}}}, "f:metadata": {"f:annotations": {}}}),
        claims("kube-controller-manager", "Update", {"f:status": {}}, "status"),
    ]
    theirs, status, ours = take_over_spec(entries, manager="kavip")
    assert theirs == claims("manager", "Update", {"f:metadata": {"f:labels": {}}})
    assert status == entries[3]
    assert (ours["manager"], ours["operation"]) == ("kavip", "Apply")
    assert ours["fieldsV1"] == {
        "f:metadata": {"f:annotations": {}},
        "f:spec": {"f:template": {"f:a": {}, "f:b": {}, "f:c": {}}},
    }
    assert take_over_spec([theirs, status, ours], manager="kavip") == [theirs, status, ours], "once is enough"


def test_objects_without_spec_stay_as_they_are() -> None:
    """The text of a ConfigMap stays with its manager."""
    entries = [claims("manager", "Update", {"f:data": {"f:keepalived.conf": {}}})]
    assert take_over_spec(entries, manager="kavip") == entries
