"""MetalLB's own controller and speakers on a cluster, as processes of its machines, with MetalLB's own CRDs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hack.testbed import metallb as testbed
from hack.testbed import process
from hack.testbed.cluster import Cluster
from hack.testbed.metallb import SYSTEM, VERSION
from hack.testbed.process import Process
from hack.testbed.programs import Programs
from tests.app.conftest import object_of
from tests.cluster.provisioning import apply_objects, create_namespaces, delete_objects, retry_kubectl


class MetalLB:
    """One installation; *lb_class*: the class that it serves, "" for Services without a class."""

    def __init__(self, cluster: Cluster, programs: Programs, *, lb_class: str = "") -> None:
        """Nothing runs before :meth:`start`."""
        self._cluster, self._programs = cluster, programs
        self._flags = (f"--lb-class={lb_class}",) if lb_class else ()
        self._controller: list[Process] = []
        self._speakers: list[Process] = []

    def install(self) -> None:
        """Its kinds, its namespace, and the pods that its processes say they are."""
        self._cluster.kubectl("apply", "--server-side", f"--filename={testbed.crds()}")
        self._cluster.plane.wait_established()
        create_namespaces(self._cluster, SYSTEM)
        apply_objects(self._cluster, *(_pod(name) for name in ("controller", *map(_speaker, self._nodes()))))

    def start(self) -> None:
        """Start the controller and a speaker on each node."""
        kubeconfig, log = self._cluster.kubeconfig, self._cluster.state / "metallb-controller.log"
        command = testbed.command(self._programs, kubeconfig, *self._flags, port=17472, probe_port=17473)
        self._controller.append(self._cluster.control.spawn(*command, log=log))
        common = (f"--kubeconfig={kubeconfig}", f"--namespace={SYSTEM}", *self._flags)
        for node in self._cluster.nodes:
            speaker = (self._programs["metallb-speaker"], *common, f"--node-name={node.name}")
            more = (f"--pod-name={_speaker(node.name)}", "--port=17474", "--health-probe-port=17475")
            self._speakers.append(node.spawn(*speaker, *more, log=node.home / "metallb-speaker.log"))

    def restart(self) -> None:
        """End all processes, and start them again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        """End all processes."""
        process.stop([*self._controller, *self._speakers], grace=5)
        self._controller, self._speakers = [], []

    def remove(self) -> None:
        """Delete its objects; its kinds stay."""
        self.stop()
        delete_objects(self._cluster, ("namespace", SYSTEM, "--wait=false"))
        retry_kubectl(self._cluster, "delete", "pods", "--all", f"--namespace={SYSTEM}", "--grace-period=0", "--force")

    def configure(self, *addresses: str, **advertisement: Any) -> None:
        """A pool ``first`` and an advertisement ``l2``."""
        apply_objects(
            self._cluster,
            object_of("IPAddressPool", "first", namespace=SYSTEM, version=VERSION, spec={"addresses": list(addresses)}),
            object_of("L2Advertisement", "l2", namespace=SYSTEM, version=VERSION, spec=advertisement),
        )

    def logs(self) -> dict[str, str]:
        """The end of each log."""
        files: list[Path] = [self._cluster.state / "metallb-controller.log"]
        files += [node.home / "metallb-speaker.log" for node in self._cluster.nodes]
        return {str(each): process.tail(each, 40) for each in files if each.exists()}

    def _nodes(self) -> list[str]:
        return [node.name for node in self._cluster.nodes]


@contextmanager
def running(metallb: MetalLB) -> Iterator[MetalLB]:
    """*metallb* runs during the block; its logs are printed at the end."""
    try:
        metallb.install()
        metallb.start()
        yield metallb
    finally:
        for name, text in metallb.logs().items():
            sys.stdout.write(f"--- {name}\n{text}\n")
        metallb.remove()


def _speaker(node: str) -> str:
    return f"speaker-{node}"


def _pod(name: str) -> dict[str, Any]:
    """A pod that no scheduler looks at: it only owns what MetalLB writes."""
    spec = {"containers": [{"name": "metallb", "image": "metallb"}], "schedulerName": "none"}
    return object_of("Pod", name, namespace=SYSTEM, spec=spec)
