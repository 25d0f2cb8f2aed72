"""
How the controller grows with the cluster, in process: ``python -m bench.growth``; ``--most N`` stops at N Services.

The cluster is that of :mod:`.wide`; all statuses are settled. Each size has processes of its own: one writes the
cluster to files, and another starts with these as a new leader does, so that its memory is that of a leader. Then the
leaders take turns with the events, so that other load on the machine affects them all.

Times are CPU times. The exponent of a figure is 0 if it does not depend on the number of Services, and 1 if it is
proportional to it. For the start it is that of the time as a ratio to the decoding of a Service (:mod:`.reference`).
"""

import argparse
import gc
import multiprocessing
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf, log
from pathlib import Path
from statistics import mean
from typing import Final, NamedTuple, TypeVar

import msgspec

from bench import goal, wide
from bench.events import happen, react
from bench.objects import NEW, service
from bench.reference import decoding
from bench.settled import Settled, plan, settled, with_status
from bench.timing import flat, resident, timed
from kavip.api.cluster import NodeCondition
from kavip.api.service import Service, share_texts
from kavip.kube.codec import decode
from kavip.kube.resources import SERVICES
from kavip.reconcile import enqueue
from kavip.reconcile.observed.agentstates import Contact
from kavip.reconcile.plan import Key, KeyKind, StatusPatch
from kavip.snapshot import Object, Snapshot

SIZES: Final = (1_000, 3_000, 10_000, 30_000, 100_000)
STEP: Final = 10  # what should not grow is compared with a cluster of a tenth of the Services
START, FLAT, MEMORY = 1.1, 1.25, 6.0  # goals: an exponent, a ratio, KiB for each Service
TURNS, TIMES = 5, 2  # how often each event is timed
PART: Final = 500  # Services or plans between two decodings
GROUP: Final = Key(KeyKind.GROUP, wide.group_key(0))
GROUP_OBJECT: Final = "the object of a group"

T = TypeVar("T")

_leading: Final[list[Settled]] = []
"""What a process of :func:`start` keeps."""


class Spent(NamedTuple):
    """The *seconds* of an operation, and the same in *decodings* of a Service."""

    seconds: float
    decodings: float


class Figures(NamedTuple):
    """The figures of one size: times of the *start* by row, *memory* in KiB for each Service, *bytes* by object."""

    services: int
    nodes: int
    start: Mapping[str, Spent]
    memory: float
    bytes: Mapping[str, int]


class Size(NamedTuple):
    """What was measured of one size: its *figures*, and the least seconds of each of its *events*."""

    figures: Figures
    events: Mapping[str, float]


def main() -> None:
    """Print the table and the goals."""
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="how the controller grows")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest number of Services")
    most = parser.parse_args().most
    sizes = [size for size in SIZES if size <= most]
    if not sizes or sizes[-1] < STEP * sizes[0]:
        parser.error(f"--most {most}: want at least {STEP * SIZES[0]}, for a growth needs two sizes")
    with ExitStack() as stack:
        leaders = [stack.enter_context(process()) for _ in sizes]
        figures = [started(leader, size) for leader, size in zip(leaders, sizes, strict=True)]
        found = list(map(Size, figures, events_in_turns(leaders)))
    table(found)
    goals(found)


def process() -> ProcessPoolExecutor:
    """A process of its own, which starts with its first work."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def started(leader: ProcessPoolExecutor, size: int) -> Figures:
    """Start with a cluster of *size* Services in the process *leader*."""
    with tempfile.TemporaryDirectory() as folder:
        with process() as writer:
            writer.submit(write, size, Path(folder)).result()
        return leader.submit(start, Path(folder)).result()


def events_in_turns(leaders: Sequence[ProcessPoolExecutor]) -> list[dict[str, float]]:
    """The least seconds of each event in each of *leaders*, which take turns."""
    found: list[dict[str, float]] = [{} for _ in leaders]
    for _ in range(TURNS):
        for what in EVENTS:
            for leader, least in zip(leaders, found, strict=True):
                seconds = leader.submit(time_event, what).result()
                least[what] = min(seconds, least.get(what, inf))
    return found


# --- one size ---------------------------------------------------------------------------------------------------------
def write(count: int, folder: Path) -> None:
    """Write a settled cluster of *count* Services into *folder*: the Services as JSON, and what else there is."""
    scene = settled(wide.cluster(count))
    snapshot = scene.snapshot
    with (folder / "services").open("wb") as file:
        file.writelines(msgspec.json.encode(each) + b"\n" for each in snapshot.services.values())
    others = (*snapshot.groups.values(), *snapshot.namespaces.values(), *snapshot.nodes.values())
    (folder / "rest").write_bytes(pickle.dumps(((*others, *snapshot.pools.values()), scene.observed)))


def start(folder: Path) -> Figures:
    """Start with the cluster in *folder*, and keep it for :func:`time_event`."""
    decoding()()  # imports, and warms up
    gc.collect()
    before = resident()
    others, observed = pickle.loads((folder / "rest").read_bytes())
    scene, store = Settled(Snapshot(), observed), dict[str, Service]()
    snapshot = scene.snapshot
    filled = fill(snapshot, store, others, folder)
    gc.collect()
    gc.freeze()  # as kavip.app does
    times = {"start: caches filled": filled, "start: all plans": plan_all(scene)}
    gc.collect()
    memory = (resident() - before) * 1024 / len(store)
    gc.freeze()
    _leading.append(scene)
    return Figures(len(store), len(snapshot.nodes), times, memory, dict(sizes_of(scene)))


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
def time_event(what: str) -> float:
    """The least seconds of the event *what*, with the plans of all keys that it enqueues, in this process."""
    (scene,) = _leading
    gc.collect()
    return min(EVENTS[what](scene) for _ in range(TIMES))


def changed(scene: Settled) -> float:
    """A Service has one VIP more, and then not."""
    before = next(iter(scene.snapshot.services.values()))
    after = msgspec.structs.replace(before, spec=msgspec.structs.replace(before.spec, external_ips=["198.51.100.9"]))
    return there_and_back(scene, before, after)


def added(scene: Settled) -> float:
    """A Service is added without an address, and its status is written; it is removed."""
    new = service(NEW, group=GROUP.name)
    seconds, writes = react(scene, None, new)
    (patch,) = (each for each in writes if isinstance(each, StatusPatch) and each.kind == KeyKind.SERVICE)
    held = with_status(new, patch.body)
    assert held.ingress_addresses
    seconds += happen(scene, new, held)
    happen(scene, held, None)
    return seconds


def unready(scene: Settled) -> float:
    """A node of a group becomes NotReady, and then ready."""
    before = scene.snapshot.group_nodes(scene.snapshot.groups[GROUP.name])[0]
    status = msgspec.structs.replace(before.status, conditions=[NodeCondition(type="Ready", status="False")])
    return there_and_back(scene, before, msgspec.structs.replace(before, status=status))


def silent(scene: Settled) -> float:
    """The same as :func:`changed` while one node more, which is master of nothing, has fallen silent."""
    agents = scene.observed.agents
    state = replace(next(iter(agents.states_of(GROUP.name).values())), masters=frozenset())
    agents = agents.with_state(GROUP.name, "gone", state=state)
    agents = agents.with_contact(GROUP.name, "gone", contact=Contact(is_silent=True))
    observed = replace(scene.observed, agents=agents)
    plan(scene.snapshot, observed, GROUP)  # compares all Services once
    return changed(Settled(scene.snapshot, observed))


def unchanged(scene: Settled) -> float:
    """A group is planned again."""
    return timed(lambda: plan(scene.snapshot, scene.observed, GROUP))


def there_and_back(scene: Settled, before: Object, after: Object) -> float:
    """Replace *before* by *after* and back; the mean seconds of both."""
    return (happen(scene, before, after) + happen(scene, after, before)) / 2


EVENTS: Final[Mapping[str, Callable[[Settled], float]]] = {
    "a Service's VIPs changed": changed,
    "the same while a node is silent": silent,
    "a Service added, until it has an address": added,
    f"a node NotReady: plans of all {wide.GROUPS} groups": unready,
    "a group planned, nothing to do": unchanged,
}


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


# --- the table --------------------------------------------------------------------------------------------------------
def table(found: Sequence[Size]) -> None:
    """Print the figures of all sizes, and how they grow from the smallest to the largest."""
    figures = [each.figures for each in found]
    print(f"  {'Services':<46}", *(f"{each.services:>9,}" for each in figures), " exponent")
    print(f"  {'nodes':<46}", *(f"{each.nodes:>9,}" for each in figures))
    for what in figures[0].start:
        spent = [each.start[what] for each in figures]
        line(f"{what}, ms", found, [each.seconds * 1e3 for each in spent], [each.decodings for each in spent])
    for what in EVENTS:
        line(f"{what}, ms", found, [each.events[what] * 1e3 for each in found])
    line("resident memory for each Service, KiB", found, [each.memory for each in figures])
    for what in figures[0].bytes:
        line(f"{what}, bytes", found, [each.bytes[what] for each in figures])


def line(what: str, found: Sequence[Size], shown: Sequence[float], compared: Sequence[float] = ()) -> None:
    """Print a line of the table: the figures *shown*, and the exponent of those *compared*."""
    figures = (f"{each:>9,}" if isinstance(each, int) else f"{each:>9,.1f}" for each in shown)
    print(f"  {what:<46}", *figures, f"{exponent(found, compared or shown):>9.2f}")


def exponent(found: Sequence[Size], figures: Sequence[float]) -> float:
    """The x with which *figures* grow, from the first to the last, as the number of Services to the power of x."""
    return log(figures[-1] / figures[0]) / log(found[-1].figures.services / found[0].figures.services)


def goals(found: Sequence[Size]) -> None:
    """Print whether the goals are met: for events, in the largest cluster compared with one of a tenth."""
    last = found[-1]
    most = last.figures.services
    tenth = max(
        (each for each in found if each.figures.services * STEP <= most), key=lambda each: each.figures.services
    )
    grown = exponent(found, [sum(each.decodings for each in size.figures.start.values()) for size in found])
    what = f"start, {most:,} / {found[0].figures.services:,} Services: exponent"
    goal.row(what, f"{grown:.2f}", goal=f"at most {START:g}", met=grown <= START)
    print(f"the rest, {most:,} / {tenth.figures.services:,} Services")
    for what in EVENTS:
        flat(what, tenth.events[what], last.events[what], most=FLAT)
    flat(GROUP_OBJECT, tenth.figures.bytes[GROUP_OBJECT], last.figures.bytes[GROUP_OBJECT], most=FLAT)
    memory = last.figures.memory
    goal.row("resident memory for each Service", f"{memory:.2f} KiB", goal=f"under {MEMORY:g} KiB", met=memory < MEMORY)


if __name__ == "__main__":
    main()
