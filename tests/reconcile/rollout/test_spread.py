"""VIPs of Services with ``spreadvips`` move between Shared instances and instances of their own."""

from kavip import names
from kavip.vrrp.running import running_instances
from tests.reconcile.group.settledgroup import WEB, serving
from tests.reconcile.rollout.switchingnodes import OTHER, SHARED, UNICAST, VIP, Site, is_done
from tests.reconcile.simulatedcluster import GROUP

SPREAD = {names.SPREAD_ANNOTATION: "true"}
OWN = {f"{WEB}/{VIP}", f"{WEB}/{OTHER}"}


def instances(site: Site) -> dict[str, set[str]]:
    """The VIPs by instance, as the published text has them."""
    running = running_instances(site.published.current.text)
    return {name: {str(vip.address) for vip in each.virtual_ips} for name, each in running.items()}


def settle(site: Site) -> None:
    """Let the change be published, and the nodes switch to it."""
    site.pass_time(2.0)
    site.until(lambda: is_done(site))


def router_ids(site: Site) -> set[str]:
    """The keys that hold a VRID."""
    return set(site.simulation.snapshot.groups[GROUP].status.router_ids or {})


def test_a_service_gets_instances_of_its_own() -> None:
    """The VIP that runs moves at the instant of a switch; a new one starts at once. The same on the way back."""
    site = Site.of(**SHARED)
    (home,) = (name for name, vips in instances(site).items() if vips)
    site.simulation.snapshot.put(serving(WEB, VIP, OTHER, annotations=SPREAD))
    site.until(lambda: site.published.next)
    assert instances(site)[home] == {VIP}
    assert instances(site)[f"{WEB}/{OTHER}"] == {OTHER}
    settle(site)
    assert instances(site) == {f"{WEB}/{each}": {each} for each in (VIP, OTHER)}
    assert router_ids(site) == {"group/0", "group/1", *OWN}
    site.simulation.snapshot.put(serving(WEB, VIP, OTHER))
    settle(site)
    assert instances(site)[home] == {VIP, OTHER}
    assert router_ids(site) == {"group/0", "group/1"}


def test_the_mode_of_the_group_changes_nothing_for_it() -> None:
    """Its instances have the same names in both modes, so its VIPs do not move."""
    site = Site.of(**UNICAST)
    site.simulation.snapshot.put(serving(WEB, VIP, OTHER, annotations=SPREAD))
    settle(site)
    before = site.simulation.snapshot.groups[GROUP].status.router_ids
    assert set(before or {}) == OWN
    site.edit(**SHARED)
    settle(site)
    assert {name for name, vips in instances(site).items() if vips} == OWN
    after = site.simulation.snapshot.groups[GROUP].status.router_ids or {}
    assert (before or {}).items() <= after.items()


def test_a_vip_without_a_vrid_stays_in_the_shared_instance() -> None:
    """It is served, the Service says so, and it moves as soon as a VRID is free."""
    tight = {**SHARED, "blacklist_router_ids": list(range(4, 256))}
    site = Site.of(**tight)
    (home,) = (name for name, vips in instances(site).items() if vips)
    site.simulation.snapshot.put(serving(WEB, VIP, OTHER, annotations=SPREAD))
    settle(site)
    assert instances(site)[home] == {OTHER}
    assert instances(site)[f"{WEB}/{VIP}"] == {VIP}
    site.simulation.service(WEB)
    state = site.simulation.condition(WEB, names.ConditionType.SERVICE_PROGRAMMED)
    assert state == ("False", "RouterIDsExhausted")
    assert not site.simulation.group().also
    site.edit(**SHARED)
    settle(site)
    assert {name for name, vips in instances(site).items() if vips} == OWN


def test_with_policy_local_too() -> None:
    """Each address has an instance that follows the endpoints."""
    site = Site.of(**SHARED)
    site.simulation.snapshot.put(serving(WEB, VIP, OTHER, annotations=SPREAD, external_traffic_policy="Local"))
    settle(site)
    assert {name for name, vips in instances(site).items() if vips} == OWN
    assert site.published.current.text.count("track_file {") == 2


def test_three_hundred_services_keep_their_vips() -> None:
    """More Services with ``spreadvips`` than VRIDs, as a group may have that is older: none loses its VIP."""
    site = Site.of(**SHARED)
    for number in range(300):
        key = f"shop/s{number:03}"
        site.simulation.snapshot.put(serving(key, f"198.18.{number // 250}.{number % 250 + 1}", annotations=SPREAD))
    settle(site)
    carried = set().union(*instances(site).values())
    assert len(carried) == 301
    assert len(router_ids(site)) == 255
