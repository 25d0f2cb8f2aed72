"""Values as keepalived reads them."""

import pytest

from kavip.agent.config import parser
from kavip.vrrp import keywords
from kavip.vrrp.grammar import MOST_COMMAND
from kavip.vrrp.tokens import MAX_LINE, Tokens, Unreadable, tokens

KEEPALIVED_CUTS = 1023
SOUND = {
    "": Tokens(),
    "  ": Tokens(),
    "5": Tokens(("5",)),
    " 5  6 ": Tokens(("5", "6")),
    "{ eth1 }": Tokens(("eth1",), braced=True),
    "{eth1  weight -2}": Tokens(("eth1", "weight", "-2"), braced=True),
    "{}": Tokens(braced=True),
    '"/bin/echo a b"': Tokens(("/bin/echo", "a", "b"), quoted=True),
    '""': Tokens(quoted=True),
}
BROKEN = {
    "5 # six": "# begins a comment",
    "10.0.0.1!x": "! begins a comment",
    "$_PWD": "$ begins a macro",
    "${_INSTANCE}": "$ begins a macro",
    "@n1 5": "@ makes a condition",
    "~SEQ(N,1,3) 5": "~ repeats lines",
    "\\!": r"\ is an escape",
    "5 \\": r"\ is an escape",
    "'5'": "' does not quote",
    "5\n}": "a line break begins another line",
    "5\r": "a line break begins another line",
    "5\tx": "U+0009 is a control character",
    "5\x0bnotify": "U+000B is a control character",
    "5\0": "U+0000 is a control character",
    "\x7f": "U+007F is a control character",
    "5\x85": "U+0085 is not ASCII",
    "5\u2028": "U+2028 is not ASCII",
    "\uff14": "U+FF14 is not ASCII",
    "\U0001f980": "U+1F980 is not ASCII",
    "5 } vrrp_script e {": "a brace begins or ends a block",
    "eth0 {": "a brace begins or ends a block",
    "}": "a brace begins or ends a block",
    "{ { } }": "a brace begins or ends a block",
    "{ a } { b }": "a brace begins or ends a block",
    "x{ a }": "a brace begins or ends a block",
    "{ a } x": "a brace begins or ends a block",
    '"': "a quote is not closed",
    '"eth0': "a quote is not closed",
    'pa"ss"': "a quote begins a new word",
    '"a" "b"': "a quote begins a new word",
    '"{ a }"': "a brace stands inside quotes",
    "{ include /etc/passwd }": "keepalived would read another file",
    "{ includea x }": "keepalived would read another file",
    "x" * (MAX_LINE + 1): f"longer than {MAX_LINE} characters",
}


@pytest.mark.parametrize("text", SOUND, ids=repr)
def test_words(text: str) -> None:
    """A value is words, or words in one pair of braces or quotes; blanks have no effect."""
    assert tokens(text) == SOUND[text]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: repr(text[:24]))
def test_values_that_would_leave_the_line_are_refused(text: str) -> None:
    """A text with a special meaning in keepalived is refused, and the reason names the meaning."""
    found = tokens(text)
    assert isinstance(found, Unreadable)
    assert BROKEN[text] in found.reason
    assert found.reason.isascii()
    assert found.reason.isprintable()


def test_controller_and_agent_have_one_limit_for_lines() -> None:
    """
    Controller and agent have the same longest line; the longest program fits, and keepalived's limit is far above.
    """
    assert MAX_LINE < KEEPALIVED_CUTS
    for count, fits in ((MAX_LINE, True), (MAX_LINE + 1, False)):
        assert isinstance(tokens("a" * count), Tokens) is fits
        assert (parser._lexical_fault("a" * count) == "") is fits
    program = Tokens(("/" + "a" * 99, *["b" * 99] * 3))
    assert len(" ".join(program.words)) == MOST_COMMAND
    for keyword, value in keywords.GLOBAL_SCRIPTS.items():
        line = value.read(keyword, program)
        assert line is None or len(f'    {keyword} "{" ".join(line.words)}"') <= MAX_LINE
        assert value.read(keyword, Tokens((*program.words, "x"))) is None
    assert keywords.GLOBAL_SCRIPTS["startup_script"].read("startup_script", program)
