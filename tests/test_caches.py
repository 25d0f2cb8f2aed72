"""The caches of a replica: cool-downs, the selector for EndpointSlices, and which content is kept."""

import asyncio
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from kavip import names
from kavip.api.group import ConfigTemplateRef
from kavip.api.meta import Identity
from kavip.api.service import Service
from kavip.api.workload import ConfigMap, ConfigMapIdentity, without_content
from kavip.caches import Caches, selector
from kavip.ipam.ledger.ledger import Ledger
from kavip.ipam.pools import Pools
from kavip.kube import resources
from kavip.kube.client import Client
from kavip.kube.codec import Changed, decode
from kavip.kube.resources import Resource
from kavip.podtemplate.permissions import NOTHING_PERMITTED, TemplatePermissions
from kavip.reconcile.plan import Key, KeyKind
from tests.reconcile.simulatedcluster import GROUP, NOW
from tests.support import build

EDGE = build.pool("edge", "192.0.2.128/30", cooldown_seconds=60)
WEB = build.service("shop/web", group=GROUP, holds=["192.0.2.128"])
API = build.service("shop/api", group=GROUP, holds=["192.0.2.129"])


class Clock:
    """A wall clock that a test sets."""

    def __init__(self) -> None:
        """It starts at :data:`NOW`."""
        self.now = NOW

    def __call__(self) -> datetime:
        """The time."""
        return self.now


def cooling(caches: Caches) -> list[str]:
    """The addresses that cool down in the pool."""
    return [str(each.address) for each in caches.snapshot.ledger.cooldown.of("edge")]


def test_a_freed_address_cools_down_before_a_key_is_enqueued() -> None:
    """So the next decision finds it reserved; the pool is enqueued for its status."""
    clock, woken = Clock(), list[tuple[Key, list[str]]]()
    caches = Caches(cast(Client, None), owned=False, now=clock)
    for each in (EDGE, WEB, API):
        caches._update(None, each)
    caches.lead(lambda key: woken.append((key, cooling(caches))))
    caches._update(WEB, None)
    assert (Key(KeyKind.POOL, "edge"), ["192.0.2.128"]) in woken
    assert all(seen == ["192.0.2.128"] for _, seen in woken)
    clock.now += timedelta(seconds=1)
    caches._update(API, None)
    assert [each.until for each in caches.snapshot.ledger.cooldown.of("edge")] == [
        NOW + timedelta(seconds=s) for s in (60, 61)
    ]


def test_only_the_leader_starts_cool_downs() -> None:
    """Not before its term and not after; what is freed meanwhile cools down from the start of the next term."""
    clock = Clock()
    caches = Caches(cast(Client, None), owned=False, now=clock)
    for each in (EDGE, WEB, API):
        caches._update(None, each)
    caches._update(WEB, None)
    assert cooling(caches) == []
    caches.lead(lambda _: None)
    assert cooling(caches) == ["192.0.2.128"]
    caches.follow()
    caches._update(API, None)
    assert cooling(caches) == []


def test_a_replica_that_does_not_lead_keeps_no_changes() -> None:
    """It requeues nothing; kept, the changes of two Services that move over many external IPs would fill its memory."""
    caches = Caches(cast(Client, None), owned=False)
    before: dict[str, Service] = {}
    for number in range(10):
        for name in ("shop/a", "shop/b"):
            moved = build.service(name, group=GROUP, type="ClusterIP", external_ips=[f"198.51.100.{number}"])
            caches._update(before.get(name), moved)
            before[name] = moved
    ledger = caches.snapshot.ledger
    assert ledger.disputing() == {"shop/a", "shop/b"}
    assert not ledger.drain_disputes() and not ledger.drain_requeues() and not ledger.drain_undone()


def test_slices_are_selected_by_name() -> None:
    """The API server's slice always; if a URL cannot hold the names, the slices of all Services."""
    assert selector(()) == "kubernetes.io/service-name in (kubernetes)"
    assert selector({"b/web", "a/web", "a/api"}) == "kubernetes.io/service-name in (api,kubernetes,web)"
    assert selector(f"a/s{n}" for n in range(1000)) == "kubernetes.io/service-name"


def test_the_selector_follows_the_services() -> None:
    """A Service that needs its slices changes the selector, as long as it exists."""
    caches = Caches(cast(Client, None), owned=True)
    local = build.service(
        *("shop/web",), group=GROUP, type="NodePort", external_ips=["192.0.2.1"], external_traffic_policy="Local"
    )
    caches._update(None, local)
    assert caches._slices._selection["labels"] == "kubernetes.io/service-name in (kubernetes,web)"
    assert caches._slices.list_pending
    caches._update(local, None)
    assert caches._slices._selection["labels"] == "kubernetes.io/service-name in (kubernetes)"


def test_a_list_of_pools_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsing them after each would cost the square of their number while the caches fill."""
    configured: list[Pools] = []

    def configure(_: Ledger, pools: Pools) -> frozenset[str]:
        configured.append(pools)
        return frozenset()

    monkeypatch.setattr(Ledger, "configure", configure)
    caches = Caches(cast(Client, None), owned=False)
    informer: Any = next(each for each in caches.informers if each.resource is resources.POOLS)
    pools = [build.pool(f"p{number}", f"10.0.{number}.0/24") for number in range(50)]
    informer._replace(pools, [])
    assert (len(configured), len(configured[0].in_force)) == (1, 50)


def test_openshift_is_known_by_its_kind() -> None:
    """The kind Network is enough; the object need not exist."""
    caches = Caches(cast(Client, None), owned=False)
    assert not caches.is_openshift
    networks = next(each for each in caches.informers if each.resource is resources.NETWORKS)
    networks.is_available = True
    assert caches.is_openshift


def test_configmaps_with_templates_are_watched_where_they_are_permitted() -> None:
    """Nowhere by default; a change enqueues the groups that name the ConfigMap."""

    def watched(permissions: TemplatePermissions, *, owned: bool = True) -> list[str]:
        caches = Caches(cast(Client, None), owned=owned, templates=permissions)
        selections = [each._selection for each in caches.informers]
        return [each["namespace"] for each in selections if each["labels"] == names.CONFIG_TEMPLATE_LABEL]

    permitted = TemplatePermissions.of("lb,net", "")
    assert watched(NOTHING_PERMITTED) == watched(permitted, owned=False) == []
    assert watched(permitted) == ["lb", "net"]
    caches, woken = Caches(cast(Client, None), owned=True, templates=permitted), list[Key]()
    for name, reference in (("edge", "lines"), ("next", "lines"), ("other", "others"), ("plain", "")):
        template = ConfigTemplateRef(reference) if reference else None
        caches._update(None, build.group(f"lb/{name}", config_template_ref=template))
    caches._update(None, build.group("net/edge", config_template_ref=ConfigTemplateRef("lines")))
    version = ConfigMapIdentity(metadata=Identity(namespace="lb", name="lines", resource_version="1"))
    caches._update_template(None, version)
    caches.lead(woken.append)
    caches._update_template(version, version)
    caches._update_template(version, None)
    assert woken == [Key(KeyKind.GROUP, name) for name in ("lb/edge", "lb/next")] * 2
    assert caches.templates.versions == {}


def test_only_configmaps_of_groups_keep_their_content() -> None:
    """Any user may label others: of them a name stays. The list waits for that of the groups."""
    caches = Caches(cast(Client, None), owned=True)
    informer: Any = next(each for each in caches.informers if each.resource is resources.CONFIGMAPS)
    groups: Any = next(each for each in caches.informers if each.resource is resources.GROUPS)
    groups._replace([build.group("lb/edge")], [])

    def labelled(key: str, version: str) -> ConfigMap:
        labels = {names.GROUP_LABEL: "edge", "more": "x"}
        metadata = build.metadata(key, resource_version=version, labels=labels, annotations={"note": "long"})
        return ConfigMap(metadata=metadata, data={"more": "long"}, binary_data={"more": "AAAA"})

    informer._replace([labelled("lb/edge", "1"), labelled("lb/more", "1")], [])
    informer._handle(Changed(labelled("shop/edge", "2")))
    informer._handle(Changed(labelled("lb/more", "3")))
    assert caches.objects.configmaps["lb/edge"] == labelled("lb/edge", "1")
    for key, version in (("shop/edge", "2"), ("lb/more", "3")):
        kept = caches.objects.configmaps[key]
        assert kept == without_content(labelled(key, version))
        assert (kept.metadata.labels, kept.metadata.resource_version) == ({names.GROUP_LABEL: "edge"}, version)
        assert not kept.has_content
    assert caches.objects.configmaps["lb/edge"].has_content


def test_a_changed_label_concerns_both_groups() -> None:
    """Both are reconciled, and the text of the group that loses its ConfigMap is looked up again."""
    caches, woken = Caches(cast(Client, None), owned=True), list[Key]()
    for name in ("lb/edge", "lb/core"):
        caches._update(None, build.group(name))
    caches.lead(woken.append)

    def configmap(key: str, group: str) -> ConfigMap:
        metadata = build.metadata(key, labels={names.GROUP_LABEL: group})
        return ConfigMap(metadata=metadata, data={names.CONFIG_KEY: key})

    caches._update_owned(None, configmap("lb/edge", "edge"))
    caches._update_owned(None, configmap("lb/more", "edge"))
    woken.clear()
    caches._update_owned(configmap("lb/more", "edge"), configmap("lb/more", "core"))
    assert woken == [Key(KeyKind.GROUP, "lb/core"), Key(KeyKind.GROUP, "lb/edge")]
    caches._update_owned(configmap("lb/edge", "edge"), configmap("lb/edge", "core"))
    caches._update_owned(configmap("lb/edge", "core"), None)
    assert caches.snapshot._leaving.text("lb/edge") == ""


async def test_configmaps_are_listed_after_the_groups() -> None:
    """The groups decide whose content is kept."""
    caches, began = Caches(cast(Client, None), owned=True), list[str]()
    caches.open()
    fill: Any = caches.fill  # returns here

    def filled(resource: Resource[Any]) -> Any:
        informer: Any = next(each for each in caches.informers if each.resource is resource)

        async def run() -> None:
            began.append(resource.kind)

        informer.run = run
        return informer

    waiting = asyncio.create_task(fill(filled(resources.CONFIGMAPS)))
    groups = filled(resources.GROUPS)
    await fill(groups)
    await fill(filled(resources.PODS))
    assert began == [names.KEEPALIVED_GROUP, names.POD]
    groups.synced.set()
    await waiting
    assert began == [names.KEEPALIVED_GROUP, names.POD, names.CONFIG_MAP]


@pytest.mark.parametrize("is_listed", (True, False), ids=("listed", "watched"))
def test_services_share_the_texts_that_recur(is_listed: bool) -> None:
    """A cache of many Services has them once; what a Service says is the same."""
    services: Any = Caches(cast(Client, None), owned=False).services

    def stored(name: str) -> Service:
        conditions = [
            {"type": f"kavip.io/{kind}", "status": "True", "reason": "R", "message": text, "lastTransitionTime": "t"}
            for kind, text in (("AddressAssigned", name), ("Programmed", "every node runs it"))
        ]
        spec = {
            "type": "LoadBalancer",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80}],
            "clusterIP": "10.96.0.1",
            "clusterIPs": ["10.96.0.1"],
        }
        notes = {names.GROUP_ANNOTATION: "lb/edge", names.POOL_ANNOTATION: "p", "other": name}
        version = f"{len(services.store) + 1}"
        metadata = {"namespace": "shop", "name": name, "resourceVersion": version, "annotations": notes}
        status = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}, "conditions": conditions}
        raw = msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})
        found = decode(resources.SERVICES, raw)
        assert isinstance(found, Service)
        if is_listed:
            services._replace([services._reuse(found)], [])
        else:
            services._handle(Changed(found))
        assert services.store[f"shop/{name}"] == decode(resources.SERVICES, raw)
        kept: Service = services.store[f"shop/{name}"]
        return kept

    def shared(service: Service) -> list[object]:
        spec, notes = service.spec, service.metadata.annotations or {}
        found = service.status.conditions or []
        conditions = [
            text for each in found for text in (each.type, each.status, each.reason, each.last_transition_time)
        ]
        own = [service.metadata.namespace, notes[names.GROUP_ANNOTATION], notes[names.POOL_ANNOTATION]]
        modes = [each.ip_mode for each in service.status.load_balancer.ingress or ()]
        specified = [spec.type, spec.ip_family_policy, spec.ip_families, spec.ports]
        return [*own, *modes, *specified, *conditions, found[-1].message]

    web, api = stored("web"), stored("api")
    pairs = zip(shared(web), shared(api), strict=True)
    assert [one is other for one, other in pairs] == [True] * 17
    assert [web.spec.cluster_ip] == web.spec.cluster_ips
    assert web.spec.cluster_ip is (web.spec.cluster_ips or [""])[0]
