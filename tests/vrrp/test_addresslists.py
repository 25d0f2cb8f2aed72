"""An address list that is read after another one is the same as if it was read alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kavip.vrrp import addresslists
from kavip.vrrp.addresslists import AddressList
from kavip.vrrp.virtualips import VirtualIP

LINES = st.sampled_from(
    [
        *(f"        192.0.2.{number}/32 dev eth{number % 2}\n" for number in range(6)),
        "        192.0.2.1/32 dev eth0\n",  # also on eth1
        "        192.0.2.1/24 dev eth1\n",
        "        2001:db8::1/128 dev eth0\n",
        "        169.254.255.7/32 dev eth0\n",  # an anchor
        "        192.0.2.1/32\n",
        "        192.0.2.9\x0b/32 dev eth0\n",  # one line for keepalived, and two for str.splitlines
        "\n",
    ]
)
TEXTS = st.lists(LINES, max_size=12).map("".join)


@given(st.lists(TEXTS, min_size=2, max_size=4))
def test_any_text_is_read_as_if_it_was_the_first(texts: list[str]) -> None:
    """Whatever the lists before it were."""
    found = AddressList()
    for text in texts:
        found = found.then(text)
        assert found == AddressList().then(text)
        assert len(found.lines) == text.count("\n")
        assert found.addresses == {each.address for each in found.vips}
        assert found.unreadable == sum(addresslists.read_line(line) is None for line in text.split("\n")[:-1])


@given(TEXTS, LINES, TEXTS, LINES)
def test_one_line_is_replaced(head: str, one: str, tail: str, other: str) -> None:
    """Between any others."""
    before, after = (AddressList().then(head + line + tail) for line in (one, other))
    assert before.then(after.text) == after
    assert after.then(before.text) == before


def test_a_line_that_no_address_needs_is_not_kept() -> None:
    """Whoever may edit a ConfigMap cannot fill the memory of the leader."""
    before = addresslists._vip.cache_info().currsize
    found = AddressList().then("".join(f"        192.0.2.1/32 dev {'x' * size}\n" for size in range(1_000, 1_100)))
    assert (len(found.lines), found.vips, addresslists._vip.cache_info().currsize) == (100, (), before)


def test_only_the_lines_that_differ_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside them one that is the same, at most."""
    lines = [f"        10.0.{number >> 8}.{number & 255}/32 dev eth0\n" for number in range(1, 2_001)]
    before, read = AddressList().then("".join(lines)), list[str]()
    parse = addresslists._vip

    def counted(line: str) -> VirtualIP | None:
        read.append(line)
        return parse(line)

    monkeypatch.setattr(addresslists, "_vip", counted)
    changed = [*lines[:700], "        192.0.2.1/32 dev eth0\n", *lines[701:]]
    after = before.then("".join(changed))
    assert f"{read[0]}\n" == changed[700]
    assert len(read) <= 2
    assert (len(after.lines), len(after.addresses)) == (2_000, 2_000)
