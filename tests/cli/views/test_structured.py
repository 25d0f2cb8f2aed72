"""JSON and YAML for programs, which people read on terminals too."""

import json
import string

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kavip.cli.views.structured import structured

TEXTS = st.text(st.one_of(st.sampled_from(string.printable + "é\u202e\x1b\x85"), st.characters(codec="utf-8")))


@given(st.dictionaries(TEXTS, TEXTS))
@example({"note\u202e": "a\u2066b\n\x1b[2J"})
@example({"é\n\u202e": "\tline one é\nline two\u2028"})
def test_no_text_reaches_a_terminal_with_control_characters(value: dict[str, str]) -> None:
    """It is read again as it was."""
    written = structured(value, "yaml")
    assert all(map(str.isprintable, written.split("\n")))
    assert yaml.safe_load(written) == value
    assert json.loads(structured(value, "json")) == value


@pytest.mark.parametrize("text", ["Grüße", "東京", "\U0001f600"])
def test_letters_of_all_languages_stay_readable(text: str) -> None:
    """The text beside them does not matter."""
    assert structured({"a": text, "b": "\u202e"}, "yaml") == f'a: {text}\nb: "\\u202E"'
