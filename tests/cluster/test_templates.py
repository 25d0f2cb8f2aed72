"""Templates of pods on a real cluster: the pods run, and the VIP answers."""

import json
from typing import Any

import pytest

from hack.demo.__main__ import REPOSITORY, TAG
from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from hack.testbed.process import wait_for
from tests.app.conftest import a_group, a_pool, a_service, object_of
from tests.cluster.provisioning import (
    PATIENCE,
    apply_objects,
    create_namespaces,
    delete_objects,
    release,
    web_deployment,
)
from tests.support import manifests

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

SETTINGS = ("--set=templates.namespaces={lb},keepalivedTemplateFromConfigMap=pods",)
FILE = "metadata:\n  labels: {team: network}\n"
SIDECAR = {
    "name": "sleeper",
    "image": f"{REPOSITORY}:{TAG}",
    "imagePullPolicy": "Never",
    "command": ["python3", "-c", "import signal; signal.pause()"],
    "securityContext": {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    },
    "volumeMounts": [{"name": "run", "mountPath": "/run/kavip", "readOnly": True}],
}


def ready_containers(cluster: Cluster) -> set[str]:
    """The names of the ready containers in the pods of groups with the label of the file."""
    found = cluster.kubectl("get", "pods", "-nlb", "--selector=keepalivedGroup=edge,team=network", "--output=json")
    pods: list[dict[str, Any]] = json.loads(found.stdout)["items"]
    states = [each for pod in pods for each in pod["status"].get("containerStatuses", ())]
    return {each["name"] for each in states if each["ready"]}


def test_a_sidecar_runs_beside_keepalived(installed: Cluster) -> None:
    """With the template of a group and the file for all groups, under the policies, and the VIP answers."""
    session = Session(installed)
    data = {"keepalived-template.yaml": FILE}
    apply_objects(installed, object_of("ConfigMap", "pods", namespace=manifests.NAMESPACE, data=data))
    installed.helm("upgrade", *release(installed), *SETTINGS)
    create_namespaces(installed, "lb", "shop")
    group = a_group("edge", default=True, podTemplate={"spec": {"containers": [SIDECAR]}})
    web = a_service("web", selector={"app": "web"})
    apply_objects(installed, a_pool("lan", "192.0.2.128/28"), group, web_deployment(), web)
    wait_for("it has an address", lambda: bool(session.address("shop/web")), timeout=PATIENCE, interval=1)
    vip = session.address("shop/web")
    wait_for(f"{vip} answers", lambda: bool(session.answers(vip)), timeout=PATIENCE, interval=1)
    wanted = {"sleeper", "keepalived", "agent"}
    wait_for("all run", lambda: ready_containers(installed) == wanted, timeout=PATIENCE, interval=1)
    objects = (("service", "web", "-nshop"), ("keepalivedgroup", "edge", "-nlb"), ("vippool", "lan"))
    delete_objects(installed, *objects, ("configmap", "pods", "-nkavip"), ("namespace", "shop", "lb"))
