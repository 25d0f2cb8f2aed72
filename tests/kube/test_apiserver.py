"""The client, the informer and leader election against a real API server."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from hack.testbed import runs
from hack.testbed.certs import Authority
from hack.testbed.controlplane import ControlPlane
from hack.testbed.programs import Programs
from kavip import errors, names
from kavip.api.event import Event, Note, ObjectReference
from kavip.kube import transport
from kavip.kube.client import Client
from kavip.kube.codec import Changed
from kavip.kube.events import Events
from kavip.kube.informer import Informer, InformerTiming
from kavip.kube.leader import Leader
from kavip.kube.lease import LeaseLock
from kavip.kube.resources import CONFIGMAPS, EVENTS, GROUPS, LEASES, NETWORKS, SERVICES
from tests.kube.conftest import running, until

pytestmark = pytest.mark.apiserver

LIMIT = 90.0  # seconds; one is enough on an idle machine


@pytest.fixture
async def client(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Client]:
    """An administrator's client; its timeouts are long, so that a machine that stalls fails no call."""
    monkeypatch.setattr(transport, "_limit", lambda _: aiohttp.ClientTimeout(total=LIMIT))
    async with Client.from_settings(str(control_plane.kubeconfig)) as client:
        yield client


@pytest.fixture
def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace for this test."""
    name = "kube-" + "".join(letter if letter.isalnum() else "-" for letter in request.node.name[5:45]).strip("-")
    control_plane.kubectl("create", "namespace", name)
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def plane(programs: Programs) -> Iterator[ControlPlane]:
    """A control plane that tests may stop and start."""
    with runs.temporary() as state, ControlPlane(programs, state) as started:
        yield started


async def test_an_api_server_of_another_ca_is_refused(control_plane: ControlPlane, tmp_path: Path) -> None:
    """An attacker on the path is no API server for kavip: the handshake fails, so no token and no object is sent."""
    other = Authority(tmp_path).kubeconfig(control_plane.server, "kavip", ())
    (tmp_path / "kubeconfig").write_text(other)
    async with Client.from_settings(str(tmp_path / "kubeconfig")) as client:
        with pytest.raises(errors.Unavailable, match="certificate verify failed"):
            await client.list(SERVICES)


async def many(count: int, call: Any) -> None:
    """Run *call* with each number, 32 at a time."""
    gate = asyncio.Semaphore(32)

    async def one(number: int) -> None:
        async with gate:
            await call(number)

    await asyncio.gather(*(one(number) for number in range(count)))


def versions(informer: Informer[Any]) -> dict[str, str]:
    """The resourceVersions in the store, by key."""
    return {key: obj.metadata.resource_version for key, obj in informer.store.items()}


async def agrees(client: Client, informer: Informer[Any], namespace: str) -> bool:
    """Whether the store has exactly what the API server lists."""
    items, _ = await client.list(informer.resource, namespace=namespace)
    return versions(informer) == {obj.metadata.key: obj.metadata.resource_version for obj in items}


async def test_1200_objects_are_listed_in_pages_and_followed(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    """The store equals the server's state after the list and after many changes."""
    control_plane.audit.mark()
    await many(1200, lambda n: client.create(CONFIGMAPS, f"{namespace}/c{n:04}", {"data": {"n": str(n)}}))
    informer = Informer(client, CONFIGMAPS, namespace=namespace)
    gone: list[str] = []
    informer.subscribe(lambda old, new: gone.append(old.metadata.name) if old and new is None else None)
    async with running(informer.run()):
        await asyncio.wait_for(informer.synced.wait(), LIMIT)
        assert len(informer.store) == 1200
        await many(200, lambda n: client.patch(CONFIGMAPS, f"{namespace}/c{n:04}", {"data": {"n": "new"}}))
        await many(100, lambda n: client.delete(CONFIGMAPS, f"{namespace}/c{1100 + n:04}"))
        await until(lambda: len(gone) == 100, timeout=LIMIT)
        await until(lambda: sum(obj.data == {"n": "new"} for obj in informer.store.values()) == 200, timeout=LIMIT)
        assert await agrees(client, informer, namespace)
    lists = await asyncio.to_thread(control_plane.audit.events, verb="list", namespace=namespace)
    pages = 1200 // CONFIGMAPS.page_size
    assert sum(f"limit={CONFIGMAPS.page_size}" in event.uri for event in lists[:pages]) == pages
    assert all(event.agent.startswith("kavip/") for event in lists)


async def test_services_decode_and_selectors_select(client: Client, namespace: str) -> None:
    """The server evaluates label and field selectors; an object that leaves the selection is notified as deleted."""
    for number in range(6):
        await client.create(
            SERVICES,
            f"{namespace}/s{number}",
            {
                "metadata": {"labels": {"half": str(number % 2)}},
                "spec": {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]},
            },
        )
    picked = Informer(client, SERVICES, namespace=namespace, labels="half=1")
    single = Informer(client, SERVICES, fields=f"metadata.name=s3,metadata.namespace={namespace}")
    async with running(picked.run(), single.run()):
        await asyncio.wait_for(picked.synced.wait(), LIMIT)
        await asyncio.wait_for(single.synced.wait(), LIMIT)
        assert sorted(obj.metadata.name for obj in picked.store.values()) == ["s1", "s3", "s5"]
        service = single.store[f"{namespace}/s3"]
        assert service.is_load_balancer
        assert service.spec.cluster_ip
        await client.patch(SERVICES, f"{namespace}/s3", {"metadata": {"labels": {"half": "0"}}})
        await until(lambda: f"{namespace}/s3" not in picked.store, timeout=LIMIT)
        await until(lambda: single.store[f"{namespace}/s3"].metadata.label("half") == "0", timeout=LIMIT)


async def test_status_is_patched_and_read_back(client: Client, namespace: str) -> None:
    """One merge patch of the status subresource writes addresses and conditions; the server adds nothing."""
    key = f"{namespace}/web"
    spec = {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"port": 80}]}
    created = await client.create(SERVICES, key, {"spec": spec})
    ingress = [{"ip": "192.0.2.130", "ipMode": names.IP_MODE_VIP}]
    body = {
        "metadata": {"resourceVersion": created.metadata.resource_version},
        "status": {"loadBalancer": {"ingress": ingress}},
    }
    patched = await client.patch(SERVICES, key, body, subresource="status")
    assert [str(address) for address in patched.ingress_addresses] == ["192.0.2.130"]
    with pytest.raises(errors.Conflict):
        await client.patch(SERVICES, key, body, subresource="status")


@pytest.mark.parametrize("kind", ["merge", "strategic"])
async def test_a_stale_version_is_a_conflict(client: Client, namespace: str, kind: Any) -> None:
    """A patch with an old resourceVersion changes nothing."""
    key = f"{namespace}/c"
    stale = await client.create(CONFIGMAPS, key, {"data": {"a": "1"}})
    await client.patch(CONFIGMAPS, key, {"data": {"a": "2"}}, kind=kind)
    body = {"metadata": {"resourceVersion": stale.metadata.resource_version}, "data": {"a": "3"}}
    with pytest.raises(errors.Conflict):
        await client.patch(CONFIGMAPS, key, body, kind=kind)
    assert (await client.get(CONFIGMAPS, key)).data == {"a": "2"}


async def test_applying_respects_other_managers_unless_forced(client: Client, namespace: str) -> None:
    """Server-side apply of a field of another manager is a conflict that names the field."""
    key = f"{namespace}/c"
    await client.apply(CONFIGMAPS, key, {"data": {"a": "theirs", "b": "theirs"}}, field_manager="somebody")
    with pytest.raises(errors.Conflict, match=r"somebody.*\.data\.a"):
        await client.apply(CONFIGMAPS, key, {"data": {"a": "ours"}})
    forced = await client.apply(CONFIGMAPS, key, {"data": {"a": "ours"}}, force=True)
    assert forced.data == {"a": "ours", "b": "theirs"}
    again = await client.apply(CONFIGMAPS, key, {"data": {"a": "ours"}})
    assert again.metadata.resource_version == forced.metadata.resource_version


async def test_each_refusal_is_its_own_error(control_plane: ControlPlane, client: Client, namespace: str) -> None:
    """NotFound, AlreadyExists, invalid, another uid, forbidden, and a failed test of a JSON patch."""
    key = f"{namespace}/c"
    with pytest.raises(errors.NotFound):
        await client.get(CONFIGMAPS, key)
    await client.create(CONFIGMAPS, key, {})
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIGMAPS, key, {})
    with pytest.raises(errors.Rejected, match=r"valid config key"):
        await client.patch(CONFIGMAPS, key, {"data": {"not/valid": ""}})
    with pytest.raises(errors.Rejected):
        await client.patch(CONFIGMAPS, key, [{"op": "test", "path": "/data", "value": {"x": "y"}}], kind="json")
    with pytest.raises(errors.Conflict):
        await client.delete(CONFIGMAPS, key, uid="5b8f9c1e-0000-4000-8000-000000000000")
    await client.delete(CONFIGMAPS, key)
    config = await asyncio.to_thread(control_plane.user, "kube:nobody")
    async with Client.from_settings(str(config)) as without_rights:
        with pytest.raises(errors.Forbidden, match='"kube:nobody" cannot get'):
            await without_rights.get(CONFIGMAPS, key)


DURATION = 20.0
"""Seconds of a lease: a busy machine rarely stalls for so long."""
HOLDER = """
import asyncio, sys
from kavip.kube.client import Client
from kavip.kube.leader import Leader
from kavip.kube.lease import LeaseLock

async def work():
    print("leading", flush=True)
    await asyncio.sleep(3600)

async def main(config, key, duration):
    async with Client.from_settings(config) as client:
        await Leader(LeaseLock(client, key, identity="first", duration=float(duration))).lead(work)

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def first_holder(config: str, key: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process that holds the lease."""
    program = [sys.executable, "-c", HOLDER, config, key, str(DURATION)]
    process = await asyncio.create_subprocess_exec(*program, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(LIMIT):
            while await process.stdout.readline() != b"leading\n":  # log lines come first
                assert process.returncode is None
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_the_second_leads_when_the_first_is_killed_and_not_before(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    """A killed holder is waited out by the candidate's own clock, a released lease is not; transitions are counted."""
    key, began = f"{namespace}/kavip", asyncio.Event()
    control_plane.audit.mark()

    async def work() -> None:
        began.set()
        await asyncio.sleep(3600)

    async def writes() -> list[tuple[str, float]]:
        """The writer of each successful write of the Lease, and its time."""
        found = await asyncio.to_thread(control_plane.audit.events, resource="leases", namespace=namespace)
        done = [each for each in found if each.body and each.code < 300]
        return [
            (each.body["spec"]["holderIdentity"], datetime.fromisoformat(each.received).timestamp()) for each in done
        ]

    async with first_holder(str(control_plane.kubeconfig), key) as first:
        second = Leader(LeaseLock(client, key, identity="second", duration=DURATION))
        leading = asyncio.create_task(second.lead(work))
        async with asyncio.timeout(LIMIT):
            while (await writes())[-1][1] - (await writes())[0][1] < DURATION + 2:
                await asyncio.sleep(0.1)
        first.send_signal(signal.SIGKILL)
        await asyncio.wait_for(began.wait(), LIMIT)
        assert second.is_held()
    # on a busy machine a holder may fail to renew; it loses the lease only after it has expired
    taken = await writes()
    change = next(number for number, (who, _) in enumerate(taken) if who == "second")
    assert change > 1
    assert {who for who, _ in taken[:change]} == {"first"}
    assert taken[change][1] - taken[change - 1][1] >= DURATION - 0.1
    spec = (await client.get(LEASES, key)).spec
    assert (spec.holder_identity, spec.lease_transitions, spec.lease_duration_seconds) == ("second", 1, DURATION)

    leading.cancel()
    await asyncio.wait({leading})
    released = (await client.get(LEASES, key)).spec
    assert (released.holder_identity, released.lease_transitions) == ("", 1)
    assert await LeaseLock(client, key, identity="third", duration=DURATION).try_acquire()
    assert (await client.get(LEASES, key)).spec.lease_transitions == 2


async def test_of_two_candidates_at_the_same_moment_one_gets_the_lease(client: Client, namespace: str) -> None:
    """A 409 means not held, on creation and on acquisition."""
    for _ in range(3):
        leases = [LeaseLock(client, f"{namespace}/kavip", identity=f"c{n}") for n in range(8)]
        outcomes = await asyncio.gather(*(lease.try_acquire() for lease in leases), return_exceptions=True)
        assert outcomes.count(True) == 1
        assert all(outcome in (True, False) or isinstance(outcome, errors.ApiError) for outcome in outcomes)
        winner = leases[outcomes.index(True)]
        await winner.release()


async def test_events_are_shown_by_kubectl(control_plane: ControlPlane, client: Client, namespace: str) -> None:
    """Also series, for objects with and without a namespace."""
    created = await client.create(CONFIGMAPS, f"{namespace}/c", {})
    about = ObjectReference(api_version="v1", kind="ConfigMap", namespace=namespace, name="c", uid=created.metadata.uid)
    pool = ObjectReference(api_version="kavip.io/v1alpha1", kind="VIPPool", name=f"pool-{namespace}")
    note = Note(about, names.Reason.POOL_EXHAUSTED, "x" * 3000, severity="Warning")
    events = Events(client, reporter="kavip.io/controller", instance="kavip-0", window=0)
    for _ in range(3):
        events.emit(Note(pool, names.Reason.READY, "fine"))  # before the first delivery
    async with running(events.run()):
        events.emit(note)

        async def found(where: str) -> list[Event]:
            items, _ = await client.list(EVENTS, namespace=where)
            return [item for item in items if item.regarding.name in ("c", pool.name)]

        async with asyncio.timeout(LIMIT):
            while not (await found(namespace) and await found("default")):
                await asyncio.sleep(0.05)
            events.emit(note)
            while (await found(namespace))[0].series is None:
                await asyncio.sleep(0.05)
        (fine,) = await found("default")
    assert fine.series is not None and fine.series.count == 3
    assert events.dropped == 0
    answer = await asyncio.to_thread(control_plane.kubectl, "get", "events", "-n", namespace, "-o", "json")
    shown = json.loads(answer.stdout)["items"]
    assert [(item["reason"], item["series"]["count"], len(item["message"])) for item in shown] == [
        ("PoolExhausted", 2, 1024)
    ]


async def test_nothing_is_lost_while_the_api_server_is_silent_or_dead(plane: ControlPlane) -> None:
    """Suspended with open connections, killed, and restarted: the store catches up, also with deletions."""
    timing = InformerTiming(lifetime=60, silence=3, settled=0.5, base=0.1, cap=1)
    async with Client.from_settings(str(plane.kubeconfig)) as client:
        _, old = await client.list(CONFIGMAPS)
        for name in ("kept", "goes"):
            await client.create(CONFIGMAPS, f"default/{name}", {})
        informer = Informer(client, CONFIGMAPS, namespace="default", timing=timing)
        async with running(informer.run()):
            await asyncio.wait_for(informer.synced.wait(), LIMIT)

            plane.pause()
            await until(lambda: informer.current_error, timeout=LIMIT)
            with pytest.raises(errors.Unavailable):
                await client.get(CONFIGMAPS, "default/kept", timeout=0.5)
            await asyncio.to_thread(plane.resume)
            await client.create(CONFIGMAPS, "default/after-silence", {})
            await until(lambda: "default/after-silence" in informer.store, timeout=LIMIT)
            await until(lambda: not informer.current_error, timeout=LIMIT)

            await asyncio.to_thread(plane.restart)
            await client.delete(CONFIGMAPS, "default/goes")
            await client.create(CONFIGMAPS, "default/after-death", {})
            await until(lambda: "default/after-death" in informer.store, timeout=LIMIT)
            await until(lambda: "default/goes" not in informer.store, timeout=LIMIT)
            assert "default/kept" in informer.store
            assert await agrees(client, informer, "default")

        # the informer lists again: a restarted server does not know such an old version
        with pytest.raises(errors.Gone):
            async with asyncio.timeout(LIMIT), client.watch(CONFIGMAPS, old) as events:
                async for _ in events:
                    pass


async def test_a_kind_may_be_installed_later(plane: ControlPlane) -> None:
    """
    The informer of a missing kind retries; an optional one is synced and empty; removing the kind removes its objects.
    """
    crd = "config/crd/bases/keepalivedgroups.redhatcop.redhat.io.yaml"
    timing = InformerTiming(settled=0.5, base=0.1, cap=0.5)
    async with Client.from_settings(str(plane.kubeconfig)) as client:
        groups, networks = Informer(client, GROUPS, timing=timing), Informer(client, NETWORKS, timing=timing)
        async with running(groups.run(), networks.run()):
            await asyncio.wait_for(networks.synced.wait(), LIMIT)
            await until(lambda: groups.current_error == "NotFound", timeout=LIMIT)
            assert not groups.synced.is_set()
            await asyncio.to_thread(plane.kubectl, "apply", "--server-side", "-f", crd)
            await asyncio.wait_for(groups.synced.wait(), LIMIT)
            await client.create(GROUPS, "default/edge", {"spec": {"interface": "eth0"}})
            await until(lambda: "default/edge" in groups.store, timeout=LIMIT)
            await asyncio.to_thread(plane.kubectl, "delete", "-f", crd, "--wait=false")
            await until(lambda: not groups.store, timeout=150)  # the API server sometimes needs a minute


async def test_metadata_is_listed_and_watched_without_content(client: Client, namespace: str) -> None:
    """A ConfigMap of 1 MiB costs as little as an empty one."""
    labels = {names.CONFIG_TEMPLATE_LABEL: ""}
    large = {"metadata": {"labels": labels}, "data": {"text": "a" * 1_000_000}}
    await client.create(CONFIGMAPS, f"{namespace}/listed", large)
    known = replace(CONFIGMAPS, metadata_only=True)
    found, version = await client.list(known, namespace=namespace, labels=names.CONFIG_TEMPLATE_LABEL)
    assert [(each.metadata.name, each.metadata.labels, each.data) for each in found] == [("listed", labels, None)]
    await client.create(CONFIGMAPS, f"{namespace}/watched", large)
    async with client.watch(known, version, namespace=namespace, labels=names.CONFIG_TEMPLATE_LABEL) as events:
        event = await anext(events)
    assert isinstance(event, Changed)
    assert (event.object.metadata.name, event.object.data) == ("watched", None)
