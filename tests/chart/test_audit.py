"""The audit policy of docs/examples records the accounts of the chart."""

import pytest
import yaml

from tests.chart.release import Helm, rendered
from tests.support import manifests

pytestmark = pytest.mark.chart

POLICY = manifests.ROOT / "docs" / "examples" / "audit-policy.yaml"


def test_the_accounts_are_those_of_the_chart(helm: Helm) -> None:
    """Every rule for kavip's accounts has those of the Deployments of both topologies."""
    both = (each for topology in ("split", "combined") for each in rendered(helm, f'topology="{topology}"'))
    pods = [each["spec"]["template"]["spec"] for each in both if each["kind"] == "Deployment"]
    used = {f"system:serviceaccount:{manifests.NAMESPACE}:{each['serviceAccountName']}" for each in pods}
    users = [set(each["users"]) for each in yaml.safe_load(POLICY.read_text())["rules"] if "users" in each]
    assert len(used) == 3
    assert len(users) > 5
    assert all(each == used for each in users)
