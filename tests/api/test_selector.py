"""Label selectors that users write as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.api.selector import check_selector, parse_selector
from kavip.errors import BadInput


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("zone=a", {"zone": "a"}, True),
        ("zone == a , disk!=hdd", {"zone": "a"}, True),
        ("zone=a,disk!=hdd", {"zone": "a", "disk": "hdd"}, False),
        ("kubernetes.io/hostname in (n1, n2)", {"kubernetes.io/hostname": "n2"}, True),
        ("zone notin(a,b),!spot", {"zone": "c"}, True),
        ("zone notin (a,b), ! spot", {"zone": "c", "spot": ""}, False),
        ("zone", {"zone": ""}, True),
        ("zone=", {"zone": ""}, True),
        ("zone", {}, False),
    ],
)
def test_a_selector_that_is_text(text: str, labels: dict[str, str], matches: bool) -> None:
    """As ``kubectl --selector`` reads it."""
    assert parse_selector(text, "f").matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f: '': want label=value, "),
        ("zone=a,", "f: '': want label=value, "),
        ("zone a", "f: 'zone a': want label=value, "),
        ("zone in (a", "f: 'zone in (a': want label=value, "),
        ("!zone=a", "f: '!zone=a': want label=value, "),
        ("cpu > 4", "f: 'cpu > 4': want label=value, "),
        ("zone=_a", "f: '_a': want the value of a label: "),
        ("-zone", "f: '-zone': want the key of a label, "),
        ("z" * 2000, f"f: '{'z' * 40}...': want at most 1024 characters"),
    ],
)
def test_text_that_is_no_selector_is_refused(text: str, message: str) -> None:
    """The message has the term and the grammar."""
    with pytest.raises(BadInput) as error:
        parse_selector(text, "f")
    assert str(error.value).startswith(message)


@given(st.text(alphabet="ab=!,() intoz-_/.<>\n", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    """No text causes another error, and what is read has valid labels only."""
    try:
        selector = parse_selector(text, "f")
    except BadInput:
        return
    assert not list(check_selector(selector, "f"))
