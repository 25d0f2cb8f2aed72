"""Tables of text: columns, hostile cells, and terminals that are narrower than a row."""

import pytest

from kavip.cli.views.table import marked, table

HEAD = ("NODE", "MESSAGE")
LONG = ("n1", "the VRID 7 of shop/web is used by 192.0.2.9 too; blacklist it")


def test_without_a_terminal_a_row_is_a_line() -> None:
    """Programs read lines, however long they are."""
    assert table(HEAD, [LONG, ("node-2", "")]) == ["NODE    MESSAGE", f"n1      {LONG[1]}", "node-2"]


@pytest.mark.parametrize("columns", range(28, 72))
def test_the_last_column_is_wrapped_on_a_terminal(columns: int) -> None:
    """No line is wider, no word is lost, and a wrapped cell stays in its column; a mark covers the whole row."""
    rows = table(HEAD, [LONG, ("node-2", "\x1b[2J\nx")], columns=columns)
    assert len(rows) == 3
    assert rows[2] == "node-2  \\x1b[2J x"
    lines = rows[1].split("\n")
    assert all(len(line) <= columns for line in lines)
    assert all(line.startswith(" " * 8) for line in lines[1:])
    assert " ".join(line[8:] for line in lines) == LONG[1]
    assert marked(rows, [True, False], str.upper)[1:] == [rows[1].upper(), rows[2]]


@pytest.mark.parametrize("columns", [1, 27])
def test_what_is_too_narrow_is_left_to_the_terminal(columns: int) -> None:
    """Twenty columns for a message are enough to read it, and fewer are not."""
    assert table(HEAD, [LONG, ("node-2", "")], columns=columns) == table(HEAD, [LONG, ("node-2", "")])
