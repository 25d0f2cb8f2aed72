"""
Cases of other projects' test suites, played with kavip: pools and Services in turn, and what is otherwise than there.

How the files are read stands in ``cases/README.md``.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kavip import names
from kavip.api.address import parse_address
from kavip.api.meta import LabelSelector, Requirement
from kavip.api.pool import PoolSpec, VIPPool
from kavip.api.refusal import Refusal
from kavip.api.service import Ingress, LoadBalancer, Protocol, Service, ServicePort, ServiceStatus
from kavip.ipam.allocate import Allocation
from kavip.ipam.pool import parse_pool
from kavip.ipam.pools import Pools
from kavip.ipam.ranges import FAMILY_NAMES
from kavip.names import Reason
from tests.ipam.world import World
from tests.support.build import metadata, service

Json = Mapping[str, Any]

PLACE: Final = Path(__file__).parent / "cases"
BOOKS: Final = tuple(json.loads(path.read_text()) for path in sorted(PLACE.glob("*.json")))
FIXTURES: Final = {name: pools for book in BOOKS for name, pools in book.get("fixtures", {}).items()}
PINNED: Final = ("namespaces", "namespaceSelectors", "serviceSelectors")


def cases(*kinds: str) -> list[Json]:
    """The cases of *kinds* of all books; of no kind: all."""
    return [case for book in BOOKS for case in book["cases"] if case["kind"] in kinds or not kinds]


def otherwise(case: Json) -> list[str]:
    """What of *case* kavip decides otherwise; nothing: it decides as expected."""
    if case["kind"] in ("config", "admission"):
        return _pools_otherwise(case)
    play = Play(case)
    return [difference for step in case["steps"] if (difference := play.step(step))]


def _pools_otherwise(case: Json) -> list[str]:
    stored: dict[str, VIPPool] = {}
    steps = case.get("steps") or [{"pool": each} for each in case["pools"]]
    results = []
    for step in steps:
        new = as_pool(step["pool"])
        results.append(not Pools.of(stored.values()).check(*parse_pool(new)))
        stored[new.name] = new
    if "steps" in case:
        wanted = [step["expect"]["allowed"] for step in steps]
        return [f"{results}, not {wanted}"] if results != wanted else []
    return [f"{results}"] if all(results) != case["expect"]["valid"] else []


class Play:
    """One case, played on a :class:`World`; each step returns what was otherwise, or ""."""

    def __init__(self, case: Json) -> None:
        self.pools = case.get("pools") or FIXTURES.get(case.get("fixture", ""), ())
        self.world = World(map(as_pool, self.pools), labels(case.get("namespaces", ())))
        self.created: dict[str, str] = {}

    def step(self, step: Json) -> str:
        """Play *step* and compare."""
        play: Callable[[Json], str] = getattr(self, f"do_{step['op']}")
        return play(step)

    def do_assign(self, step: Json) -> str:
        """Ask for addresses by name."""
        families = [FAMILY_NAMES[parse_address(text).family] for text in step["ips"]]
        return self.ask(step, families, "PreferDualStack", wants=", ".join(step["ips"]))

    def do_allocate(self, step: Json) -> str:
        """Ask for any address, perhaps of a pool."""
        families = {"ipv4": ["IPv4"], "ipv6": ["IPv6"], "dual": ["IPv4", "IPv6"]}[step["family"]]
        return self.ask(step, families, step["policy"], pool=step.get("pool", ""))

    def ask(self, step: Json, families: list[str], policy: str, **more: Any) -> str:
        """Apply the Service of an allocator step and compare."""
        more_spec: dict[str, Any] = {"ports": ports(step.get("ports", ()))}
        if "backend_key" in step:
            more_spec |= {"external_traffic_policy": "Local", "selector": {"backend": step["backend_key"]}}
        key = f"{step.get('namespace', 'default')}/{step['svc']}"
        self.world.apply(
            service(
                key,
                families=families,
                ip_family_policy=policy if len(families) > 1 else "SingleStack",
                labels=step.get("labels"),
                annotations=sharing(step),
                created=self.age(key),
                **more,
                **more_spec,
            )
        )
        self.world.run()
        found = self.compare(key, step["expect"])
        if isinstance(self.world.outcomes[key], Refusal):  # after a failed call no Service waits
            self.world.delete(key)
            self.world.run()
        return found

    def do_check(self, step: Json) -> str:
        """Compare what a Service has."""
        return self.compare(self.key(step["svc"]), step["expect"])

    def do_release(self, step: Json) -> str:
        """Delete a Service."""
        self.world.delete(self.key(step["svc"]))
        self.world.run()
        return ""

    def do_set_pools(self, step: Json) -> str:
        """Replace the pools."""
        self.world.set_pools(map(as_pool, step["pools"]))
        self.world.run()
        return ""

    def do_no_config(self, step: Json) -> str:
        """There is no pool yet."""
        return self.do_set_pools({"pools": []})

    def do_reconcile(self, step: Json) -> str:
        """Show a Service with the status that it is said to have."""
        key = f"{step['service'].get('namespace', 'default')}/{step['key']}"
        given = as_service(key, step["service"], self.age(key))
        self.world._store(given)
        self.world.run()
        if not given.is_load_balancer:
            return ""  # not kavip's any more: the controller takes the status away
        return self.compare(key, step["expect"])

    def do_delete(self, step: Json) -> str:
        """Delete a Service."""
        return self.do_release({"svc": step["key"]})

    def do_apply_service(self, step: Json) -> str:
        """Create or update a Service."""
        self.world.apply(as_service(step["key"], step["service"], self.age(step["key"])))
        self.world.run()
        return ""

    def do_delete_service(self, step: Json) -> str:
        """Delete a Service by its key."""
        self.world.delete(step["key"])
        self.world.run()
        return ""

    def do_set_namespaces(self, step: Json) -> str:
        """Replace the labels of namespaces."""
        self.world.namespaces = labels(step["namespaces"])
        return ""

    def do_expect(self, step: Json) -> str:
        """Compare what a Service has."""
        return self.compare(step["key"], step)

    def do_expect_pool(self, step: Json) -> str:
        """Compare the counts of a pool."""
        usage = self.world.ledger.usage(step["pool"])
        got = {
            f"{what}_v{family}": getattr(usage[family], what) for family in (4, 6) for what in ("available", "assigned")
        }
        return "" if all(step[name] == value for name, value in got.items()) else f"{step}: {got}"

    def compare(self, key: str, expect: Json) -> str:
        """What of *expect* is otherwise."""
        got, outcome = self.world.held(key), self.world.outcomes[key]
        is_clean = outcome.reason is Reason.ASSIGNED
        pool = next(iter(outcome.pools), "") if isinstance(outcome, Allocation) else ""
        checks: dict[str, Callable[[Any], bool]] = {
            "ips": lambda wanted: sorted(got) == sorted(wanted),
            "in_order": lambda wanted: got == wanted,
            "ips_in": lambda wanted: set(got) <= set(wanted),
            "count": lambda wanted: len(got) == wanted,
            "pool": lambda wanted: pool == wanted if wanted else not got,
            "allocated_from": lambda wanted: pool == wanted,
            "error": lambda wanted: is_clean is not wanted,
            "warning": lambda wanted: is_clean is not wanted,
            "unchanged": lambda wanted: not got,
        }
        failed = [name for name, check in checks.items() if name in expect and not check(expect[name])]
        return f"{key}: {failed} of {expect}, got {got}, {outcome}" if failed else ""

    def age(self, key: str) -> str:
        """Services are as old as they were first seen."""
        return self.created.setdefault(key, f"2026-01-01T00:00:{len(self.created):02}Z")

    def key(self, name: str) -> str:
        """The key of the Service that was called *name*."""
        return next(key for key in self.world.services if key.endswith(f"/{name}"))


def as_pool(given: Json) -> VIPPool:
    """The VIPPool of a case."""
    rules = given.get("serviceAllocation", {})
    is_pinned = any(rules.get(name) for name in PINNED)
    spaces = [Requirement(key="kubernetes.io/metadata.name", operator="In", values=rules.get("namespaces"))]
    match_labels = next(iter(rules.get("namespaceSelectors", ())), None)
    namespaces = LabelSelector(match_labels=match_labels, match_expressions=spaces if rules.get("namespaces") else None)
    services = next(iter(rules.get("serviceSelectors", ())), None)
    return VIPPool(
        metadata=metadata(given["name"]),
        spec=PoolSpec(
            addresses=given["addresses"],
            auto_assign=given.get("autoAssign", True),
            avoid_buggy_ips=given.get("avoidBuggyIPs", False),
            priority=(rules.get("priority") or 1000) + (0 if is_pinned else 10_000),
            namespace_selector=namespaces,
            service_selector=LabelSelector(match_labels=services) if services else None,
        ),
    )


def as_service(key: str, given: Json, created: str) -> Service:
    """The Service of a case."""
    families = [FAMILY_NAMES[parse_address(text).family] for text in given["clusterIPs"]]
    built = service(
        key,
        type=given["type"],
        created=created,
        families=families,
        ip_family_policy=given.get("ipFamilyPolicy", "SingleStack" if len(families) == 1 else "PreferDualStack"),
        pool=given.get("requested_pool", ""),
        wants=given.get("requested_ips", ""),
        labels=given.get("labels"),
        annotations=sharing(given),
        load_balancer_ip=given.get("loadBalancerIP", ""),
        external_traffic_policy=given.get("externalTrafficPolicy", ""),
        selector=given.get("selector"),
        ports=ports(given.get("ports", ["TCP/80"])),
    )
    entries = given.get("status_ingress", [{"ip": text} for text in given.get("status_ips", ())])
    status = ServiceStatus(load_balancer=LoadBalancer(ingress=[Ingress(**entry) for entry in entries] or None))
    return msgspec.structs.replace(built, status=status)


def ports(texts: list[str]) -> list[ServicePort]:
    """Ports such as ``TCP/80``."""
    return [ServicePort(protocol=Protocol(text.partition("/")[0]), port=int(text.partition("/")[2])) for text in texts]


def sharing(given: Json) -> dict[str, str] | None:
    """The annotation of a sharing key."""
    return {names.SHARING_KEY_ANNOTATION: given["sharing_key"]} if given.get("sharing_key") else None


def labels(namespaces: list[Json]) -> dict[str, dict[str, str]]:
    """Namespaces by name."""
    return {each["name"]: dict(each.get("labels", {})) for each in namespaces}
