"""A support bundle of a cluster that holds secrets everywhere: what is in it, what is not, and what is missing."""

import io
import json
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from aiohttp import web

from kavip.cli.sources import bundle
from kavip.cli.sources.archive import archive
from kavip.cli.sources.bundle import Request, read_bundle
from kavip.errors import Unavailable
from tests.cli.sources.plantedcluster import HIDDEN, PlantedCluster
from tests.kube.fakeapi import FakeApi, refusal, serving
from tests.support.secretforms import NEEDLE, forms

FILES = {
    "index.json",
    "doctor.json",
    "objects/nodes.json",
    "objects/vippools.json",
    "objects/keepalivedgroups.json",
    "objects/services.json",
    "objects/endpoints.json",
    "objects/deployments.json",
    "objects/daemonsets.json",
    "objects/pods.json",
    "objects/leases.json",
    "objects/events.json",
    "groups/lb/edge/keepalived.conf",
    "agents/lb/edge-n1/state.json",
    "metrics/kavip/kavip-controller-1/metrics.txt",
    "logs/kavip/kavip-controller-1/kavip.log",
    "logs/kavip/kavip-controller-1/kavip.previous.log",
    "logs/lb/edge-n1/agent.log",
    "logs/lb/edge-n1/agent.previous.log",
    "logs/lb/edge-n1/keepalived.log",
}
UNREADABLE = {"Service shop/malformed", "configuration of group lb/odd"}
"""What of the cluster cannot be read."""


async def collected(
    cluster: PlantedCluster, folder: Path, **options: Any
) -> tuple[dict[str, bytes], dict[str, str], list[str]]:
    """The files of a bundle of *cluster*, what is missing and why, and the steps that were reported."""
    steps: list[str] = []
    async with kubeconfig_of(cluster, folder) as kubeconfig:
        files, missing = await read_bundle(kubeconfig, context="", request=Request(**options), report=steps.append)
    return files, {each.what: each.why for each in missing}, steps


@asynccontextmanager
async def kubeconfig_of(cluster: PlantedCluster, folder: Path) -> AsyncIterator[str]:
    """A kubeconfig for a server of *cluster*."""
    fake = FakeApi()
    fake.fault = cluster.handle
    async with serving(fake, folder) as kubeconfig:
        yield str(kubeconfig)


def parsed(files: dict[str, bytes], name: str) -> Any:
    """The content of a file of JSON."""
    return json.loads(files[name])


async def test_no_secret_is_in_the_bundle(tmp_path: Path) -> None:
    """No byte of the unpacked archive is of a secret, in whichever form; all kinds of files are there."""
    cluster = PlantedCluster()
    files, missing, _ = await collected(cluster, tmp_path)
    assert set(files) == FILES
    assert set(missing) == UNREADABLE
    with tarfile.open(fileobj=io.BytesIO(archive(files, folder="x"))) as tar:
        for member in tar.getmembers():
            stream = tar.extractfile(member)
            assert stream is not None
            content = member.name.encode() + stream.read() + repr(member.pax_headers).encode()
            for form in forms():
                at = content.lower().find(form.lower())
                assert at < 0, (member.name, content[max(0, at - 300) : at + 100])


async def test_secrets_are_not_read(tmp_path: Path) -> None:
    """Everything is a GET but reviews and the dry run of the doctor; no Secret, and no log of others, is requested."""
    cluster = PlantedCluster()
    await collected(cluster, tmp_path)
    paths = {path for _, path, _ in cluster.requests}
    assert [path for path in paths if "secrets" in path or NEEDLE in path] == []
    configmaps = [f"/api/v1/namespaces/lb/configmaps/{name}" for name in ("edge", "odd")]
    assert sorted(path for path in paths if "configmaps" in path) == configmaps
    containers = {query["container"] for _, path, query in cluster.requests if path.endswith("/log")}
    assert containers == {"kavip", "agent", "keepalived"}
    writes = [(method, path, query) for method, path, query in cluster.requests if method != "GET"]
    assert all(query == {"dryRun": "All"} or path.endswith("accessreviews") for _, path, query in writes)


async def test_what_helps_is_in_the_bundle(tmp_path: Path) -> None:
    """The listed fields of the objects that concern kavip, with texts from which only secrets are removed."""
    files, _, steps = await collected(PlantedCluster(), tmp_path)
    (service,) = parsed(files, "objects/services.json")
    assert service["metadata"]["annotations"] == {"kavip.io/pool": "edge"}
    assert service["metadata"]["labels"] == {"tier": "front"}
    (node,) = parsed(files, "objects/nodes.json")
    assert (node["metadata"]["labels"], node["status"]["nodeInfo"]) == (
        {"role": "infra"},
        {"kubeletVersion": "v1.35.4"},
    )
    group, odd = parsed(files, "objects/keepalivedgroups.json")
    assert (odd["metadata"]["name"], "spec" in odd) == ("odd", False)
    assert group["spec"]["verbatimConfig"] == {"notify": "(removed)"}
    assert group["spec"]["checks"] == [{"name": "web", "url": "https://(removed)@host.example/?(removed)"}]
    assert parsed(files, "objects/endpoints.json") == {"shop/web": {"n1": {"ready": 1}}}
    events = [each["metadata"]["name"] for each in parsed(files, "objects/events.json")]
    assert events == ["e2", "e5", "e6", "e1"]
    assert [each["metadata"]["name"] for each in parsed(files, "objects/pods.json")] == [
        "kavip-controller-1",
        "edge-n1",
    ]
    assert parsed(files, "objects/leases.json")[0]["spec"]["holderIdentity"] == "kavip-controller-1"
    assert parsed(files, "agents/lb/edge-n1/state.json")["instances"][0]["state"] == "MASTER"
    text = files["groups/lb/edge/keepalived.conf"].decode()
    assert "    interface eth0\n" in text
    assert "        auth_pass (removed)\n" in text
    log = files["logs/lb/edge-n1/keepalived.log"].decode()
    assert log.startswith("2026-06-01T12:00:00Z the first line of keepalived\n")
    assert log.endswith("\\x1b[2Jlast line\n")
    assert files["metrics/kavip/kavip-controller-1/metrics.txt"] == b"# HELP kavip_leader x\nkavip_leader 1.0\n"
    index = parsed(files, "index.json")
    assert (index["kubernetes"], {each["name"] for each in index["files"]}) == ("v1.35.4", FILES - {"index.json"})
    assert "checks" in parsed(files, "doctor.json")
    assert steps[0] == "objects of kavip"


async def test_the_same_cluster_makes_the_same_bundle(tmp_path: Path) -> None:
    """Nothing but the time of the run differs, whichever answer comes first."""
    cluster = PlantedCluster()
    first, _, _ = await collected(cluster, tmp_path)
    for some in cluster.objects.values():
        some.reverse()
    second, _, _ = await collected(cluster, tmp_path)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name] and name != "index.json"] == []


async def test_what_cannot_be_read_is_missing(tmp_path: Path) -> None:
    """An error costs what it concerns; of kinds that may not be listed everywhere one namespace is read."""
    cluster = PlantedCluster()
    for path in ("/api/v1/nodes", "/api/v1/services", "/apis/kavip.io/v1alpha1/vippools"):
        cluster.answers[path] = lambda: refusal(403, "Forbidden")
    cluster.answers["/apis/events.k8s.io/v1/events"] = lambda: refusal(500, "InternalError")
    cluster.answers["/api/v1/namespaces/lb/pods/edge-n1:9651/proxy/state"] = lambda: web.Response(text="[")
    cluster.answers["/api/v1/namespaces/lb/pods/edge-n1/log"] = lambda: refusal(400, "BadRequest")
    files, missing, _ = await collected(cluster, tmp_path, namespace="shop")
    assert set(missing) == {
        *("list nodes", "list services", "list vippools", "list events", *UNREADABLE),
        "state of the agent in pod lb/edge-n1",
        "log of container agent of pod lb/edge-n1",
        "previous log of container agent of pod lb/edge-n1",
        "log of container keepalived of pod lb/edge-n1",
    }
    assert missing["list events"] == "500 InternalError: because"
    assert [each["metadata"]["name"] for each in parsed(files, "objects/services.json")] == ["web"]
    assert parsed(files, "objects/nodes.json") == []
    assert {each["what"] for each in parsed(files, "index.json")["missing"]} == set(missing)


async def test_without_an_answer_there_is_no_bundle(tmp_path: Path) -> None:
    """If the API server does not say its version, the error is the answer."""
    cluster = PlantedCluster(answers={"/version": lambda: refusal(503, "ServiceUnavailable")})
    with pytest.raises(Unavailable):
        await collected(cluster, tmp_path)


async def test_the_time_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time the bundle has what was read until then, and the steps that are not made are named."""
    late = False
    monkeypatch.setattr(bundle, "monotonic", lambda: monotonic() + 1000 * late)

    def report(step: str) -> None:
        nonlocal late
        late = step == "agents" or late

    async with kubeconfig_of(PlantedCluster(), tmp_path) as kubeconfig:
        files, missing = await read_bundle(kubeconfig, context="", request=Request(timeout=900), report=report)
    assert {each.what for each in missing if each.why == "not read, or not wholly, in its part of 900 s"} == {
        *("agents", "metrics", "doctor", "logs of groups")
    }
    assert "objects/services.json" in files
    assert "agents/lb/edge-n1/state.json" not in files


async def test_answers_of_agents_take_no_room_from_the_logs_of_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of nodes with thousands of VIPs, or a few that lie, would fill the bundle."""
    files, _, _ = await collected(PlantedCluster(), tmp_path)
    size = sum(len(content) for name, content in files.items() if not name.startswith(("logs/", "index")))
    monkeypatch.setattr("kavip.cli.views.bundle.contents.MOST_BYTES", size)
    full, missing, _ = await collected(PlantedCluster(), tmp_path)
    assert {name for name in FILES if name.startswith("logs/kavip/")} <= full.keys()
    assert "the bundle would be too large" in missing.values()


async def test_long_logs_keep_their_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the wanted lines are too large, fewer are read, and the index says so; options have kubectl's meaning."""
    monkeypatch.setattr(bundle, "_LARGEST_LOG", len(HIDDEN) + 4096)
    cluster = PlantedCluster()
    del cluster.objects["pods"][2:]
    handle = cluster.handle

    async def long(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/log"):
            return await handle(request)
        await handle(request)
        lines = int(request.query.get("tailLines", 1_000))
        return web.Response(text="".join(f"{number:99}\n" for number in range(1_000 - lines, 1_000)))

    fake = FakeApi()
    fake.fault = long
    async with serving(fake, tmp_path) as kubeconfig:
        request = Request(tail=256, since=60)
        files, missing = await read_bundle(str(kubeconfig), context="", request=request, report=lambda _: None)
    name = "log of container kavip of pod kavip/kavip-controller-1"
    cut = {each.what: each.why for each in missing}
    queries = [query for _, path, query in cluster.requests if path.endswith("/log") and query["previous"] == "false"]
    assert {query["sinceSeconds"] for query in queries} == {"60"}
    tails = [int(query["tailLines"]) for query in queries]
    assert tails[0] == 256 and tails == sorted(tails, reverse=True) and len(tails) > 1
    assert cut[name] == f"only its last {tails[-1]} lines are in the bundle: more are too large"
    lines = files["logs/kavip/kavip-controller-1/kavip.log"].splitlines()
    assert (len(lines), int(lines[-1])) == (tails[-1], 999)
