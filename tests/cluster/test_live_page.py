"""
A fail-over on a real cluster, on the page of ``kavip ui`` in a real Chromium (``make test-ui``).

The test prints how long after the writes of the statuses the page has shown it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from hack.demo.__main__ import image
from hack.demo.session import Session
from hack.testbed import livepage
from hack.testbed.cluster import Cluster
from hack.testbed.place import run
from kavip import names
from tests.app.conftest import a_group, a_pool, a_service
from tests.cluster.provisioning import PATIENCE, apply_objects
from tests.cluster.site import SHOP, site
from tests.support.browser import Page, browsing

pytestmark = [pytest.mark.browser, pytest.mark.timeout(1800)]

VIP: Final = "192.0.2.214"
SERVICE: Final = f"{SHOP}/live"
CHANGES: Final = f"""
window.changes = [];
const read = () => {{
  const row = [...document.querySelectorAll("main tr")].find((each) => each.innerText.includes("{VIP}"));
  const node = row ? row.cells[3].innerText : "";
  if (node !== (window.changes.at(-1) ?? [0, null])[1]) window.changes.push([Date.now() / 1000, node]);
}};
new MutationObserver(read).observe(document.body, {{ subtree: true, childList: true, characterData: true }});
read();
"""
"""The node in the row of the VIP, with the time at which the page shows it."""


@pytest.fixture
def session(cluster: Callable[..., Cluster]) -> Iterator[Session]:
    """Two nodes, kavip, and a Service with a VIP."""
    with site(cluster(nodes=2, images=(image(),)), "lb") as found:
        notes = {names.GROUP_ANNOTATION: "lb/live", names.ADDRESSES_ANNOTATION: VIP}
        apply_objects(found.cluster, a_group("live"), a_pool("live", VIP))
        apply_objects(found.cluster, a_service("live", namespace=SHOP, annotations=notes))
        yield found


async def test_a_fail_over_is_on_the_page(session: Session, tmp_path: Path) -> None:
    """When the cable of the VIP's node is pulled, the page shows the node that took the VIP, without a new load."""
    cluster = session.cluster
    with livepage.served(cluster) as link:
        async with browsing(tmp_path) as page, written(cluster) as writes:
            await page.navigate(link)
            await page.wait("document.querySelectorAll('.chip').length")
            await page.evaluate("location.hash = '#/vips'")
            holder = await until(lambda: next((node for _, node in writes[-1:] if node), ""))
            await page.evaluate(CHANGES)
            await shown(page, holder)
            with pulled(cluster, holder):
                taken = await until(lambda: next((node for _, node in writes if node not in ("", holder)), ""))
                await shown(page, taken)
            assert page.errors == []
            changes = await page.evaluate("window.changes")
    write, seen = (max(at for at, node in times if node == taken) for times in (writes, changes))
    session.figure("a fail-over is on the page", f"{seen - write:+.2f} s after a watch has seen the status")


@contextmanager
def pulled(cluster: Cluster, node: str) -> Iterator[None]:
    """The cable of *node* is out during the block."""
    cable = str(cluster.state / "bin" / "cable")
    run([cable, node, "down"])
    try:
        yield
    finally:
        run([cable, node, "up"])


async def shown(page: Page, node: str) -> None:
    """Return when the page shows *node* as that of the VIP."""
    deadline = time.monotonic() + PATIENCE
    while (await page.evaluate("window.changes"))[-1:][0][1] != node:
        assert time.monotonic() < deadline, await page.evaluate("window.changes")
        await asyncio.sleep(0.1)


async def until(found: Callable[[], str]) -> str:
    """What *found* returns when it is not empty."""
    async with asyncio.timeout(PATIENCE):
        while not (text := found()):
            await asyncio.sleep(0.1)
    return text


@asynccontextmanager
async def written(cluster: Cluster) -> AsyncIterator[list[tuple[float, str]]]:
    """The node of the VIP in the status of the group, with the time at which a watch saw it written."""
    found: list[tuple[float, str]] = []
    watch = await asyncio.create_subprocess_exec(
        str(cluster.state / "bin" / "kubectl"),
        *("get", "keepalivedgroup/live", "--namespace=lb", "--watch", "--output=jsonpath={.status.instances}{'\\n'}"),
        stdout=asyncio.subprocess.PIPE,
    )
    assert watch.stdout is not None
    reading = asyncio.create_task(_read(watch.stdout, found))
    try:
        yield found
    finally:
        watch.terminate()
        await watch.wait()
        await reading


async def _read(lines: asyncio.StreamReader, found: list[tuple[float, str]]) -> None:
    async for line in lines:
        instances = json.loads(line) if line.strip() else []
        node = next((each.get("node", "") for each in instances if each["name"] == SERVICE), "")
        if [node] != [each for _, each in found[-1:]]:
            found.append((time.time(), node))
