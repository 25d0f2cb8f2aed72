"""The final text of a configuration: nothing in it has a special meaning for keepalived, whatever was in the input."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kavip.agent.config.facts import InterfaceAddress, NodeFacts
from kavip.agent.config.localize import localize
from kavip.agent.config.model import LocalizedConfig
from kavip.api.address import parse_address
from kavip.vrrp.virtualips import VirtualIP
from tests.agent import mounts
from tests.support.examples import examples
from tests.vrrp import confparser
from tests.vrrp.test_one_line import ESCAPES

TEXT = mounts.rendered({"shop/web": "192.0.2.130,2001:db8:2::130", "shop/cart": "192.0.2.131,192.0.2.132"})
HELD = tuple(InterfaceAddress(VirtualIP(parse_address(text), 24, "eth0")) for text in ("192.0.2.11", "2001:db8:2::11"))
FACTS = NodeFacts("n1", parse_address("192.0.2.11"), frozenset({"eth0"}), HELD)
GOOD = localize(mounts.mounted(TEXT), FACTS)

_BYTES = re.compile(r"[\x20-\x7e\n]*")
_MEANING = re.compile(r"[\\$~!#]|^\s*@")
_NEVER = frozenset({"config_save_dir", "net_namespace", "reload_file", "reload_time_file", "use_pid_dir"})

inserted = (
    st.sampled_from([*ESCAPES, "\n", "{", "}", "\n}\n", "config_save_dir x", "\n    reload_file x", "@n1 ", "@^n1 x"])
    | st.text(max_size=40)
    | st.text(alphabet="{}\n @^$~\\!#\"'n1 include", max_size=30)
)


@pytest.mark.slow
@examples(300, deadline=None)
@given(st.integers(0, len(TEXT)), st.integers(0, 60), inserted)
@example(0, 0, "\ufeff")
@example(TEXT.index("    router_id") + 4, 0, "include /etc/passwd\n    ")
@example(TEXT.index("    state") + 4, 0, "\\!\n    ")
@example(TEXT.index("shop/web"), 0, "5" * 2000)
@example(len(TEXT), 0, "vrrp_script x {\n}\n")
def test_no_special_character_reaches_keepalived(at: int, without: int, text: str) -> None:
    """A text with random insertions is refused, or its localised text is plain."""
    spoilt = TEXT[:at] + text + TEXT[at + without :]
    assert isinstance(GOOD, LocalizedConfig)
    found = localize(mounts.mounted(spoilt.encode(errors="replace").decode()), FACTS, GOOD)
    if not isinstance(found, LocalizedConfig):
        return
    assert _BYTES.fullmatch(found.text)
    lines = found.text.split("\n")
    statements = [line for line in lines if not line.lstrip().startswith("#")]
    assert not any(_MEANING.search(line) or line.count('"') % 2 for line in statements)
    assert max(map(len, lines)) <= confparser.CUT and not any("\\" in line for line in lines)
    top = confparser.read("\n".join(statements))  # fails on macros, includes, open quotes and blocks
    assert {each.words[0] for each in top} <= {"global_defs", "vrrp_instance"}
    assert not _NEVER & {each.words[0] for block in top for each in block.body if each.words}
