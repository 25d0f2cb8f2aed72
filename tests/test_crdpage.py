"""The pages of kavip's kinds hold what the CRDs and the page of conditions say."""

import re
from pathlib import Path

import pytest

from hack import crdpage

KINDS = {"KeepalivedGroup": "keepalivedgroups.redhatcop.redhat.io", "VIPPool": "vippools.kavip.io"}
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "conditions.md"


@pytest.mark.parametrize("crd", KINDS.values())
def test_each_field_has_a_meaning(crd: str) -> None:
    """The CRD describes every field, except for the parts of what Kubernetes has everywhere."""
    assert crdpage.undocumented(crd) == []


def test_limits_are_those_of_the_crd() -> None:
    """A row has the type, the default, the limits of the schema and of its rules, and the meaning."""
    page = crdpage.page(KINDS["KeepalivedGroup"])
    for row in (
        "and not lo | Interface that holds the VIPs, on every node. |",
        "| `interface` | string | required; at most 64 characters; 1 to 15 letters, digits, dots, dashes or ",
        "| `advertIntervalMilliseconds` | integer | 10 to 255000; a multiple of 10 |",
        "| `mode` | string | default `PerService`; `PerService`, `Shared` |",
        "| `blacklistRouterIDs` | list of integers | at most 255 entries; each: 1 to 255 |",
        "| `caFrom.name` | string | required; 1 to 253 characters |",
        "| `key` | string | at most 316 characters | as in Kubernetes |",
    ):
        assert row in page


def test_conditions_have_the_reasons_of_the_page_of_conditions() -> None:
    """Each kind has the conditions and reasons that the page of conditions explains, in its order."""
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE.read_text(), re.MULTILINE))
    for condition, reasons in crdpage.CONDITIONS["KeepalivedGroup"].items():
        rows = re.findall(r"^\| (?:\w+ \| )?`(\w+)` \|", sections[f"KeepalivedGroups: {condition}"], re.MULTILINE)
        assert tuple(rows) == reasons, condition
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", sections["VIPPools"], re.MULTILINE)
    assert [(each, reason) for each, found in crdpage.CONDITIONS["VIPPool"].items() for reason in found] == rows
