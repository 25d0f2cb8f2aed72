"""``--external-ips-scope=all``: the external IPs of every Service, and the exemption."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from tests.app.conftest import Installation, a_group, a_pool, a_service, object_of, wait_for

pytestmark = pytest.mark.apiserver

RBAC = "rbac.authorization.k8s.io"
EDITOR = {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "create", "update", "patch"]}
EXEMPT = {"apiGroups": [""], "resources": ["services/externalips"], "verbs": ["create"]}


ALL = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}


def granted(name: str, rule: dict[str, Any], *users: str, namespace: str = "shop") -> list[dict[str, Any]]:
    """A Role with this rule, bound to *users*; without a *namespace* a ClusterRole."""
    subjects = [{"apiGroup": RBAC, "kind": "User", "name": user} for user in users]
    kind = "Role" if namespace else "ClusterRole"
    ref = {"apiGroup": RBAC, "kind": kind, "name": name}
    version = f"{RBAC}/v1"
    return [
        object_of(kind, name, namespace=namespace, version=version, rules=[rule]),
        object_of(f"{kind}Binding", name, namespace=namespace, version=version, roleRef=ref, subjects=subjects),
    ]


@dataclass(frozen=True)
class User:
    """A user with a kubeconfig and no rights except those of RBAC objects."""

    installation: Installation
    name: str

    def kubectl(self, *args: str, given: object = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl as this user; never raises."""
        plane = self.installation.plane
        config = plane.user(self.name, "system:authenticated")
        return plane.kubectl(*args, input=json.dumps(given) if given else None, check=False, kubeconfig=config)

    def apply(self, name: str, *addresses: str) -> subprocess.CompletedProcess[str]:
        """Apply an unmanaged Service with external IPs."""
        spec = {"ports": [{"port": 80}], "externalIPs": list(addresses)}
        return self.kubectl("apply", "-f", "-", given=object_of("Service", name, namespace="shop", spec=spec))


def test_external_ips_need_a_pool_or_a_right(installation: Installation) -> None:
    """RBAC decides about the exemption, cluster-wide; unchanged external IPs are accepted."""
    installation.start("--external-ips-scope=all")
    installation.apply(a_pool("edge", "192.0.2.128/27"), *granted("editor", EDITOR, "ann", "eve"))
    installation.apply(*granted("owner", ALL, "eve"))
    installation.apply(*granted("kavip-test-exempt", EXEMPT, "ann", namespace=""))
    ann, eve = User(installation, "ann"), User(installation, "eve")
    refusal = (
        'The Service "probe" is invalid: spec.externalIPs[0]: "203.0.113.1": is in no VIPPool; '
        "choose an address from edge (192.0.2.128/27)\n"
    )
    said = ""

    def is_refused() -> bool:  # kavip may judge Services before it has seen the pool
        nonlocal said
        said = eve.apply("probe", "203.0.113.1").stderr
        return said == refusal

    wait_for("Services are judged by the pool", is_refused, details=lambda: said)
    wait_for("ann may", lambda: ann.apply("free", "203.0.113.1").returncode == 0)
    assert eve.kubectl("label", "service", "free", "-n", "shop", "a=b").returncode == 0
    assert eve.apply("free", "203.0.113.1", "203.0.113.2").returncode != 0
    assert eve.apply("given", "192.0.2.140").returncode == 0


def test_no_user_may_take_an_address_in_use(installation: Installation) -> None:
    """An administrator may set any external IP on a managed Service, but not the address of another Service."""
    installation.start()
    group = {"keepalived-operator.redhat-cop.io/keepalivedgroup": "lb/edge"}
    installation.apply_and_wait(a_pool("edge", "192.0.2.128/27"), a_group("edge"))
    installation.apply(a_service("web", annotations=group))
    wait_for("shop/web has its address", lambda: installation.addresses("web") == ["192.0.2.128"])
    done = installation.try_apply(a_service("thief", annotations=group, externalIPs=["192.0.2.128"]))
    assert 'spec.externalIPs[0]: "192.0.2.128": is used by Service shop/web' in done.stderr
    installation.apply(a_service("free", annotations=group, externalIPs=["203.0.113.1"]))
