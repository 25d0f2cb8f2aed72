"""
Text helpers of admission messages: bounded lists, counted nouns, the nearest known name.
"""

from collections.abc import Collection
from difflib import get_close_matches
from itertools import islice
from typing import Final

from kavip.api.text import ELLIPSIS, one_line

WARNING_BYTES: Final = 256
MAX_MESSAGE: Final = 4096
_MAX_VALUE: Final = 100
_MAX_KEY: Final = 317  # characters of a namespace, a slash and a name


def bounded(text: str) -> str:
    """*text* without its middle if it is too long: the value is at the beginning, the remedy at the end."""
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE // 2]}{ELLIPSIS}{text[-MAX_MESSAGE // 4 :]}"


def shortened(text: str) -> str:
    """*text* as one line of at most 256 bytes; the API server cuts longer warnings."""
    text = one_line(text)
    data = text.encode()
    if len(data) <= WARNING_BYTES:
        return text
    return data[: WARNING_BYTES - len(ELLIPSIS)].decode(errors="ignore") + ELLIPSIS


def quoted(text: str) -> str:
    """*text* in quotation marks, at most 100 characters of it; :func:`one_line` makes it printable later."""
    return f'"{text}"' if len(text) <= _MAX_VALUE else f'"{text[:_MAX_VALUE]}{ELLIPSIS}"'


def listed(items: Collection[object], *, most: int = 20) -> str:
    """The first *most* of *items* in their order, and the number of the others."""
    rest = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, islice(items, most))) + rest


def counted(number: int, noun: str, *, plural: str = "") -> str:
    """*number* and its *noun*, singular or plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def nearest(word: str, known: Collection[str]) -> str:
    """The most similar known name, or ""."""
    return next(iter(get_close_matches(word, sorted(known), n=1)), "")


def nearest_key(text: str, known: Collection[str]) -> str:
    """The known ``namespace/name`` with the same name as *text*, else the most similar one, else ""."""
    word = text[:_MAX_KEY].lower()
    same = [key for key in known if key.rpartition("/")[2] == word.rpartition("/")[2]]
    return min(same, default="") or nearest(word, known)
