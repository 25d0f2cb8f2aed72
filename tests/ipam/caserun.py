"""
Cases of other projects' test suites, run with kavip, and the differences from their outcomes.

``cases/README.md`` describes the format of the files.
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
from tests.ipam.simulatedcontroller import SimulatedController
from tests.support.build import metadata, service

Json = Mapping[str, Any]

FOLDER: Final = Path(__file__).parent / "cases"
FILES: Final = tuple(json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json")))
FIXTURES: Final = {name: pools for book in FILES for name, pools in book.get("fixtures", {}).items()}
PINNED: Final = ("namespaces", "namespaceSelectors", "serviceSelectors")


def cases(*kinds: str) -> list[Json]:
    """The cases of *kinds* of all books; of no kind: all."""
    return [case for book in FILES for case in book["cases"] if case["kind"] in kinds or not kinds]


def differences(case: Json) -> list[str]:
    """The differences between the outcomes of kavip and those that *case* expects."""
    if case["kind"] in ("config", "admission"):
        return _pool_differences(case)
    case_run = CaseRun(case)
    return [difference for step in case["steps"] if (difference := case_run.step(step))]


def _pool_differences(case: Json) -> list[str]:
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


class CaseRun:
    """One case, played on a :class:`SimulatedController`; each step returns the difference, or ""."""

    def __init__(self, case: Json) -> None:
        self.pools = case.get("pools") or FIXTURES.get(case.get("fixture", ""), ())
        self.simulation = SimulatedController(map(as_pool, self.pools), labels(case.get("namespaces", ())))
        self.created: dict[str, str] = {}

    def step(self, step: Json) -> str:
        """Run *step* and compare."""
        case_run: Callable[[Json], str] = getattr(self, f"do_{step['op']}")
        return case_run(step)

    def do_assign(self, step: Json) -> str:
        """Request addresses by name."""
        families = [FAMILY_NAMES[parse_address(text).family] for text in step["ips"]]
        return self.ask(step, families, "PreferDualStack", wants=", ".join(step["ips"]))

    def do_allocate(self, step: Json) -> str:
        """Request any address, perhaps of a pool."""
        families = {"ipv4": ["IPv4"], "ipv6": ["IPv6"], "dual": ["IPv4", "IPv6"]}[step["family"]]
        return self.ask(step, families, step["policy"], pool=step.get("pool", ""))

    def ask(self, step: Json, families: list[str], policy: str, **more: Any) -> str:
        """Apply the Service of an allocator step and compare."""
        more_spec: dict[str, Any] = {"ports": ports(step.get("ports", ()))}
        if "backend_key" in step:
            more_spec |= {"external_traffic_policy": "Local", "selector": {"backend": step["backend_key"]}}
        key = f"{step.get('namespace', 'default')}/{step['svc']}"
        self.simulation.apply(
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
        self.simulation.run()
        found = self.compare(key, step["expect"])
        if isinstance(self.simulation.outcomes[key], Refusal):  # after a failed call no Service waits
            self.simulation.delete(key)
            self.simulation.run()
        return found

    def do_check(self, step: Json) -> str:
        """Compare what a Service has."""
        return self.compare(self.key(step["svc"]), step["expect"])

    def do_release(self, step: Json) -> str:
        """Delete a Service."""
        self.simulation.delete(self.key(step["svc"]))
        self.simulation.run()
        return ""

    def do_set_pools(self, step: Json) -> str:
        """Replace the pools."""
        self.simulation.set_pools(map(as_pool, step["pools"]))
        self.simulation.run()
        return ""

    def do_no_config(self, step: Json) -> str:
        """Remove all pools."""
        return self.do_set_pools({"pools": []})

    def do_reconcile(self, step: Json) -> str:
        """Store a Service with the status of the step."""
        key = f"{step['service'].get('namespace', 'default')}/{step['key']}"
        service_ = as_service(key, step["service"], self.age(key))
        self.simulation._store(service_)
        self.simulation.run()
        if not service_.is_load_balancer:
            return ""  # kavip does not manage it any more: the controller removes the status
        return self.compare(key, step["expect"])

    def do_delete(self, step: Json) -> str:
        """Delete a Service."""
        return self.do_release({"svc": step["key"]})

    def do_apply_service(self, step: Json) -> str:
        """Create or update a Service."""
        self.simulation.apply(as_service(step["key"], step["service"], self.age(step["key"])))
        self.simulation.run()
        return ""

    def do_delete_service(self, step: Json) -> str:
        """Delete a Service by its key."""
        self.simulation.delete(step["key"])
        self.simulation.run()
        return ""

    def do_set_namespaces(self, step: Json) -> str:
        """Replace the labels of namespaces."""
        self.simulation.namespaces = labels(step["namespaces"])
        return ""

    def do_expect(self, step: Json) -> str:
        """Compare what a Service has."""
        return self.compare(step["key"], step)

    def do_expect_pool(self, step: Json) -> str:
        """Compare the counts of a pool."""
        usage = self.simulation.ledger.usage(step["pool"])
        got = {
            f"{what}_v{family}": getattr(usage[family], what) for family in (4, 6) for what in ("available", "assigned")
        }
        return "" if all(step[name] == value for name, value in got.items()) else f"{step}: {got}"

    def compare(self, key: str, expect: Json) -> str:
        """What of *expect* is otherwise."""
        got, outcome = self.simulation.held(key), self.simulation.outcomes[key]
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
        return next(key for key in self.simulation.services if key.endswith(f"/{name}"))


def as_pool(service_: Json) -> VIPPool:
    """The VIPPool of a case."""
    rules = service_.get("serviceAllocation", {})
    is_pinned = any(rules.get(name) for name in PINNED)
    spaces = [Requirement(key="kubernetes.io/metadata.name", operator="In", values=rules.get("namespaces"))]
    match_labels = next(iter(rules.get("namespaceSelectors", ())), None)
    namespaces = LabelSelector(match_labels=match_labels, match_expressions=spaces if rules.get("namespaces") else None)
    services = next(iter(rules.get("serviceSelectors", ())), None)
    return VIPPool(
        metadata=metadata(service_["name"]),
        spec=PoolSpec(
            addresses=service_["addresses"],
            auto_assign=service_.get("autoAssign", True),
            avoid_buggy_ips=service_.get("avoidBuggyIPs", False),
            priority=(rules.get("priority") or 1000) + (0 if is_pinned else 10_000),
            namespace_selector=namespaces,
            service_selector=LabelSelector(match_labels=services) if services else None,
        ),
    )


def as_service(key: str, service_: Json, created: str) -> Service:
    """The Service of a case."""
    families = [FAMILY_NAMES[parse_address(text).family] for text in service_["clusterIPs"]]
    built = service(
        key,
        type=service_["type"],
        created=created,
        families=families,
        ip_family_policy=service_.get("ipFamilyPolicy", "SingleStack" if len(families) == 1 else "PreferDualStack"),
        pool=service_.get("requested_pool", ""),
        wants=service_.get("requested_ips", ""),
        labels=service_.get("labels"),
        annotations=sharing(service_),
        load_balancer_ip=service_.get("loadBalancerIP", ""),
        external_traffic_policy=service_.get("externalTrafficPolicy", ""),
        selector=service_.get("selector"),
        ports=ports(service_.get("ports", ["TCP/80"])),
    )
    entries = service_.get("status_ingress", [{"ip": text} for text in service_.get("status_ips", ())])
    status = ServiceStatus(load_balancer=LoadBalancer(ingress=[Ingress(**entry) for entry in entries] or None))
    return msgspec.structs.replace(built, status=status)


def ports(texts: list[str]) -> list[ServicePort]:
    """Ports such as ``TCP/80``."""
    return [ServicePort(protocol=Protocol(text.partition("/")[0]), port=int(text.partition("/")[2])) for text in texts]


def sharing(service_: Json) -> dict[str, str] | None:
    """The annotation of a sharing key."""
    return {names.SHARING_KEY_ANNOTATION: service_["sharing_key"]} if service_.get("sharing_key") else None


def labels(namespaces: list[Json]) -> dict[str, dict[str, str]]:
    """Namespaces by name."""
    return {each["name"]: dict(each.get("labels", {})) for each in namespaces}
