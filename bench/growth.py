"""
How the controller grows with the cluster, in process: ``python -m bench.growth``; ``--most N`` stops at N Services.

The cluster is that of :mod:`.wide`; all statuses are settled. Each size is measured in processes of its own: one writes
the cluster to files, and the next reads it as a new leader does, so that its memory is that of a leader.

Times are CPU times. A growth is that of the time as a ratio to the decoding of one Service (:mod:`.reference`), which
is measured in between, so that other load on the machine counts less. An exponent is 0 if a figure does not depend on
the number of Services, and 1 if it is proportional to it.
"""

import argparse
import gc
import multiprocessing
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import islice
from math import log
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple, TypeVar

import msgspec

from bench import goal, wide
from bench.events import happen, react
from bench.objects import NEW, service
from bench.reference import decoding
from bench.settled import Settled, plan, settled, with_status
from bench.timing import Clock, flat, frozen, in_turns, resident, timed
from kavip.api.cluster import NodeCondition
from kavip.api.service import Service, share_texts
from kavip.kube.codec import decode
from kavip.kube.resources import SERVICES
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from kavip.snapshot import Object, Snapshot

SIZES: Final = (1_000, 3_000, 10_000, 30_000, 100_000)
STEP: Final = 10  # what should not grow is compared with a cluster of a tenth of the Services
START, FLAT, MEMORY = 1.1, 1.25, 6.0  # goals: an exponent, a ratio, KiB for each Service
TIMES, PLANS = 25, 5  # how often an event is timed; one that concerns all groups
PART: Final = 500  # Services or plans between two decodings
GROUP: Final = Key(KeyKind.GROUP, wide.group_key(0))
GROUP_OBJECT: Final = "the object of a group"

T = TypeVar("T")


class Spent(NamedTuple):
    """The *seconds* of an operation, and the same in *decodings* of a Service."""

    seconds: float
    decodings: float


class Figures(NamedTuple):
    """The figures of one size, by row: of the *start*, of *events*; *memory* in KiB for each Service, *bytes*."""

    services: int
    nodes: int
    start: Mapping[str, Spent]
    events: Mapping[str, Spent]
    memory: float
    bytes: Mapping[str, int]

    @property
    def times(self) -> Mapping[str, Spent]:
        """All times."""
        return {**self.start, **self.events}

    def cost(self, what: str) -> float:
        """The time of the row *what* in decodings."""
        return self.times[what].decodings


def main() -> None:
    """Print the table and the goals."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="how the controller grows")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest number of Services")
    most = parser.parse_args().most
    sizes = [size for size in SIZES if size <= most]
    if not sizes or sizes[-1] < STEP * sizes[0]:
        parser.error(f"--most {most}: want at least {STEP * SIZES[0]}, for a growth needs two sizes")
    found = []
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            alone(write, size, Path(folder))
            found.append(alone(measure, Path(folder)))
    table(found)
    goals(found)


def alone(function: Callable[..., T], *arguments: object) -> T:
    """The result of *function* in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


# --- one size ---------------------------------------------------------------------------------------------------------
def write(count: int, folder: Path) -> None:
    """Write a settled cluster of *count* Services into *folder*: the Services as JSON, and what else there is."""
    scene = settled(wide.cluster(count))
    snapshot = scene.snapshot
    with (folder / "services").open("wb") as file:
        file.writelines(msgspec.json.encode(each) + b"\n" for each in snapshot.services.values())
    others = (*snapshot.groups.values(), *snapshot.namespaces.values(), *snapshot.nodes.values())
    (folder / "rest").write_bytes(pickle.dumps(((*others, *snapshot.pools.values()), scene.observed)))


def measure(folder: Path) -> Figures:
    """The figures of the cluster in *folder*."""
    decoding()()  # imports, and warms up
    gc.collect()
    before = resident()
    others, observed = pickle.loads((folder / "rest").read_bytes())
    scene, store = Settled(Snapshot(), observed), dict[str, Service]()
    snapshot = scene.snapshot
    start = {"start: caches filled": fill(snapshot, store, others, folder)}
    with frozen():
        start["start: all plans"] = plan_all(scene)
        gc.collect()
        memory = (resident() - before) * 1024 / len(store)
        return Figures(len(store), len(snapshot.nodes), start, dict(events(scene)), memory, dict(sizes_of(scene)))


def fill(snapshot: Snapshot, store: dict[str, Service], others: Iterable[Object], folder: Path) -> Spent:
    """Decode the Services in *folder*, and enter everything, as the informers do, which keep a *store*."""

    def enter(lines: Sequence[bytes]) -> None:
        for line in lines:
            found = decode(SERVICES, line)
            assert isinstance(found, Service)
            store[found.key] = share_texts(found)
            snapshot.put(found)

    first = once(lambda: snapshot.put_all(others))
    with (folder / "services").open("rb") as file:
        return together(first, in_parts(enter, file))


def plan_all(scene: Settled) -> Spent:
    """Find the keys of a new leader and make all their plans; there is nothing to write."""
    keys: list[Key] = []

    def make(some: Sequence[Key]) -> None:
        for key in some:
            assert not plan(scene.snapshot, scene.observed, key).writes, key

    return together(once(lambda: keys.extend(enqueue.everything(scene.snapshot))), in_parts(make, keys))


def sizes_of(scene: Settled) -> Iterator[tuple[str, int]]:
    """The bytes in JSON of the largest object of a kind."""
    configmaps = scene.observed.objects.configmaps
    yield GROUP_OBJECT, max(len(msgspec.json.encode(each)) for each in scene.snapshot.groups.values())
    yield "the ConfigMap of a group", max(len(msgspec.json.encode(each)) for each in configmaps.values())


# --- events -----------------------------------------------------------------------------------------------------------
def events(scene: Settled) -> Iterator[tuple[str, Spent]]:
    """The least time of each event, with the plans of all keys that it enqueues."""
    snapshot, replace = scene.snapshot, msgspec.structs.replace
    first = next(iter(snapshot.services.values()))
    one, other = (replace(first, spec=replace(first.spec, external_ips=[f"198.51.100.{number}"])) for number in (9, 10))
    happen(scene, first, one)
    yield "a Service's VIPs changed", least(lambda: happen(scene, one, other) + happen(scene, other, one), halves=2)
    happen(scene, one, first)
    yield "a Service added, until it has an address", least(lambda: added(scene))
    ready = snapshot.nodes[snapshot.group_nodes(snapshot.groups[GROUP.name])[0].metadata.name]
    condition = NodeCondition(type="Ready", status="False")
    unready = replace(ready, status=replace(ready.status, conditions=[condition]))
    what = f"a node NotReady: plans of {len(set(enqueue.of(snapshot, ready, unready)))} groups"
    yield what, least(lambda: happen(scene, ready, unready) + happen(scene, unready, ready), halves=2, times=PLANS)
    yield (
        "the plan of a group, nothing to do",
        least(lambda: timed(lambda: plan(scene.snapshot, scene.observed, GROUP))),
    )


def added(scene: Settled) -> float:
    """Add a Service without an address, write its status, and remove it; the seconds until its address is published."""
    new = service(NEW, group=GROUP.name)
    seconds, writes = react(scene, None, new)
    (patch,) = (each for each in writes if isinstance(each, StatusPatch) and each.kind == KeyKind.SERVICE)
    held = with_status(new, patch.body)
    assert held.ingress_addresses
    seconds += happen(scene, new, held)
    happen(scene, held, None)
    return seconds


# --- times ------------------------------------------------------------------------------------------------------------
def once(operation: Callable[[], object]) -> Spent:
    """The time of *operation*, between two decodings."""
    decoded = decoding()
    beside = [decoded()]
    seconds = timed(operation)
    beside.append(decoded())
    return Spent(seconds, seconds / mean(beside))


def in_parts(operation: Callable[[Sequence[T]], object], items: Iterable[T]) -> Spent:
    """The time of *operation* with all *items*; it is done in parts, with decodings in between."""
    decoded, rest, spent = decoding(), iter(items), []
    while part := list(islice(rest, PART)):
        spent.append((timed(partial(operation, part)), decoded()))
    seconds = sum(each for each, _ in spent)
    return Spent(seconds, seconds / mean(beside for _, beside in spent))


def together(*found: Spent) -> Spent:
    """The sum."""
    return Spent(sum(each.seconds for each in found), sum(each.decodings for each in found))


def least(event: Clock, *, halves: int = 1, times: int = TIMES) -> Spent:
    """The least time of *event*, which is timed in turns with decodings; it has *halves* that are alike."""
    seconds, beside = in_turns(event, decoding(), turns=times, times=1)
    return Spent(seconds / halves, seconds / halves / beside)


# --- the table --------------------------------------------------------------------------------------------------------
def table(found: Sequence[Figures]) -> None:
    """Print the figures of all sizes, and how they grow from the smallest to the largest."""
    line("Services", [f"{each.services:,}" for each in found], "exponent")
    line("nodes", [f"{each.nodes:,}" for each in found])
    for what in found[0].times:
        seconds = [f"{each.times[what].seconds * 1e3:,.1f}" for each in found]
        line(f"{what}, ms", seconds, grown(found, [each.cost(what) for each in found]))
    memory = [each.memory for each in found]
    line("resident memory for each Service, KiB", [f"{each:.2f}" for each in memory], grown(found, memory))
    for what in found[0].bytes:
        sizes = [each.bytes[what] for each in found]
        line(f"{what}, bytes", [f"{each:,}" for each in sizes], grown(found, sizes))


def line(what: str, figures: Sequence[str], last: str = "") -> None:
    """Print a line of the table."""
    print(f"  {what:<44}", *(f"{each:>10}" for each in figures), f"{last:>10}".rstrip())


def grown(found: Sequence[Figures], figures: Sequence[float]) -> str:
    """The exponent of *figures* as text."""
    return f"{exponent(found, figures):.2f}"


def exponent(found: Sequence[Figures], figures: Sequence[float]) -> float:
    """The x with which *figures* grow, from the first to the last, as the number of Services to the power of x."""
    return log(figures[-1] / figures[0]) / log(found[-1].services / found[0].services)


def goals(found: Sequence[Figures]) -> None:
    """Print whether the goals are met: for events, in the largest cluster compared with one of a tenth."""
    small, large = found[0], found[-1]
    tenth = max((each for each in found if each.services * STEP <= large.services), key=lambda each: each.services)
    start = exponent(found, [sum(map(each.cost, each.start)) for each in found])
    whole = f"start, {large.services:,} / {small.services:,}: exponent"
    goal.row(whole, f"{start:.2f}", goal=f"at most {START:g}", met=start <= START)
    print(f"growth of the rest, {large.services:,} / {tenth.services:,}")
    for what in large.events:
        flat(what, tenth.cost(what), large.cost(what), most=FLAT)
    flat("the object of a group", tenth.bytes[GROUP_OBJECT], large.bytes[GROUP_OBJECT], most=FLAT)
    memory = "resident memory for each Service"
    goal.row(memory, f"{large.memory:.2f} KiB", goal=f"under {MEMORY:g} KiB", met=large.memory < MEMORY)


if __name__ == "__main__":
    main()
