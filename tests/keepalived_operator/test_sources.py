"""The page of the statements of the source documents names a test for each, or says why there is none."""

import re

from tests.keepalived_operator.test_table import proofs_in
from tests.support.manifests import ROOT

PAGE = ROOT / "docs" / "explanation" / "sources.md"
HEADER = ["statement", "kavip", "proved by"]


def test_each_statement_has_a_test_or_a_reason() -> None:
    """A row has three cells; its tests exist, and without one it says No or Not yet."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split(" | ")] for line in lines]
    for row in rows:
        assert len(row) == 3, row
        if row == HEADER:
            continue
        proofs = re.findall(r"`([a-z_0-9/]+)::(test_\w+)`", row[2])
        assert proofs or "**No" in row[1], row
        for path, name in proofs:
            assert name in proofs_in(path), f"{row[0]}: tests/{path}.py has no {name}"
