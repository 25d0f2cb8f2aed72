"""Findings are reproducible: by the seed in `make fuzz`, and by the checkout in `make test`."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st


def drawn() -> list[tuple[int, str]]:
    """The examples of one seed."""
    seen: list[tuple[int, str]] = []

    @seed(4)
    @settings(max_examples=200, phases=[Phase.generate])
    @given(number=st.integers(), text=st.text())
    def look(number: int, text: str) -> None:
        seen.append((number, text))

    look()
    return seen


def test_a_seed_draws_the_same_whatever_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants of modules that were loaded meanwhile change nothing."""
    before = drawn()
    place = tmp_path / "another.py"
    place.write_text(f"NUMBERS = {list(range(-600, -100))}\n")
    another = ModuleType("another")
    another.__file__ = str(place)
    monkeypatch.setitem(sys.modules, "another", another)
    assert drawn() == before


def test_each_property_is_tested_with_the_same_examples() -> None:
    """No test draws new examples, so a failure repeats in each run."""
    assert settings().derandomize
    assert settings().database is None
