"""The page that compares kavip with keepalived-operator is complete, and a test proves each row."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest
import yaml

from kavip import names
from kavip.agent.report import exporters
from tests.support.manifests import ROOT

PAGE = ROOT / "docs" / "explanation" / "keepalived-operator.md"
OLD = yaml.safe_load((ROOT / "tests" / "chart" / "predecessor" / "crd.yaml").read_text())


def rows() -> list[tuple[str, str, str]]:
    """The rows of all tables, without header rows and separator rows."""
    lines = (line for line in PAGE.read_text().splitlines() if line.startswith("| "))
    cells = (tuple(cell.strip() for cell in line.strip("| ").split(" | ")) for line in lines)
    return [each for each in cells if each != ("keepalived-operator", "kavip", "proved by")]  # type: ignore[misc]  # of three cells each


@cache
def proofs_in(path: str) -> frozenset[str]:
    """The names of the tests in the module at *path*."""
    tree = ast.parse((ROOT / "tests" / f"{path}.py").read_text())
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in found if node.name.startswith("test_"))


def fields(schema: dict[str, object], path: str = "") -> Iterator[str]:
    """The paths of the leaves of *schema*; maps and lists of plain values are leaves."""
    inner = schema.get("properties")
    if not isinstance(inner, dict):
        yield path
        return
    for name, each in inner.items():
        yield from fields(each, f"{path}.{name}" if path else name)


def test_every_row_has_three_cells_and_a_test_that_exists() -> None:
    """Each row has three cells and names at least one test, which exists."""
    assert len(rows()) > 80
    for row in rows():
        assert len(row) == 3, row
        proofs = re.findall(r"`([a-z_/]+)::(test_\w+)`", row[2])
        assert proofs, row
        for path, name in proofs:
            assert name in proofs_in(path), f"{row[0]}: tests/{path}.py has no {name}"


@pytest.mark.parametrize("part", ["spec", "status"])
def test_no_field_of_its_definition_is_missing(part: str) -> None:
    """Each leaf of the schema of keepalived-operator has a row."""
    (version,) = OLD["spec"]["versions"]
    wanted = set(fields(version["schema"]["openAPIV3Schema"]["properties"][part]))
    named = {name for row in rows() for name in re.findall(r"`([A-Za-z.]+)`", row[0].partition(":")[0])}
    assert wanted - named == set()


def test_no_annotation_and_no_metric_is_missing() -> None:
    """Each annotation that keepalived-operator read and each series that it exported has a row of its own."""
    named = {row[0].strip("`") for row in rows()}
    assert {names.GROUP_ANNOTATION, names.VERBATIM_ANNOTATION, names.SPREAD_ANNOTATION} <= named
    assert {f"keepalived_vrrp_{name}" for name in exporters.GEN2BRAIN} <= named
    assert len(exporters.GEN2BRAIN) == 14, "the exporter of keepalived-operator has 14"
