"""The caches of each component: what it watches, and where, with and without ``group_namespaces``."""

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kavip import names, telemetry
from kavip.admission import policy
from kavip.api.cluster import Namespace, Pod
from kavip.api.meta import Metadata
from kavip.api.review import Operation, Review
from kavip.api.workload import ConfigMap
from kavip.caches import Caches
from kavip.errors import Forbidden
from kavip.kube.client import Client
from kavip.kube.codec import WatchEvent
from kavip.kube.resources import ALL, CONFIGMAPS, NAMESPACES, PODS, Component, Resource, Scope
from kavip.reconcile.plan import Key, KeyKind
from tests.kube.conftest import running
from tests.reconcile.simulatedcluster import SimulatedCluster, cluster
from tests.support import build

VIP = "192.0.2.130"


def owned(kind: type[Any], key: str) -> Any:
    """An object that the group *key* owns."""
    namespace, _, name = key.partition("/")
    labels = {names.GROUP_LABEL: name}
    return kind(metadata=Metadata(name=name, namespace=namespace, labels=labels, resource_version="1", uid=key))


class FakeApi:
    """Lists namespaces, and ConfigMaps and pods of groups; its watches are silent."""

    def __init__(self, *keys: str, namespaces: Collection[str] = ("a", "b", "c")) -> None:
        """Groups with these *keys* own objects."""
        self.namespaces = {*namespaces}
        self.objects = {
            CONFIGMAPS.plural: [owned(ConfigMap, key) for key in keys],
            PODS.plural: [owned(Pod, key) for key in keys],
        }
        self.forbidden = set[str]()
        self.asked = set[tuple[str, str]]()

    async def list(self, resource: Resource[Any], *, namespace: str, **_: Any) -> tuple[Sequence[Any], str]:
        """The objects in *namespace*, or all; :class:`Forbidden` for what groups own in a forbidden one."""
        self.asked.add((resource.plural, namespace))
        if namespace in self.forbidden:
            raise Forbidden(403, "Forbidden", f"not in {namespace}")
        if resource is NAMESPACES:
            return [Namespace(metadata=Metadata(name=each, resource_version="1")) for each in self.namespaces], "1"
        found = self.objects.get(resource.plural, [])
        return [each for each in found if namespace in ("", each.metadata.namespace)], "1"

    @asynccontextmanager
    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[AsyncIterator[WatchEvent[Any]]]:
        """No event."""

        async def events() -> AsyncIterator[WatchEvent[Any]]:
            await asyncio.Event().wait()
            yield cast(WatchEvent[Any], None)

        yield events()


@asynccontextmanager
async def filling(api: FakeApi, *group_namespaces: str, is_owned: bool = True) -> AsyncIterator[Caches]:
    """The caches of a replica that fill."""
    caches = Caches(cast(Client, api), owned=is_owned, group_namespaces=group_namespaces)
    caches.open()
    async with running(*(caches.fill(informer) for informer in caches.informers)):
        yield caches


@pytest.mark.parametrize("given", [(), ("a", "b")])
@pytest.mark.parametrize("component", Component)
@pytest.mark.looptime
async def test_each_component_watches_what_the_table_of_resources_has(
    component: Component, given: tuple[str, ...]
) -> None:
    """The kinds and their scopes are those of the table, so the rights that it lists are enough."""
    api = FakeApi()
    async with filling(api, *given, is_owned=component is Component.CONTROLLER) as caches:
        await asyncio.wait_for(caches.synced(), 30)
    where = {Scope.CLUSTER: ("",), Scope.GROUPS: given or ("",), Scope.RELEASE: ()}
    apart = {"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}  # watched with the certificates
    expected = {
        (resource.plural, namespace)
        for resource in ALL
        for use in resource.uses
        if use.component is component and "watch" in use.verbs and resource.plural not in apart
        for namespace in where[use.scope]
    }
    assert api.asked == expected
    assert component is Component.CONTROLLER or not {"configmaps", "pods", "secrets"} & {kind for kind, _ in api.asked}


@pytest.mark.looptime
async def test_objects_in_other_namespaces_are_not_read() -> None:
    """The stores of all namespaces form one cache; a group in another namespace is not in it."""
    api = FakeApi("a/edge", "b/edge", "b/other", "c/edge")
    async with filling(api, "a", "b") as caches:
        await asyncio.wait_for(caches.synced(), 30)
        assert sorted(caches.objects.configmaps) == ["a/edge", "b/edge", "b/other"]
        assert sorted(caches.objects.pods) == ["a/edge", "b/edge", "b/other"]
        api.objects[CONFIGMAPS.plural] = [owned(ConfigMap, "b/new")]
        await asyncio.wait_for(caches.refresh(), 30)
        assert sorted(caches.objects.configmaps) == ["b/new"]
        assert caches.update_environment().has_pod_monitors


@pytest.mark.looptime
async def test_a_forbidden_namespace_is_named() -> None:
    """Readiness names kind and namespace; the metric of a kind is 1 only if the caches of all namespaces are synced."""
    api = FakeApi("a/edge", "b/edge")
    api.forbidden = {"b"}
    async with filling(api, "a", "b") as caches:
        await asyncio.sleep(60)
        unready = [*caches.unready()]
        assert "cache of ConfigMap in namespace b is not filled: Forbidden" in unready
        assert not [line for line in unready if "namespace a" in line]
        assert not caches.update_environment().has_pod_monitors
        caches.update_metrics()
        assert _synced("ConfigMap") == 0
        assert _synced("Service") == 1
        api.forbidden.clear()
        await asyncio.wait_for(caches.synced(), 60)
        caches.update_metrics()
        assert _synced("ConfigMap") == 1


@pytest.mark.looptime
async def test_a_namespace_that_does_not_exist_stops_nothing() -> None:
    """Its Roles are gone with it, so it is forbidden; once it is back with its Roles, its objects are read."""
    api = FakeApi("a/edge", "b/edge", namespaces=("a",))
    api.forbidden = {"b"}
    async with filling(api, "a", "b") as caches:
        await asyncio.wait_for(caches.synced(), 60)
        assert sorted(caches.objects.configmaps) == ["a/edge"]
        assert caches.update_environment().has_pod_monitors
        api.forbidden.clear()
        async with asyncio.timeout(60):
            while "b/edge" not in caches.objects.configmaps:
                await asyncio.sleep(1)


def test_the_webhook_refuses_nothing_for_lack_of_published_configurations() -> None:
    """
    It does not know what nodes run, so it admits an address that an object in deletion still holds.

    The controller knows, and does not assign the address before it is free.
    """
    group, pool = build.group(), build.pool()
    dying = build.service("shop/old", group=group.key, type="ClusterIP", external_ips=[VIP])
    simulation = SimulatedCluster(cluster(group, pool, dying))
    simulation.settle(Key(KeyKind.GROUP, group.key))
    published = ConfigMap(metadata=owned(ConfigMap, group.key).metadata, data={names.CONFIG_KEY: simulation.text()})
    asked = build.service("shop/new", group=group.key, wants=VIP)
    verdicts = {}
    for component in Component:
        caches = Caches(cast(Client, None), owned=component is Component.CONTROLLER)
        for each in (group, pool, build.in_deletion(dying)):
            caches._update(None, each)
        if component is Component.CONTROLLER:
            caches._update_owned(None, published)
        verdicts[component] = policy.review(Review(Operation.CREATE, asked), caches.snapshot).allowed
    assert verdicts == {Component.WEBHOOK: True, Component.CONTROLLER: False}


def _synced(kind: str) -> float:
    return float(telemetry.INFORMER_SYNCED.labels(kind)._value.get())
