"""
The ownership record: which addresses of a Service kavip assigned, as its own condition says it.

kavip writes ``kavip.io/AddressAssigned`` in the same request as the address, and names every address in the message. So
an address in status that the record names was assigned by kavip, even after its pool is gone. This is the only message
that kavip reads, and this module is the only one that writes and reads the record. Release 0.1.0 wrote the same::

    Assigned          ADDRESSES " from pool " any text
    Stranded          "keeps " ADDRESSES ", although " any text
    any other reason  any text "; keeps " ADDRESSES

For a Service that names no group the text ends with the group that kavip chose for it, so that a new default group
moves no Service, and the choice survives a restart::

    any text "; group " NAMESPACE/NAME " by default"

While the Service requests several addresses per family, the text has their number, so that it loses some when it no
longer requests several, but keeps those that another controller wrote::

    any text " (kavip.io/address-count: " NUMBER ")" any text

The text says too whether kavip adopted addresses that another controller wrote: these were announced before, so they
stay although another machine has them::

    ADDRESSES " from pool " any text ", written by another controller first" any text

While ``kavip.io/Advertised`` does not show that a node announced the addresses, the text names those that were
announced before, for the same reason::

    any text "; announced before: " ADDRESSES

``ADDRESSES`` are canonical addresses: two are joined by ``" and "``, more by ``", "``; after the 32nd the rest is
counted (``" and 3 more"``). Anything else holds no record. The text may quote what users wrote, but it never
stands where the addresses are expected, so users who write annotations cannot forge a record. A forged group would be
one that the user may name in an annotation anyhow: kavip follows the record only where that group admits the namespace.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kavip import names
from kavip.api import conditions
from kavip.api.address import Address, read_address
from kavip.api.service import Service
from kavip.names import Reason

ASSIGNED_REASONS: Final = frozenset({Reason.ASSIGNED, Reason.STRANDED})
"""With these reasons the addresses in status were assigned by kavip."""

FOREIGN_REASONS: Final = frozenset({"", Reason.FOREIGN_STATUS, Reason.LEFT_TO_PLATFORM})
"""With these reasons, or without the condition, another controller wrote the addresses in status."""

_FROM: Final = " from pool "
_KEEPS: Final = "keeps "
_ALTHOUGH: Final = ", although "
_BESIDE: Final = f"; {_KEEPS}"
_MOST: Final = (names.MAX_VIPS, 5)  # named before the rest is counted: here, and in release 0.1.0
_GROUP: Final = re.compile(r"; group (?P<key>[a-z0-9-]+/[a-z0-9.-]+) by default\Z")
_NUMBER: Final = re.compile(rf" \({re.escape(names.COUNT_ANNOTATION)}: ([1-9][0-9]?)\)")
_ADOPTED: Final = ", written by another controller first"
_ANNOUNCED: Final = "; announced before: "
_LONGEST: Final = 6_000  # characters of the text before the group: a longer condition is cut at its end
_MORE: Final = re.compile(r" and [1-9][0-9]* more\Z")


class Record(NamedTuple):
    """Our own condition on a Service: its *reason*, "" if kavip has not written it yet, and its *message*."""

    reason: str = ""
    message: str = ""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The addresses that kavip assigned, as far as the message names them."""
        if self.reason in FOREIGN_REASONS:
            return ()
        if self.reason == Reason.ASSIGNED:
            head, mark, _ = self.message.partition(_FROM)
            return _parse(head) if mark else ()
        if self.reason == Reason.STRANDED:
            head, mark, _ = self.message.removeprefix(_KEEPS).partition(_ALTHOUGH)
            return _parse(head) if mark and self.message.startswith(_KEEPS) else ()
        return self._split()[1]

    @property
    def is_adopted(self) -> bool:
        """Whether another controller wrote one of the addresses before kavip did."""
        return self.reason == Reason.ASSIGNED and _ADOPTED in self.message

    @property
    def announced(self) -> tuple[Address, ...]:
        """The addresses that were announced before, as far as the message names them."""
        if self.reason != Reason.ASSIGNED or _ANNOUNCED not in self.message:
            return ()
        _, _, tail = self._split()[0].rpartition(_ANNOUNCED)
        return _parse(_GROUP.sub("", tail))

    def with_announced(self, addresses: Sequence[Address]) -> str:
        """The message with *addresses* that were announced before."""
        found = _GROUP.search(self.message)
        end = found.start() if found else len(self.message)
        return f"{self.message[:end]}{_ANNOUNCED}{_format(addresses)}{self.message[end:]}"

    @property
    def group(self) -> str:
        """The key of the group that kavip chose for a Service that names none; "" if the message names none."""
        found = _GROUP.search(self._split()[0])
        return found["key"] if found else ""

    @property
    def number(self) -> int:
        """The number of addresses per family; 0 if the message has none."""
        if names.COUNT_ANNOTATION not in self.message:  # most Services: cheaper than to split the message
            return 0
        found = _NUMBER.search(self._split()[0])
        return int(found[1]) if found else 0

    def with_group(self, key: str) -> str:
        """The message with the group *key* that kavip chose; release 0.1.0 reads the same addresses from it."""
        text, kept = self._split()
        text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        return f"{text}; group {key} by default{f'{_BESIDE}{_format(kept)}' if kept else ''}"

    def _split(self) -> tuple[str, tuple[Address, ...]]:
        """The text, and the addresses that stand behind it; none where they stand before it."""
        head, mark, tail = self.message.rpartition(_BESIDE)
        stands_before = self.reason in FOREIGN_REASONS or self.reason in ASSIGNED_REASONS
        kept = _parse(tail) if mark and not stands_before else ()
        return (head, kept) if kept else (self.message, ())


_NO_RECORD: Final = Record()


def read_record(service: Service) -> Record:
    """The record in the status of *service*."""
    found = conditions.find(service.status.conditions, names.ConditionType.ADDRESS_ASSIGNED)
    return Record(found.reason, found.message) if found else _NO_RECORD


def write_assigned(addresses: Sequence[Address], pools: str, *, adopted: bool = False) -> str:
    """The message of reason ``Assigned``: *addresses* and the names of their *pools*."""
    return f"{_format(addresses)}{_FROM}{pools}{_ADOPTED if adopted else ''}"


def write_stranded(addresses: Sequence[Address], why: str) -> str:
    """The message of reason ``Stranded``: *addresses*, and *why* they are no longer legal."""
    return f"{_KEEPS}{_format(addresses)}{_ALTHOUGH}{why}"


def write_refused(why: str, addresses: Sequence[Address] = ()) -> str:
    """The message of any other reason: *why*, and the *addresses* that the Service keeps nevertheless."""
    if addresses:
        return f"{why}{_BESIDE}{_format(addresses)}"
    return f"{why}." if _BESIDE in why and Record(Reason.INVALID_REQUEST, why).addresses else why


def write_number(number: int) -> str:
    """The end of a message: the *number* of addresses per family that the Service requests."""
    return f" ({names.COUNT_ANNOTATION}: {number})"


def _format(addresses: Sequence[Address]) -> str:
    shown, more = addresses[: _MOST[0]], len(addresses) - _MOST[0]
    text = (" and " if len(shown) == 2 else ", ").join(map(str, shown))
    return f"{text} and {more} more" if more > 0 else text


def _parse(text: str) -> tuple[Address, ...]:
    """The inverse of :func:`_format`: nothing if *text* is not exactly what that writes."""
    listed = _MORE.sub("", text)
    found = [read_address(word) for word in re.split(", | and ", listed, maxsplit=_MOST[0])]
    addresses = tuple(dict.fromkeys(filter(None, found)))
    is_exact = listed == _format(addresses) and (listed == text or len(addresses) in _MOST)
    return addresses if is_exact else ()
