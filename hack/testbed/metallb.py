"""MetalLB's controller: its kinds, its rights, and its command line without webhooks."""

from pathlib import Path
from typing import Final

from hack.testbed import golang
from hack.testbed.programs import Programs

SYSTEM: Final = "metallb-system"
CLASS: Final = "metallb.io/metallb"
VERSION: Final = "metallb.io/v1beta1"
POD: Final = "controller"
"""The pod that it says it is: it must exist, and owns what MetalLB writes."""
USER: Final = f"system:serviceaccount:{SYSTEM}:controller"
"""The account that its roles name."""


def crds() -> Path:
    """The folder with its kinds."""
    return _config() / "crd" / "bases"


def rights() -> str:
    """Its roles and their bindings, with the namespace of the account, which kustomize adds elsewhere."""
    text = (_config() / "rbac" / "role.yaml").read_text()
    return text.replace("kind: ServiceAccount\n", f"kind: ServiceAccount\n    namespace: {SYSTEM}\n")


def command(programs: Programs, kubeconfig: Path, *flags: str, port: int, probe_port: int) -> list[str]:
    """The command line of the controller."""
    return [
        *(programs["metallb"], f"--kubeconfig={kubeconfig}", f"--namespace={SYSTEM}", f"--pod-name={POD}"),
        *("--webhook-mode=disabled", "--disable-cert-rotation", f"--port={port}", f"--health-probe-port={probe_port}"),
        *flags,
    ]


def _config() -> Path:
    return golang.folder_of(golang.TOOLS / "metallb", "go.universe.tf/metallb/api/v1beta1").parents[1] / "config"
