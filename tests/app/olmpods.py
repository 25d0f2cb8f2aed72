"""Replicas of kavip where no pods run: with what the Deployments say that OLM (:mod:`hack.bundle.olm`) or Helm made."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from hack.bundle.olm import IN, MINE, NAMESPACE
from hack.testbed import process
from hack.testbed.process import wait_for
from tests.app.deployment import ADDRESS, Deployment, Replica
from tests.support.rbac import wait_bound

OF_OLM: Final = ("kavip-webhook-service", "443")
"""The Service of the webhook, and the name of its port."""
OF_HELM: Final = ("kavip-webhook", "webhook")


@dataclass(slots=True)
class Pods:
    """Replicas of kavip with what the Deployments say, behind *service*."""

    site: Deployment
    service: tuple[str, str] = OF_OLM
    running: dict[str, list[Replica]] = field(default_factory=dict)
    _number: int = 0

    def start(self, deployment: str) -> Replica:
        """Start a pod of *deployment*; it may not be ready yet."""
        self._number += 1
        number = self._number
        found = self.site.plane.kubectl("get", "deployment", deployment, IN, "--output=json").stdout
        (container,) = json.loads(found)["spec"]["template"]["spec"]["containers"]
        own = {
            "KAVIP_IDENTITY": f"kavip-{number}",
            "KAVIP_NAMESPACE": NAMESPACE,
            "KAVIP_WEBHOOK_PORT": str(9443 + number),
            "KAVIP_PROBE_PORT": str(8100 + number),
            "KAVIP_METRICS_PORT": str(8200 + number),
            "KAVIP_DRAIN_SECONDS": "10",  # so that the API server has seen the end of its endpoint
        }
        given = {each["name"]: own.get(each["name"], each.get("value", "")) for each in container["env"]}
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated")
        kubeconfig = self.site.plane.user(f"{MINE}{deployment}", *groups)
        command = self._command(container["args"], {**given, "KAVIP_KUBECONFIG": str(kubeconfig)})
        log = self.site.state / f"kavip-{number}.log"
        replica = Replica(self.site.machine, number, log, self.site.machine.spawn(*command, log=log))
        self.running.setdefault(deployment, []).append(replica)
        return replica

    def start_all(self) -> None:
        """One pod of each Deployment, as soon as RBAC permits it what it needs; wait until they are ready."""
        wait_bound(self.site.plane, f"{MINE}kavip-controller")
        webhook, controller = self.start("kavip-webhook"), self.start("kavip-controller")
        self._await_and_add(webhook)
        wait_for("the controller is ready", partial(_is_ready, controller), timeout=150)

    def roll(self) -> None:
        """Replace all pods as their Deployments would."""
        old = [each for found in self.running.values() for each in found]
        self.running.clear()
        webhook, controller = self.start("kavip-webhook"), self.start("kavip-controller")
        self._await_and_add(webhook)
        for replica in old:
            self._remove_endpoint(replica)
        process.stop([each.process for each in old], grace=60)
        wait_for("the new controller leads", partial(_is_ready, controller), timeout=150)

    def kill(self) -> None:
        """Kill all pods; a moment later no endpoints lead to them."""
        for found in self.running.values():
            for replica in found:
                self._remove_endpoint(replica)
                process.kill([replica.process])
            found.clear()

    @staticmethod
    def _command(args: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        variables = [f"{name}={value}" for name, value in environment.items()]
        return ["env", *variables, sys.executable, "-m", "tests.app.longtimeouts", *args]

    def _await_and_add(self, webhook: Replica) -> None:
        """Add the endpoint of *webhook* when it is ready, as the endpoints controller does."""
        wait_for(f"{webhook.name} is ready", partial(_is_ready, webhook), timeout=150)
        service, port = self.service
        labels = {"kubernetes.io/service-name": service, "endpointslice.kubernetes.io/managed-by": "test"}
        pod = {"kind": "Pod", "namespace": NAMESPACE, "name": webhook.name}
        body: dict[str, Any] = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": webhook.name, "namespace": NAMESPACE, "labels": labels},
            "addressType": "IPv4",
            "ports": [{"name": port, "port": webhook.port, "protocol": "TCP"}],
            "endpoints": [
                {
                    "addresses": [ADDRESS],
                    "conditions": {"ready": True, "serving": True, "terminating": False},
                    "targetRef": pod,
                }
            ],
        }
        self.site.plane.kubectl("apply", "--filename=-", input=json.dumps(body))

    def _remove_endpoint(self, replica: Replica) -> None:
        self.site.plane.kubectl("delete", "endpointslice", replica.name, IN, "--ignore-not-found")


def _is_ready(replica: Replica) -> bool:
    return not replica.unready()
