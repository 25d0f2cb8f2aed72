"""
Change the topology of the chart without losing an admission call, as docs/howto/install.md describes.

Helm deletes the Deployments of one topology when it creates those of the other. They are kept until the new ones are
ready.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import yaml

from hack.testbed.cluster import Cluster

COMBINED: Final = ("kavip",)
SPLIT: Final = ("kavip-webhook", "kavip-controller")
_OWN: Final = "--namespace=kavip"
_KEEP: Final = "helm.sh/resource-policy=keep"
_RIGHTS: Final = "serviceaccount,role,rolebinding"
WITHOUT_HELM: Final = f"{_RIGHTS},poddisruptionbudget"
"""What is left of a Deployment that is deleted. Helm deletes its PodDisruptionBudget."""
_CLUSTER_RIGHTS: Final = "clusterrole,clusterrolebinding"


def of_chart(chart: Path) -> tuple[str, ...]:
    """The Deployments of *chart* with its default values; release 0.1.0 has one."""
    values = yaml.load((chart / "values.yaml").read_text(), yaml.CSafeLoader)
    return SPLIT if values.get("topology") == "split" else COMBINED


def change(cluster: Cluster, old: tuple[str, ...], upgrade: Callable[[], object]) -> None:
    """
    Run *upgrade*, which returns when the new Deployments are ready; keep the *old* ones until then, if there are any.

    It returns when the pods of the old Deployments have ended.
    """
    if not old:
        upgrade()
        return
    cluster.kubectl("annotate", _OWN, f"deployment,{_RIGHTS}", *old, _KEEP)
    cluster.kubectl("annotate", _CLUSTER_RIGHTS, *old, _KEEP)
    upgrade()
    remove(cluster, old, _RIGHTS)


def remove(cluster: Cluster, old: tuple[str, ...], kinds: str) -> None:
    """Delete the *old* Deployments, if any, and wait until their pods have ended; then *kinds* with their names."""
    if not old:
        return
    cluster.kubectl("delete", _OWN, "deployment", *old, "--cascade=foreground")
    cluster.kubectl("delete", _OWN, kinds, *old)
    cluster.kubectl("delete", _CLUSTER_RIGHTS, *old)
