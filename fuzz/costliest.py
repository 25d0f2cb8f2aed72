"""
The costliest body: hypothesis looks for the review that costs most CPU, and says what it costs.

In a body some lists, objects and texts have one entry again and again. The search continues with what made a body
dearer (``hypothesis.target``). A body may cost :data:`MOST` seconds; one of more than 1 MiB, where that is more, three
times what skipping its bytes costs.

The cluster has thousands of Services in one pool and hundreds of Nodes, so that a rule that compares parts of a body
with objects of the cluster shows. Another process on the machine makes each measurement too high, never too low: the
lowest of several counts.
"""

import gc
import traceback
from dataclasses import dataclass, field
from itertools import islice
from time import process_time
from typing import Any, Final

import msgspec
import msgspec.inspect as wire
from hypothesis import HealthCheck, Phase, given, seed, settings, target
from hypothesis import strategies as st

from bench.review import GROUPS, POOLS, service
from fuzz import shapes
from fuzz.policy import evaluate
from kavip import names
from kavip.api import patch, review
from kavip.api.cluster import Node, NodeSpec, Taint
from kavip.api.group import GroupSpec, Instances, KeepalivedGroup
from kavip.api.meta import Metadata, Requirement
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.scheduling import REQUIRED_TERMS
from kavip.api.service import Service
from kavip.snapshot import Snapshot
from kavip.webhook.server import ROUTES

MOST: Final = 0.1
TIMES_SKIPPED: Final = 3.0
SMALL: Final = 1 << 20
LARGE: Final = 6 << 20
_LONGEST_ENTRY: Final = 400  # bytes
SERVICES: Final = 5_000
NODES: Final = 500
_AGAIN: Final = 3  # measurements before a body replaces the costliest
_AT_THE_END: Final = 7
_REPEATED: Final = 4  # parts of an object that are made large
_NODE_LABELS: Final = 24
_NAMES: Final = {Service: ("x", "s0"), KeepalivedGroup: ("x", "g0"), VIPPool: ("x", "p0")}  # one is in the cluster


class _Nothing(msgspec.Struct):
    """No field: the decoder skips all."""


_SKIP: Final = msgspec.json.Decoder(_Nothing)


@dataclass(slots=True)
class Costliest:
    """What the search has found: the *body* for *path* that cost most *seconds*, and what skipping it costs."""

    size: int
    path: str = ""
    body: bytes = b""
    outcome: str = ""
    seconds: float = 0.0
    skipped: float = 0.0
    tried: int = 0
    parts: list[str] = field(default_factory=list)
    broken: str = ""

    @property
    def is_too_costly(self) -> bool:
        """Whether it costs more than a body of its size may, or a rule broke."""
        return bool(self.broken) or self.seconds > max(
            MOST, TIMES_SKIPPED * self.skipped if len(self.body) > SMALL else 0.0
        )

    def lines(self) -> list[str]:
        """The report."""
        kib, times = len(self.body) / 1024, self.seconds / max(self.skipped, 1e-9)
        return [
            f"the costliest of {self.tried:,} bodies of up to {self.size / SMALL:.0f} MiB: {self.path}, {self.outcome}",
            f"  {kib:,.0f} KiB, {self.seconds * 1e3:.1f} ms CPU, {times:.1f} x skipping; {', '.join(self.parts)}",
            f"  {self.body[:300].decode(errors='replace')}",
            *([f"  FOUND: {self.broken or 'too costly'}"] if self.is_too_costly else []),
        ]


def search(count: int, *, seed: int, size: int = SMALL) -> Costliest:
    """Try *count* bodies of at most *size* bytes, the paths in turn."""
    found = Costliest(size)
    snapshot = large_cluster(SERVICES, NODES)
    gc.collect()
    gc.freeze()  # as kavip does once its caches are filled
    try:
        paths = sorted(ROUTES)
        for number, path in enumerate(paths):
            _search_path(path, snapshot, found, count=max(count // len(paths), 1), number=seed + number)
        if found.body:
            found.outcome, again = least_cost(found.path, found.body, snapshot, times=_AT_THE_END)
            found.seconds = min(found.seconds, again)
    finally:
        gc.unfreeze()
    return found


def large_cluster(services: int, nodes: int) -> Snapshot:
    """*services* with addresses of pool p0, which they name, and so many Nodes with labels and a taint."""
    groups = [
        KeepalivedGroup(
            metadata=Metadata(namespace="lb", name=f"g{number}", uid=f"g{number}"),
            spec=GroupSpec(interface="eth0", segment=f"s{number}", instances=Instances(mode="Shared")),
        )
        for number in range(GROUPS)
    ]
    pools = [
        VIPPool(metadata=Metadata(name=f"p{number}"), spec=PoolSpec(addresses=[f"10.{number}.0.0/16"]))
        for number in range(POOLS)
    ]
    found = [
        Node(
            metadata=Metadata(name=f"n{number}", labels={f"k{label}": f"n{number}" for label in range(_NODE_LABELS)}),
            spec=NodeSpec(taints=[Taint(key="k0", effect="NoSchedule")]),
        )
        for number in range(nodes)
    ]
    held = (service(number * POOLS, address=f"10.0.{number >> 8}.{number & 255}") for number in range(services))
    return Snapshot.from_objects([*groups, *pools, *found, *held])


def _search_path(path: str, snapshot: Snapshot, found: Costliest, *, count: int, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.target],
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn=bodies(path, found.size))
    def judged(drawn: tuple[bytes, list[str]]) -> None:
        body, parts = drawn
        try:
            outcome, seconds = cost(path, body, snapshot)
        except Exception:  # noqa: BLE001 - a rule that breaks is as bad
            found.broken = traceback.format_exc(limit=-4)
            return
        if seconds > found.seconds:
            again = least_cost(path, body, snapshot, times=_AGAIN)
            outcome, seconds = min((outcome, seconds), again, key=lambda each: each[1])
        found.tried += 1
        if seconds > found.seconds:
            found.path, found.body, found.outcome, found.seconds = path, body, outcome, seconds
            found.skipped, found.parts = skipping(body), parts
        target(seconds)

    judged()


def cost(path: str, body: bytes, snapshot: Snapshot) -> tuple[str, float]:
    """
    The outcome, and the seconds of CPU from the bytes of a body to the bytes of its response.

    A Node changes before, so that no result of an earlier measurement makes this one cheap.
    """
    for node in [*islice(snapshot.nodes.values(), 1)]:
        snapshot.put(node)
    start = process_time()
    outcome = evaluate(path, body, snapshot)
    return outcome, process_time() - start


def least_cost(path: str, body: bytes, snapshot: Snapshot, *, times: int) -> tuple[str, float]:
    """The outcome and the lowest of so many measurements."""
    return min((cost(path, body, snapshot) for _ in range(times)), key=lambda each: each[1])


def skipping(body: bytes) -> float:
    """The seconds of CPU that skipping *body* costs."""
    start = process_time()
    _SKIP.decode(body)
    return process_time() - start


@st.composite
def bodies(draw: st.DrawFn, path: str, size: int) -> tuple[bytes, list[str]]:
    """A request body of at most *size* bytes for *path*, and the names of its large fields."""
    kind = shapes.kind_of(path)
    places = _PLACES[kind]
    judged = sorted(place for place in places if place[0] == "spec")  # most of the others are skipped
    further = st.lists(st.sampled_from(sorted(places)), max_size=_REPEATED - 1)
    chosen = list(dict.fromkeys([draw(st.sampled_from(judged)), *draw(further)]))
    is_update = draw(st.booleans())
    share = size // (1 + is_update) // len(chosen) - 1024
    value = _START[kind]
    for place in chosen:
        repeated = draw(_repeated(places[place], share))
        is_one_term = place == _ONE_NODE_TERM
        value = patch.put(
            value, _NODE_TERMS if is_one_term else place, [{place[-1]: repeated}] if is_one_term else repeated
        )
    value = patch.put(value, ("metadata", "name"), draw(st.sampled_from(_NAMES[kind])))
    old = patch.put(value, ("metadata", "labels"), {"a": "b"}) if draw(st.booleans()) else value
    request: dict[str, Any] = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": kind.__name__},
        "operation": "UPDATE" if is_update else "CREATE",
        "namespace": "" if kind is VIPPool else "shop",
        "object": value,
        "oldObject": old if is_update else None,
    }
    body = {"apiVersion": review.API_VERSION, "kind": review.KIND, "request": request}
    return msgspec.json.encode(body), [".".join(place) for place in chosen]


@st.composite
def _repeated(draw: st.DrawFn, info: wire.Type, share: int) -> Any:
    """A value of type *info* with one entry again and again, in at most *share* bytes of JSON."""
    if isinstance(info, wire.StrType):
        text = draw(st.sampled_from(shapes.TEXTS).filter(bool))
        return text * _times(draw, text, share)
    entry = draw(_entries(info.item_type if isinstance(info, wire.ListType) else info.value_type))  # type: ignore[attr-defined]  # a dict
    times = _times(draw, entry, share)
    if isinstance(info, wire.ListType):
        is_spread = isinstance(entry, str) and draw(st.booleans())
        return [_address(number) for number in range(times // 2)] if is_spread else [entry] * times
    prefix = draw(st.sampled_from(("kavip.io/k", "k", "K ")))
    fixed = {names.GROUP_ANNOTATION: "lb/g0"} if isinstance(entry, str) else {}
    return fixed | {f"{prefix}{number}": entry for number in range(times // 3)}


def _entries(info: wire.Type) -> st.SearchStrategy[Any]:
    if isinstance(info, wire.StructType) and info.cls is Requirement:
        return _REQUIREMENTS
    return shapes.shape(info).filter(lambda value: len(msgspec.json.encode(value)) < _LONGEST_ENTRY)


def _times(draw: st.DrawFn, entry: Any, share: int) -> int:
    """How often: as often as there is room, or as lists may have entries."""
    room = max(share // (len(msgspec.json.encode(entry)) + 1), 3)
    return min(room, draw(st.sampled_from((32, 256, 512, 1024, 1024, 32_000, room))))


def _address(number: int) -> str:
    return f"11.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def _places(kind: type) -> dict[tuple[str, ...], wire.Type]:
    """The lists, objects and texts of *kind* by their place."""
    found: dict[tuple[str, ...], wire.Type] = {}

    def visit(info: wire.Type, place: tuple[str, ...]) -> None:
        match info:
            case wire.UnionType(types=types):
                for one in types:
                    visit(one, place)
            case wire.StructType(fields=fields):
                for each in fields:
                    visit(each.type, (*place, each.encode_name))
            case wire.ListType() | wire.DictType() | wire.StrType():
                found[place] = info

    visit(wire.type_info(kind), ())
    return found


class _NodeTerm(msgspec.Struct, rename="camel"):
    """One of ``nodeSelectorTerms``; kavip's wire types do not have the content of an affinity."""

    match_expressions: list[Requirement]


_REQUIREMENTS: Final = st.sampled_from(
    (
        {"key": "a", "operator": "DoesNotExist"},
        {"key": "a", "operator": "NotIn", "values": ["x"]},
        {"key": "app", "operator": "NotIn", "values": [f"x{number}" for number in range(20)]},
        {"key": "k0", "operator": "NotIn", "values": ["x"]},
        {"key": "k0", "operator": "Exists"},
        {"key": "app", "operator": "In", "values": ["a0"]},
    )
)
"""Most of them hold for Services or Nodes of the cluster, so a selector is read to its end."""
_NODE_TERMS: Final = ("spec", "affinity", *REQUIRED_TERMS.split("."))
_ONE_NODE_TERM: Final = (*_NODE_TERMS, "matchExpressions")
_PLACES: Final = {kind: _places(kind) for kind in shapes.OBJECTS}
_PLACES[KeepalivedGroup] |= {
    _NODE_TERMS: wire.type_info(list[_NodeTerm]),
    _ONE_NODE_TERM: wire.type_info(list[Requirement]),
}
_START: Final[dict[type, dict[str, Any]]] = {
    Service: {"metadata": {"annotations": {names.GROUP_ANNOTATION: "lb/g0"}}, "spec": {"type": "LoadBalancer"}},
    KeepalivedGroup: {"metadata": {}, "spec": {"interface": "eth0"}},
    VIPPool: {"metadata": {}, "spec": {"addresses": ["11.0.0.0/8"]}},
}
