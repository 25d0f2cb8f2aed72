"""The controllers that :mod:`.peers` compares: kavip and MetalLB, on one API server, each with Services of its own."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from bench.backlog import AGENT
from bench.bare import Bare
from bench.site import NAMESPACE, POOLS, notes, path, prepare, running, service
from hack.testbed import metallb, process
from hack.testbed.controlplane import ControlPlane
from hack.testbed.metallb import SYSTEM
from hack.testbed.ports import free_ports
from hack.testbed.programs import Programs
from kavip import names

Annotations = Callable[[int], dict[str, str]]

THEIRS: Final = "metal"  # the namespace of MetalLB's Services
_ALLOCATED_FROM: Final = "metallb.io/ip-allocated-from-pool"
_ACCOUNT: Final = ("system:serviceaccounts", f"system:serviceaccounts:{SYSTEM}")


@dataclass(frozen=True, slots=True)
class Contender:
    """
    A controller. *run* runs it during a block and yields its pid; *agent* begins the User-Agent of its writes.

    A Service of it is in *namespace*, with *annotations* by its number and further fields of *spec*. With those of
    *unrendered*, it gets an address, and nodes get nothing. *records*: annotations that the controller writes.
    """

    name: str
    namespace: str
    agent: str
    run: Callable[[], AbstractContextManager[int]]
    annotations: Annotations
    unrendered: Annotations
    spec: dict[str, Any] = field(default_factory=dict)
    records: tuple[str, ...] = ()

    def service(self, name: str, number: int, **more: Any) -> dict[str, Any]:
        """A Service that it serves."""
        return service(self.namespace, name, annotations=self.annotations(number), **self.spec, **more)

    def unrendered_service(self, name: str, number: int) -> dict[str, Any]:
        """A Service that gets nothing but an address."""
        return service(self.namespace, name, annotations=self.unrendered(number), **self.spec)


async def kavip(plane: ControlPlane, bare: Bare, count: int) -> Contender:
    """kavip, with *count* Services in Shared groups."""
    await prepare(bare, count, namespaces=(NAMESPACE,))

    @contextmanager
    def run() -> Iterator[int]:
        with running(plane, "controller") as (started, _):
            yield started.pid

    return Contender("kavip", NAMESPACE, AGENT, run, notes, _without_group)


async def peer(plane: ControlPlane, programs: Programs, bare: Bare, count: int) -> Contender:
    """MetalLB's controller, with *count* Services, as many pools as kavip, and the account that its roles name."""
    config = plane.user(metallb.USER, *_ACCOUNT)
    for name in (SYSTEM, THEIRS):
        await bare.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    plane.kubectl("apply", "--server-side", f"--namespace={SYSTEM}", "--filename=-", input=metallb.rights())
    pod = {"containers": [{"name": "controller", "image": "metallb"}]}
    await bare.send("POST", f"/api/v1/namespaces/{SYSTEM}/pods", {"metadata": {"name": metallb.POD}, "spec": pod})
    for number in range(POOLS):
        pool = {"apiVersion": metallb.VERSION, "kind": "IPAddressPool", "metadata": {"name": f"p{number}"}}
        spec = {"addresses": [f"10.{100 + number}.0.0/16"]}
        pools = f"/apis/{metallb.VERSION}/namespaces/{SYSTEM}/ipaddresspools"
        await bare.send("POST", pools, {**pool, "spec": spec})

    @contextmanager
    def run() -> Iterator[int]:
        port, probe_port = free_ports(2)
        flags = (f"--lb-class={metallb.CLASS}",)
        command = metallb.command(programs, config, *flags, port=port, probe_port=probe_port)
        started = process.spawn(command, log=plane.state / "metallb.log")
        try:
            yield started.pid
        finally:
            process.stop([started], grace=60)

    made = Contender(
        *("MetalLB", THEIRS, "metallb/", run, _from_pool, _from_pool),
        spec={"loadBalancerClass": metallb.CLASS},
        records=(_ALLOCATED_FROM,),
    )
    bodies = (made.service(f"s{number}", number) for number in range(count))
    await bare.all(("POST", path(THEIRS), body, "application/json") for body in bodies)
    return made


def _without_group(number: int) -> dict[str, str]:
    """Of a Service of a group that does not exist: it has an address when the group comes."""
    return {**notes(number), names.GROUP_ANNOTATION: f"{NAMESPACE}/none"}


def _from_pool(number: int) -> dict[str, str]:
    return {"metallb.io/address-pool": f"p{number % POOLS}"}
