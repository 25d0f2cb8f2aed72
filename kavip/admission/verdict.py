"""
A verdict: what was found about one object, and how it is told to the user.

Where one object is refused, kubectl prints the causes of a 422 after its name, as ``field: message``. Of a 403, and
where several are refused at once, it prints the messages alone, and Helm and others always do: so each cause is whole
on its own, and the message names the object and sums all of them up in one line.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from typing import Final

from kavip import names
from kavip.api.address import Address
from kavip.api.patch import Step, encode
from kavip.api.refusal import Refusal
from kavip.api.review import AdmissionResponse, Status, StatusCause, StatusDetails
from kavip.names import Reason
from kavip.snapshot import Snapshot

WARNING_BYTES: Final = 256
MOST_MESSAGE: Final = 4096
MOST_CAUSES: Final = 32
MOST_WARNINGS: Final = 32
FORBIDDEN: Final = frozenset({Reason.NAMESPACE_NOT_ALLOWED, Reason.QUOTA_EXCEEDED})
PARDONED: Final = "accepted, because you may create services/externalips: "
_ELLIPSIS: Final = "..."
_LONGEST_VALUE: Final = 100
_LONGEST_KEY: Final = 317  # of a namespace and a name


@dataclass(frozen=True, slots=True)
class Awaited:
    """A group or a pool that was not there, and may be on its way: by its *key*, a pool also by an *address* in it."""

    kind: str
    key: str = ""
    address: Address | None = None

    def arrived(self, snapshot: Snapshot) -> bool:
        """Whether it is there now."""
        if self.address is not None:
            return snapshot.parsed_pools.pool_of(self.address) is not None
        return self.key in (snapshot.groups if self.kind == names.KEEPALIVED_GROUP else snapshot.pools)


@dataclass(frozen=True, slots=True)
class Verdict:
    """All findings about one object; allowed when nothing is refused."""

    refusals: tuple[Refusal, ...] = ()
    warnings: tuple[str, ...] = ()
    patch: tuple[Step, ...] = ()
    awaits: tuple[Awaited, ...] = ()
    """What, once it is there, makes it worth judging again."""
    pardonable: frozenset[Refusal] = frozenset()
    """Those of *refusals* that do not bind who may ``create`` ``services/externalips``."""

    @property
    def allowed(self) -> bool:
        """Whether the request may go on."""
        return not self.refusals

    def pardoned(self) -> "Verdict":
        """What is left for a user whom the pardonable refusals do not bind: he hears what he is pardoned."""
        bound = tuple(each for each in self.refusals if each not in self.pardonable)
        said = (f"{PARDONED}{told(each)}" for each in self.refusals if each in self.pardonable)
        return replace(self, refusals=bound, warnings=(*self.warnings, *said), pardonable=frozenset())


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom an answer is about, as ``status.details`` names it."""

    kind: str
    name: str
    group: str = ""
    namespace: str = ""

    def __str__(self) -> str:
        """As messages name it; an object whose name the API server has not made up yet has none."""
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return plain(f"{self.kind} {key}") if self.name else plain(self.kind)


def response(uid: str, verdict: Verdict, subject: Subject) -> AdmissionResponse:
    """The answer that carries *verdict*."""
    return AdmissionResponse(
        uid=uid,
        allowed=verdict.allowed,
        status=None if verdict.allowed else _status(verdict.refusals, subject),
        patch=encode(verdict.patch) if verdict.patch else None,
        patch_type="JSONPatch" if verdict.patch else None,
        warnings=_few(verdict.warnings) or None,
    )


def failure(uid: str, code: int, reason: str, message: str) -> AdmissionResponse:
    """A denial that has no cause in the object."""
    return AdmissionResponse(
        uid=uid, allowed=False, status=Status(code=code, reason=reason, message=message, status="Failure")
    )


def told(refusal: Refusal) -> str:
    """One line for one finding: field path, value, remedy."""
    return f"{refusal.field}: {message_of(refusal)}" if refusal.field else message_of(refusal)


def message_of(refusal: Refusal) -> str:
    """The message without its field path, which stands beside it, on one line."""
    text = _moderate(plain(refusal.message))
    return text.removeprefix(f"{refusal.field}: ") if refusal.field else text


def plain(text: str) -> str:
    """*text* as one line of printable characters: what users wrote must not steer a terminal or break a log."""
    return visible(" ".join(text.split()))


def visible(line: str) -> str:
    """*line* with what is not printable spelled out; blanks and tabs stay."""
    if line.isprintable():
        return line
    return "".join(letter if letter.isprintable() or letter == "\t" else ascii(letter)[1:-1] for letter in line)


def _moderate(text: str) -> str:
    """*text* without its middle where it is long: values stand in front, remedies at the end."""
    return text if len(text) <= MOST_MESSAGE else f"{text[: MOST_MESSAGE // 2]}{_ELLIPSIS}{text[-MOST_MESSAGE // 4 :]}"


def nearest(word: str, known: Collection[str]) -> str:
    """The known name that is most like *word*, or ""."""
    return next(iter(get_close_matches(word, sorted(known), n=1)), "")


def nearest_key(text: str, known: Collection[str]) -> str:
    """The ``namespace/name`` that *text* may be about: one of that name elsewhere, or the most alike; "" if none is."""
    word = text[:_LONGEST_KEY].lower()
    same = [key for key in known if key.rpartition("/")[2] == word.rpartition("/")[2]]
    return min(same, default="") or nearest(word, known)


def quoted(text: str) -> str:
    """*text* as a message shows it, cut where nobody reads on; :func:`plain` makes it harmless to a terminal."""
    return f'"{text}"' if len(text) <= _LONGEST_VALUE else f'"{text[:_LONGEST_VALUE]}{_ELLIPSIS}"'


def listed(items: Collection[object], *, most: int = 20) -> str:
    """The first *most* of *items*, in their order, and the count of the rest."""
    rest = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(map(str, islice(items, most))) + rest


def counted(number: int, noun: str, *, plural: str = "") -> str:
    """*number* with its *noun*, in the singular or the plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def shortened(text: str) -> str:
    """*text* in at most 256 bytes, the most that the API server passes on of a warning."""
    text = plain(text)
    data = text.encode()
    if len(data) <= WARNING_BYTES:
        return text
    return data[: WARNING_BYTES - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS


def _status(refusals: Collection[Refusal], subject: Subject) -> Status:
    forbidden = all(refusal.reason in FORBIDDEN for refusal in refusals)
    told_ones = _bounded(refusals)
    causes = [StatusCause(reason=each.reason, message=message_of(each), field=each.field) for each in told_ones]
    return Status(
        code=403 if forbidden else 422,
        reason="Forbidden" if forbidden else "Invalid",
        message=f"{subject}: {_summary([told(each) for each in told_ones], len(refusals))}",
        status="Failure",
        details=StatusDetails(name=subject.name, group=subject.group, kind=subject.kind, causes=causes),
    )


def _bounded(refusals: Collection[Refusal]) -> list[Refusal]:
    """As many as a reader mends at once; of the rest the number, with the place of the first."""
    if len(refusals) <= MOST_CAUSES:
        return list(refusals)
    *shown, last = islice(refusals, MOST_CAUSES)
    rest = counted(len(refusals) - len(shown), "problem")
    return [*shown, replace(last, message=f"and {rest.replace(' ', ' more ', 1)}: mend these first")]


def _few(warnings: Collection[str]) -> list[str]:
    """As many as somebody reads, each once and short; the last says how many more there are."""
    found = list(dict.fromkeys(warnings))
    if len(found) <= MOST_WARNINGS:
        return list(map(shortened, found))
    shown = found[: MOST_WARNINGS - 1]
    return [*map(shortened, shown), f"and {len(found) - len(shown)} more warnings"]


def _summary(lines: Collection[str], count: int) -> str:
    found = list(dict.fromkeys(lines))
    return found[0] if len(found) == 1 else f"{count} problems: {'; '.join(found)}"
