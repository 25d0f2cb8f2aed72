"""
The time and the calls of functions of one event of a Service in a group: part of ``python -m bench plan``.

The statuses of all Services are current, and all nodes run the text of the first ConfigMap. Their agents read packed
texts, as that of 20,000 Services is. A change of VIPs enqueues the group. Its plan reads the text that was written last
and renders the next one, at most once in 0.3 s. The two Shared groups take turns. A group with as many instances as it
can have stands alone, and so does one on many nodes, whose pods all lack the annotation for the last change.
"""

from collections.abc import Iterator, Sequence
from itertools import count

import msgspec

from bench.objects import (
    EDGE,
    GROUP,
    LABELS,
    LARGE,
    NEW,
    almost_full,
    cluster,
    first_of,
    node,
    pool,
    service,
    services,
)
from bench.reference import NAME, decoding
from bench.settled import Settled, carry_out, plan, settled
from bench.timing import Measure, called, flat, frozen, plain, timed
from kavip.api.group import GroupSpec, GroupStatus
from kavip.api.meta import LabelSelector
from kavip.api.service import Service
from kavip.reconcile import enqueue
from kavip.reconcile.plan import Apply, KeyKind, StatusPatch, Write
from kavip.snapshot import KINDS, Object, Snapshot

CROWDS = (2_000, 20_000)
MOST = 1.25
TIMES = 20
SEPARATE, NODES = 254, 200
NUMBERS = count()


def table() -> None:
    """Print the table."""
    for selector, where in ((None, "all namespaces"), (LabelSelector(match_labels=LABELS), "allowedNamespaces")):
        print(f"one event of a Service and all plans that follow; a group for {where}")
        scenes = [settled(members(size, allowed=selector)) for size in CROWDS]
        calls = events(scenes, called)
        for what, (few, many) in events(scenes).items():
            flat(f"{what}, among {CROWDS[1]:,} / {CROWDS[0]:,}", few, many, most=MOST)
            flat("  the calls of functions", *calls[what], most=MOST)
            for size, seconds, calls_of in zip(CROWDS, (few, many), calls[what], strict=True):
                plain(f"  among {size:,}", f"{seconds * 1e3:.2f} ms, {calls_of:,} calls")
    change_of_vips(many_instances(), f"{SEPARATE} PerService Services on {NODES} nodes")
    change_of_vips(many_nodes(), f"{CROWDS[-1]:,} Shared Services on {NODES} nodes")


def change_of_vips(snapshot: Snapshot, where: str) -> None:
    """Print the time of a change of VIPs in *snapshot*."""
    scene = settled(snapshot)
    first = next(iter(scene.snapshot.services.values()))
    specs = [msgspec.structs.replace(first.spec, external_ips=[f"198.51.100.{each}"]) for each in (9, 10)]
    one, other = (msgspec.structs.replace(first, spec=each) for each in specs)
    with frozen():
        ((seconds,), _), reference = least([scene], [one], [other], timed), decoding()
        found = f"{seconds / reference():.0f} x {NAME}, {seconds * 1e3:.2f} ms"
    plain(f"VIPs changed, {where}", found)


def many_instances() -> Snapshot:
    """A Snapshot with a group of almost as many PerService Services as it can have: each has an instance."""
    addresses = first_of(LARGE, SEPARATE)
    found = spread(cluster([pool("bench", LARGE)], services(SEPARATE, held=addresses)))
    group = found.groups[GROUP]
    spec = GroupSpec(interface="eth0", node_selector=EDGE, unicast_enabled=True, vrrp_version=3)
    found.put(msgspec.structs.replace(group, spec=spec, status=GroupStatus()))
    return found


def many_nodes() -> Snapshot:
    """A Snapshot with a large Shared group on many nodes."""
    found = spread(almost_full(CROWDS[-1]))
    group = found.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, unicast_enabled=True, vrrp_version=3)
    found.put(msgspec.structs.replace(group, spec=spec))
    return found


def spread(snapshot: Snapshot) -> Snapshot:
    """*snapshot* with many nodes that the group selects."""
    for number in range(NODES):
        snapshot.put(node(number, labels=EDGE))
    return snapshot


def members(size: int, *, allowed: LabelSelector | None = None) -> Snapshot:
    """A Snapshot with *size* Services in a group whose allowedNamespaces is *allowed*."""
    snapshot = almost_full(size)
    group = snapshot.groups[GROUP]
    spec = msgspec.structs.replace(group.spec, allowed_namespaces=allowed)
    snapshot.put(msgspec.structs.replace(group, spec=spec))
    return snapshot


def events(scenes: Sequence[Settled], measure: Measure = timed) -> dict[str, list[float]]:
    """What all plans after an event take in each of *scenes*, by event."""
    replace = msgspec.structs.replace
    first = [next(iter(scene.snapshot.services.values())) for scene in scenes]
    labelled = [replace(each, metadata=replace(each.metadata, labels={**LABELS, "a": "b"})) for each in first]
    wider, other = (
        [replace(each, spec=replace(each.spec, external_ips=[f"198.51.100.{number}"])) for each in first]
        for number in (9, 10)
    )
    last = [first_of(LARGE, len(scene.snapshot.services) + 1)[-1:] for scene in scenes]
    with frozen():
        found = {"labels changed": least(scenes, first, labelled, measure)[0]}
        found["VIPs changed"] = least(scenes, wider, other, measure)[0]
        for scene, old, new in zip(scenes, other, first, strict=True):
            happen(scene, old, new)
        found["added"], found["removed"] = least(
            scenes, [None] * len(scenes), [service(NEW, held=each) for each in last], measure
        )
    return found


def least(
    scenes: Sequence[Settled],
    before: Sequence[Service | None],
    after: Sequence[Service | None],
    measure: Measure,
) -> tuple[list[float], list[float]]:
    """
    The least that it takes to change a Service from its state *before* to that *after*, and back, by scene.

    The *scenes* take turns. Before each change another Service gets another VIP: no text was written before.
    """
    changes = list(zip(scenes, before, after, strict=True))
    for scene, one, other in changes:
        happen(scene, other, one)
    turns = [
        [
            (happen(renewed(scene), one, other, measure), happen(renewed(scene), other, one, measure))
            for scene, one, other in changes
        ]
        for _ in range(TIMES)
    ]
    there, back = ([min(turn[at][way] for turn in turns) for at in range(len(scenes))] for way in (0, 1))
    return there, back


def renewed(scene: Settled) -> Settled:
    """*scene* after its second Service got a VIP that it did not have before."""
    _, old, *_ = scene.snapshot.services.values()
    spec = msgspec.structs.replace(old.spec, external_ips=[f"203.0.113.{next(NUMBERS) % 250}"])
    happen(scene, old, msgspec.structs.replace(old, spec=spec))
    return scene


def happen(scene: Settled, old: Object | None, new: Object | None, measure: Measure = timed) -> float:
    """
    Replace *old* by *new*; what the change and all plans that follow take.

    The writes to groups and their ConfigMaps are applied, those to Services are not.
    """
    figure, writes = react(scene, old, new, measure)
    for write in writes:
        if isinstance(write, Apply) or (isinstance(write, StatusPatch) and write.kind == KeyKind.GROUP):
            carry_out(scene.snapshot, scene.observed, write)
    return figure


def react(
    scene: Settled, old: Object | None, new: Object | None, measure: Measure = timed
) -> tuple[float, list[Write]]:
    """Replace *old* by *new*; what the change and all plans that follow take, and their writes."""
    writes: list[Write] = []
    figure = measure(lambda: writes.extend(plans(scene, old, new)))
    return figure, writes


def plans(scene: Settled, old: Object | None, new: Object | None) -> Iterator[Write]:
    """Replace *old* by *new*; the writes of all plans that follow."""
    if new is not None:
        scene.snapshot.put(new)
    elif old is not None:
        scene.snapshot.drop(KINDS[type(old)], old.metadata.key)
    for key in dict.fromkeys(enqueue.of(scene.snapshot, old, new)):
        yield from plan(scene.snapshot, scene.observed, key).writes
