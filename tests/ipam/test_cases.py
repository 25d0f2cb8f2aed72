"""Cases from test suites of other projects: kavip decides them in the same way, or differently on purpose."""

import pytest

from tests.ipam import decided
from tests.ipam.caserun import Json, cases, differences
from tests.ipam.decided import ON_PURPOSE


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in cases()])
def test_each_case_is_decided_as_expected_or_otherwise_on_purpose(case: Json) -> None:
    """Each case ends as in its own project, except the cases in the table."""
    found = differences(case)
    assert bool(found) == (case["id"] in ON_PURPOSE), (
        found or f"decided as expected; remove {case['id']} from the table"
    )


def test_the_table_names_only_cases_that_exist() -> None:
    """Each identifier in the table is the identifier of one case, and no two cases have the same."""
    known = [case["id"] for case in cases()]
    assert len(known) == len(set(known))
    assert not ON_PURPOSE.keys() - set(known)


def test_the_page_says_what_is_decided() -> None:
    """The page is current: ``python -m tests.ipam.decided`` writes it."""
    assert decided.PAGE.read_text() == decided.page()
