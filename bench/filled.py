"""
The data of an etcd with one large group and its Services, kept in the cache.

An API server takes tens of minutes to create 20,000 Services. They are created once, and each run copies them.
"""

import asyncio
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Final

from bench import bare, site
from bench.bare import Bare, connected
from bench.onemore import NO_CLASS
from bench.site import BARE, NAMESPACE, path, service
from hack.testbed import cache, programs, runs
from hack.testbed.controlplane import ControlPlane
from kavip import names

GROUP: Final = f"{NAMESPACE}/edge"
NOTES: Final = {names.GROUP_ANNOTATION: GROUP}
REFERENCE: Final = 2_000  # Services of the bare client
POOL: Final = "10.128.0.0/14"  # the bare client writes other addresses (bench.site.status)
CRDS: Final = Path(__file__).parents[1] / "config" / "crd" / "bases"
_NAME: Final = "filled"
_KEPT: Final = 2


def filled(count: int) -> Path:
    """
    The data directory of an etcd with the CRDs, a pool, a group with *count* Services, and the bare client's Services.

    Nothing may write to it.
    """
    built, crds = programs.ensure(), sorted(CRDS.glob("*.yaml"))
    name, fill = f"{_NAME}/{count}", partial(_fill, count)
    found = cache.entry(
        name, fill, built["etcd"], built["kube-apiserver"], *crds, code=[bare, site, sys.modules[__name__]]
    )
    cache.prune(f"{_NAME}/*", keep=_KEPT)
    return found


def _fill(count: int, data: Path) -> None:
    with runs.temporary() as state:
        with ControlPlane(programs.ensure(), state) as plane:
            plane.kubectl("apply", "--server-side", f"--filename={CRDS}")
            plane.wait_established()
            asyncio.run(_create(plane, count))
        shutil.copytree(state / "etcd", data)


async def _create(plane: ControlPlane, count: int) -> None:
    async with connected(plane.kubeconfig) as client:
        await _create_group(client)
        bodies = [service(NAMESPACE, f"s{number}", annotations=NOTES) for number in range(count)]
        bodies += [service(BARE, f"s{number}", **NO_CLASS) for number in range(REFERENCE)]
        await client.all(("POST", path(each["metadata"]["namespace"]), each, "application/json") for each in bodies)


async def _create_group(client: Bare) -> None:
    """Create the namespaces, the pool and the group."""
    for name in (NAMESPACE, BARE):
        await client.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    pool = {"apiVersion": f"{names.KAVIP_GROUP}/{names.VERSION}", "kind": names.VIP_POOL, "metadata": {"name": "large"}}
    await client.send("POST", f"/apis/{pool['apiVersion']}/vippools", {**pool, "spec": {"addresses": [POOL]}})
    group = {"apiVersion": f"{names.REDHATCOP_GROUP}/{names.VERSION}", "kind": names.KEEPALIVED_GROUP}
    spec = {"interface": "eth0", "instances": {"mode": "Shared"}}
    groups = f"/apis/{group['apiVersion']}/namespaces/{NAMESPACE}/keepalivedgroups"
    await client.send("POST", groups, {**group, "metadata": {"name": "edge"}, "spec": spec})
