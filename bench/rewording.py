"""
An upgrade that changes only words: 10,000 Services with the conditions of an older version, on a real API server.

``hack/venv python -m bench.rewording COMMIT`` runs the controller of COMMIT until each Service has its conditions, then
this one, and creates Services while this one rewrites the messages. Where both versions agree on the words, the bench
rewords the older one. Not part of ``make bench``: it needs the commit.
"""

import asyncio
import io
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.bare import Bare, connected
from bench.goal import row
from bench.site import NAMESPACE, Site, notes, path, prepare, running, service
from bench.writes import Write, Writes
from hack.testbed import programs, runs
from hack.testbed.controlplane import ControlPlane

ROOT = Path(__file__).parents[1]
SERVICES = 10_000
NEW = 20
AGENT = "kavip"
QUIET = 10.0
"""Seconds without a status write after which a controller has finished."""
WORDS = ("no node matches", "no node at all matches")
"""Words of the condition Programmed in a cluster without nodes, and the older version's words here."""


async def measure(plane: ControlPlane, older: Path, count: int) -> None:
    """Print the rows."""
    async with connected(plane.kubeconfig) as bare:
        site = Site(plane, bare)
        await prepare(bare, count, namespaces=[NAMESPACE])
        first = site.writes
        with running(plane, "controller", checkout=older):
            await first.until(AGENT, count)
            await _quiet(first)
        print(f"{count:,} Services have the conditions of the older version", flush=True)
        writes = site.writes
        with running(plane, "controller"):
            await writes.until(AGENT, 1)
            await _create(bare)
            await _quiet(writes)
            _report(writes.by(AGENT), count)
        again = site.writes
        with running(plane, "controller"):
            await _create(bare, prefix="last")
            await again.until(AGENT, NEW)
            await _quiet(again)
            others = [each for each in again.by(AGENT) if not each.name.startswith("last")]
        row("status writes after the next restart", str(len(others)), goal="0", met=not others)


async def _create(bare: Bare, prefix: str = "new") -> None:
    bodies = (service(NAMESPACE, f"{prefix}{each}", annotations=notes(each)) for each in range(NEW))
    await bare.all(("POST", path(NAMESPACE), body, "application/json") for body in bodies)


async def _quiet(writes: Writes) -> None:
    """Return when no status was written for a while."""
    seen = -1
    while seen != (seen := len(writes.by(AGENT))):
        await asyncio.sleep(QUIET)


def _report(found: list[Write], count: int) -> None:
    """Print the rows of the controller that finds the conditions of the older version."""
    rewritten = [each for each in found if not each.name.startswith("new")]
    most = max(Counter(each.name for each in rewritten).values(), default=0)
    began, ended = min(each.began for each in found), max(each.ended for each in found)
    first: dict[str, Write] = {}
    for each in found:
        first.setdefault(each.name, each)
    new = [each for name, each in first.items() if name.startswith("new")]
    behind = sum(each.began > max(one.ended for one in new) for each in rewritten)
    print(f"  {len(rewritten):,} of {count:,} Services rewritten in {ended - began:.1f} s, the first writes included")
    row("status writes of one rewritten Service, at most", str(most), goal="1", met=most <= 1)
    print(f"  {NEW} Services created meanwhile: the last got its address {max(e.ended for e in new) - began:.1f} s")
    print(f"  after the first write; {behind:,} Services were rewritten after that")
    row("Services created meanwhile that got an address", str(len(new)), goal=str(NEW), met=len(new) == NEW)


@contextmanager
def _checkout(commit: str) -> Iterator[Path]:
    """The source tree of *commit*, with other :data:`WORDS`."""
    archive = subprocess.run(["git", "archive", commit, "kavip"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as found:
        found.extractall(folder, filter="data")
        texts = {path: path.read_text() for path in Path(folder).rglob("*.py")}
        reworded = [path for path, text in texts.items() if WORDS[0] in text]
        if not reworded:
            raise SystemExit(f"bench.rewording: {commit} does not say {WORDS[0]!r}; name other WORDS")
        for path in reworded:
            path.write_text(texts[path].replace(*WORDS))
        yield Path(folder)


def main(commit: str, count: str = str(SERVICES)) -> None:
    """Start a control plane and measure on it."""
    with runs.temporary() as state, ControlPlane(programs.ensure(), state) as plane, _checkout(commit) as older:
        plane.kubectl("apply", "-f", str(ROOT / "config" / "crd" / "bases"))
        plane.wait_established()
        asyncio.run(measure(plane, older, int(count)))


if __name__ == "__main__":
    main(*sys.argv[1:])
