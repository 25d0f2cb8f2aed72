"""Groups and pools as users write them, and the answer of an API server about their schema."""

import json
from typing import Any

from hack.testbed.controlplane import ControlPlane
from kavip import names
from tests.support import manifests

GROUP_API = f"{names.REDHATCOP_GROUP}/{names.VERSION}"
POOL_API = f"{names.KAVIP_GROUP}/{names.VERSION}"


def install(control_plane: ControlPlane) -> None:
    """Install both CRDs in *control_plane*."""
    arguments = [argument for path in manifests.CRDS for argument in ("--filename", str(path))]
    control_plane.kubectl("apply", "--server-side", "--force-conflicts", *arguments)
    control_plane.wait_established()


def group(**spec: Any) -> manifests.Object:
    """A KeepalivedGroup."""
    metadata = {"name": "shape", "namespace": "default"}
    return {"apiVersion": GROUP_API, "kind": "KeepalivedGroup", "metadata": metadata, "spec": spec}


def new(**spec: Any) -> manifests.Object:
    """A KeepalivedGroup with fields that only kavip has."""
    return group(interface="eth0", **spec)


def pool(*addresses: str, **spec: Any) -> manifests.Object:
    """A VIPPool."""
    spec = {"addresses": list(addresses) or ["192.0.2.0/28"], **spec}
    return {"apiVersion": POOL_API, "kind": "VIPPool", "metadata": {"name": "shape"}, "spec": spec}


def check(name: str = "web", **more: Any) -> manifests.Object:
    """A health check."""
    return {"name": name, "url": "http://192.0.2.1/", **more}


def refusal(server: ControlPlane, subject: manifests.Object) -> str:
    """The API server's message against *subject*; "" if it accepts it."""
    done = server.kubectl("create", "--dry-run=server", "--filename=-", input=json.dumps(subject), check=False)
    return done.stderr if done.returncode else ""
