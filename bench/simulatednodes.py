"""
Nodes without kubelets for :mod:`.large`: their objects on the API server, and their agents in this one process.

``python -m bench.simulatednodes KUBECONFIG GROUP COUNT`` creates the nodes, waits for the DaemonSet of GROUP, creates
its pods and runs their agents until it is ended. Each node has an address on loopback, where its agent answers with the
server of real agents. It reports what keepalived would run: all instances of the text, and a share of them as master.

As with kubelet, a node reads the ConfigMap again when its pod has changed, and otherwise once a minute. It prepares
each change that all nodes make at one instant, and makes it then.
"""

import asyncio
import sys
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.bare import Bare, connected
from bench.site import MERGE
from kavip import names
from kavip.agent.http.server import JSON, AgentServer, PageContent, PageRequest
from kavip.agent.report.state import encode
from kavip.api.agent import VIPS_BY_HASH, AgentState, Capability, InstanceReport, KeepalivedReport, by_hash
from kavip.api.instant import instant_text
from kavip.api.workload import ConfigMap
from kavip.memo import Memory
from kavip.reconcile.observed.agentstates import BACKUP, MASTER
from kavip.reconcile.rollout.configmap import NodeSettings, Revision, read_published
from kavip.vrrp.running import running_instances

PATIENCE: Final = 120.0
REFRESH: Final = 60.0  # seconds after which kubelet reads a ConfigMap again
_NOT_READY: Final = {"spec": {"taints": None}}  # the API server taints a new node until a controller finds it ready


def node_name(number: int) -> str:
    """The name of a node."""
    return f"n{number:03}"


def host(number: int) -> str:
    """Its address."""
    return f"127.0.{2 + number // 250}.{1 + number % 250}"


# --- objects ----------------------------------------------------------------------------------------------------------
async def create_nodes(bare: Bare, count: int) -> None:
    """Create *count* ready nodes."""
    ready = [{"type": "Ready", "status": "True"}]
    for number in range(count):
        address = [{"type": "InternalIP", "address": host(number)}]
        status = {"addresses": address, "conditions": ready}
        await bare.send("POST", "/api/v1/nodes", {"metadata": {"name": node_name(number)}, "status": status})
        await bare.send("PATCH", f"/api/v1/nodes/{node_name(number)}", _NOT_READY, MERGE)


async def create_pods(bare: Bare, daemonset: Any, count: int) -> None:
    """Create the pods of *daemonset*, one on each node, as ready as those of a kubelet."""
    meta, template = daemonset["metadata"], daemonset["spec"]["template"]
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": meta["name"], "uid": meta["uid"], "controller": True}
    pods = f"/api/v1/namespaces/{meta['namespace']}/pods"
    for number in range(count):
        node = node_name(number)
        name = f"{meta['name']}-{node}"
        metadata = {**template["metadata"], "name": name, "ownerReferences": [owner]}
        await bare.send("POST", pods, {"metadata": metadata, "spec": {**template["spec"], "nodeName": node}})
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "hostIP": host(number), "phase": "Running"}
        await bare.send("PATCH", f"{pods}/{name}/status", {"status": ready}, MERGE)


# --- agents -----------------------------------------------------------------------------------------------------------
class Version:
    """What a ConfigMap publishes: what the agents report once their nodes have it."""

    def __init__(self, group: str, configmap: Any, memory: Memory) -> None:
        published = read_published(msgspec.convert(configmap, ConfigMap), NodeSettings())
        assert published
        self._published, self._memory = published, memory
        current = self._state(group, published.current)
        if published.next:
            instant = instant_text(published.switch_at)
            current = msgspec.structs.replace(current, prepared=published.next.digest, switch_at=instant)
        self._before = current, by_hash(current)
        following = self._state(group, published.next) if published.next else current
        self._after = following, by_hash(following)

    def _state(self, group: str, revision: Revision) -> AgentState:
        """The state of a backup that runs *revision*."""
        return AgentState(
            group=group,
            config_hash=revision.hash,
            wanted_hash=revision.hash,
            keepalived=KeepalivedReport(running=True),
            capabilities=(Capability.COMPACT_TEXT, Capability.PACKED_TEXT),
            instances=tuple(
                InstanceReport(
                    name=name,
                    router_id=each.identity.router_id,
                    state=BACKUP,
                    virtual_ips=tuple(str(vip.address) for vip in each.virtual_ips),
                    anchor=str(each.identity.anchor.address),
                )
                for name, each in sorted(running_instances(revision.text, self._memory).items())
            ),
        )

    def body(self, masters: Iterable[int], *, short: bool) -> bytes:
        """The answer of a node that is master of the instances with these indexes; *short*: long lists by hash."""
        instant = self._published.switch_at
        full, brief = self._after if instant and datetime.now(UTC) >= instant else self._before
        state = brief if short else full
        instances = list(state.instances)
        for index in masters:
            if index < len(instances):
                instances[index] = msgspec.structs.replace(instances[index], state=MASTER)
        return encode(msgspec.structs.replace(state, instances=tuple(instances)))

    @property
    def instances(self) -> int:
        """How many instances the text has."""
        return len(self._published.current.running)


class Agents:
    """The agents of *count* nodes. A node reports the version of the text that it has read last."""

    def __init__(self, group: str, count: int) -> None:
        self._group, self._count, self._memory = group, count, Memory()
        self._newest: Version | None = None
        self._read: dict[int, Version] = {}

    def publish(self, configmap: Any) -> None:
        """Take the new text in *configmap*; nodes that have none read it at once."""
        self._newest = Version(self._group, configmap, self._memory)
        for number in range(self._count):
            self._read.setdefault(number, self._newest)

    def read(self, number: int) -> None:
        """Let the node with this number read the newest text."""
        if self._newest is not None:
            self._read[number] = self._newest

    async def page(self, number: int, request: PageRequest) -> PageContent:
        """``/state`` of the node with this number."""
        version = self._read[number]
        masters = range(number, version.instances, self._count)
        return PageContent(version.body(masters, short=VIPS_BY_HASH in request.preferences), JSON)

    async def refresh(self) -> None:
        """Let each node read the newest text once a minute, one after the other."""
        while True:
            for number in range(self._count):
                await asyncio.sleep(REFRESH / self._count)
                self.read(number)


async def serve(bare: Bare, group: str, count: int) -> None:
    """Create everything, and run the agents."""
    namespace, _, name = group.partition("/")
    await create_nodes(bare, count)
    configmaps, pods = (f"/api/v1/namespaces/{namespace}/{each}" for each in ("configmaps", "pods"))
    daemonset = await _first(bare, f"/apis/apps/v1/namespaces/{namespace}/daemonsets", name)
    configmap = await _first(bare, configmaps, name)
    agents = Agents(group, count)
    agents.publish(configmap)
    numbers = {f"{name}-{node_name(number)}": number for number in range(count)}
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        for number in range(count):
            server = AgentServer({names.STATE_PATH: partial(agents.page, number)}, seconds=PATIENCE)
            await stack.enter_async_context(server.listening(host(number), _port(daemonset)))
        await create_pods(bare, daemonset, count)
        tasks.create_task(agents.refresh())
        tasks.create_task(_publish(bare, configmaps, configmap, agents))
        async for event in bare.events(pods, configmap["metadata"]["resourceVersion"]):
            if event["object"]["metadata"]["name"] in numbers:
                agents.read(numbers[event["object"]["metadata"]["name"]])


async def _publish(bare: Bare, path: str, configmap: Any, agents: Agents) -> None:
    async for event in bare.events(path, configmap["metadata"]["resourceVersion"]):
        if event["object"]["metadata"]["name"] == configmap["metadata"]["name"]:
            agents.publish(event["object"])


def _port(daemonset: Any) -> int:
    """The port of the agents of *daemonset*."""
    containers: Iterable[Mapping[str, Any]] = daemonset["spec"]["template"]["spec"]["containers"]
    return int(next(port["hostPort"] for each in containers for port in each.get("ports", ())))


async def _first(bare: Bare, path: str, name: str) -> Any:
    """The object *name* of the list at *path*, as soon as it exists."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await bare.send("GET", path)
            for each in found["items"]:
                if each["metadata"]["name"] == name:
                    return each
            await asyncio.sleep(0.2)


async def main(kubeconfig: str, group: str, count: str) -> None:
    """Run until the process is ended."""
    async with connected(Path(kubeconfig)) as bare:
        await serve(bare, group, int(count))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
