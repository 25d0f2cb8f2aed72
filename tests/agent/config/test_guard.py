"""The guard over the finished file: whatever became of a text on its way, keepalived is shown nothing of this kind."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kavip.agent.config.facts import Facts, Held
from kavip.agent.config.localize import localize
from kavip.agent.config.model import Localized
from kavip.api.address import parse_address
from kavip.vrrp.virtualips import VirtualIP
from tests.agent import scene
from tests.vrrp import confparser
from tests.vrrp.test_one_line import ESCAPES

TEXT = scene.rendered({"shop/web": "192.0.2.130,2001:db8:2::130", "shop/cart": "192.0.2.131,192.0.2.132"})
HELD = tuple(Held(VirtualIP(parse_address(text), 24, "eth0")) for text in ("192.0.2.11", "2001:db8:2::11"))
FACTS = Facts("n1", parse_address("192.0.2.11"), frozenset({"eth0"}), HELD)
GOOD = localize(scene.mounted(TEXT), FACTS)

_BYTES = re.compile(r"[\x20-\x7e\n]*")
_MEANING = re.compile(r"[\\$~!#]|^\s*@")
_NEVER = frozenset({"config_save_dir", "net_namespace", "reload_file", "reload_time_file", "use_pid_dir"})

inserted = (
    st.sampled_from([*ESCAPES, "\n", "{", "}", "\n}\n", "config_save_dir x", "\n    reload_file x", "@n1 ", "@^n1 x"])
    | st.text(max_size=40)
    | st.text(alphabet="{}\n @^$~\\!#\"'n1 include", max_size=30)
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(TEXT)), st.integers(0, 60), inserted)
@example(0, 0, "\ufeff")
@example(TEXT.index("    router_id") + 4, 0, "include /etc/passwd\n    ")
@example(TEXT.index("    state") + 4, 0, "\\!\n    ")
@example(TEXT.index("shop/web"), 0, "5" * 2000)
@example(len(TEXT), 0, "vrrp_script x {\n}\n")
def test_no_byte_survives_that_means_something_to_keepalived(at: int, without: int, text: str) -> None:
    """A text into which anything is put, anywhere, in place of anything, is refused, or what runs of it is plain."""
    spoilt = TEXT[:at] + text + TEXT[at + without :]
    assert isinstance(GOOD, Localized)
    found = localize(scene.mounted(spoilt.encode(errors="replace").decode()), FACTS, GOOD)
    if not isinstance(found, Localized):
        return
    assert _BYTES.fullmatch(found.text)
    lines = found.text.split("\n")
    statements = [line for line in lines if not line.lstrip().startswith("#")]
    assert not any(_MEANING.search(line) or line.count('"') % 2 for line in statements)
    assert max(map(len, lines)) <= confparser.CUT and not any("\\" in line for line in lines)
    top = confparser.read("\n".join(statements))  # fails on macros, includes, open quotes and blocks
    assert {each.words[0] for each in top} <= {"global_defs", "vrrp_instance"}
    assert not _NEVER & {each.words[0] for block in top for each in block.body if each.words}
