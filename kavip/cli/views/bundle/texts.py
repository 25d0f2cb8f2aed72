"""
Configurations, logs, metrics and answers of agents, as a bundle may hold them.

They are lines of printable characters, without secrets.
"""

import re
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.agent import AgentState
from kavip.api.installation import PublishedConfig
from kavip.api.text import printable
from kavip.cli.views.bundle.redaction import REMOVED, redacted
from kavip.vrrp.compact import Unreadable
from kavip.vrrp.packed import unpack

CONFIG_KEYS: Final = (names.CONFIG_KEY, names.TAKE_OVER_KEY)
"""The keys of a group's ConfigMap that are in a bundle."""
_SETTING: Final = re.compile(r"^([ \t]*(\w+))[ \t](?![^\n{]*\{[ \t]*$)[^\n]*$", re.MULTILINE)
_RUNNING: Final = re.compile(r"script|notify")
_METRIC: Final = re.compile(rf"(?:# (?:HELP|TYPE) )?{names.METRIC_PREFIX}\w{{1,100}}[ {{][^\n]{{0,1000}}")
_LONGEST_LINE: Final = 4096


def configurations(found: PublishedConfig) -> dict[str, bytes]:
    """The texts for keepalived in the ConfigMap of a group, by key; what they run is removed."""
    texts = {key: (found.data or {}).get(key, "") for key in CONFIG_KEYS}
    return {key: _lines(_SETTING.sub(_without_program, _unpacked(text))) for key, text in texts.items() if text}


def _without_program(setting: re.Match[str]) -> str:
    """The line *setting* of a configuration, without what keepalived runs by it."""
    return f"{setting[1]} {REMOVED}" if _RUNNING.search(setting[2]) else setting[0]


def _unpacked(text: str) -> str:
    """*text* unpacked: secrets are not recognized in base64."""
    found = unpack(text)
    return f"# {found.message}\n" if isinstance(found, Unreadable) else found


def log(raw: bytes) -> bytes:
    """The log of a container."""
    return _lines(raw.decode(errors="replace"))


def metrics(raw: bytes) -> bytes:
    """kavip's own metrics."""
    lines = raw.decode(errors="replace").splitlines()
    return _lines("\n".join(line for line in lines if _METRIC.fullmatch(line)))


def agent_state(state: AgentState) -> dict[str, Any]:
    """``/state``, whose type lists its fields."""
    plain: dict[str, Any] = without_secrets(msgspec.to_builtins(state))
    return plain


def without_secrets(value: Any) -> Any:
    """*value* of plain JSON with all of its text redacted."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {redacted(key): without_secrets(each) for key, each in value.items()}
    return [without_secrets(each) for each in value] if isinstance(value, list | tuple) else value


def _lines(text: str) -> bytes:
    """*text* without secrets, as printable lines."""
    lines = redacted(text).splitlines()
    return "".join(f"{printable(line[:_LONGEST_LINE])}\n" for line in lines).encode()
