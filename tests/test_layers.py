"""The architecture: the contracts of import-linter, and a core without I/O, clock or output."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.support.manifests import ROOT

CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
(PURE,) = [contract["source_modules"] for contract in CONTRACTS if contract["name"].startswith("The core")]
PACKAGES = [
    ".".join(path.parent.relative_to(ROOT / "kavip").parts) for path in sorted((ROOT / "kavip").rglob("__init__.py"))
]
CALLS = frozenset({"open", "print", "input", "exec", "eval"})
CLOCKS = frozenset({"now", "utcnow", "today"})  # methods of datetime and date


def test_contracts_hold() -> None:
    """The layers, the pure packages and the users of kubernetes_asyncio are those of pyproject.toml."""
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == EXIT_STATUS_SUCCESS


@pytest.mark.parametrize("package", PACKAGES)
def test_package_docstrings_list_all_modules(package: str) -> None:
    """Each package's docstring has exactly its modules."""
    folder = ROOT.joinpath("kavip", *package.split("."))
    tour = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    own = f"kavip.{package}." if package else "kavip."
    named = {re.sub(r"^\.", own, name) for name in re.findall(r":mod:`~?([a-z0-9.]+)`", tour)}
    named_ = {name.removeprefix(own) for name in named if name.startswith(own)}
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert named_ == {path.stem for path in folder.glob("[!_]*.py")} | packages


def test_only_kube_imports_the_kubernetes_client() -> None:
    """The contract names every package and module except ``kube``."""
    (kept,) = [each["source_modules"] for each in CONTRACTS if each["name"].startswith("Only kavip.kube")]
    found = {
        f"kavip.{path.name.removesuffix('.py')}" for path in (ROOT / "kavip").glob("[!_]*") if path.name != "py.typed"
    }
    assert set(kept) == {*found, "kavip.__main__"} - {"kavip.kube"}


@pytest.mark.parametrize("module", PURE)
def test_the_core_is_synchronous_and_silent(module: str) -> None:
    """A pure module has no async, opens no file, prints nothing and reads no clock."""
    assert [fault for path in sources(module) for fault in faults(path)] == []


def test_faults_are_found(tmp_path: Path) -> None:
    """The check above finds what it looks for."""
    source = tmp_path / "module.py"
    source.write_text("async def f():\n    await g()\nprint(open('x'), datetime.now())\n")
    assert [fault.partition(": ")[2] for fault in faults(source)] == [
        "async def",
        "print()",
        "await",
        "open()",
        ".now()",
    ]


def sources(module: str) -> list[Path]:
    """The files of a module or package; there must be at least one."""
    path = ROOT.joinpath(*module.split("."))
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    assert found
    return found


def faults(path: Path) -> Iterator[str]:
    """The I/O, output and clocks in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if what := _fault(node):
            yield f"{path.name}:{node.lineno}: {what}"  # type: ignore[attr-defined]  # each of them has a line


def _fault(node: ast.AST) -> str:
    match node:
        case ast.AsyncFunctionDef():
            return "async def"
        case ast.Await():
            return "await"
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            return f"{name}()"
        case ast.Call(func=ast.Attribute(attr=name)) if name in CLOCKS:
            return f".{name}()"
    return ""
