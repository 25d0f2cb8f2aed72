"""
Other programs that serve Services of type LoadBalancer, by the images of Deployments and DaemonSets.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from shlex import quote
from typing import Final

from kavip import names
from kavip.api.installation import Workload
from kavip.cli.views.doctor.finding import Finding
from kavip.cli.views.doctor.inspection import Inspection

_MOST: Final = 400  # characters of an image, and of an argument, that are looked at
_CLASS: Final = re.compile(r"--?lb-class(=|$)")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
"""What programs in Go read as true."""


@dataclass(frozen=True, slots=True)
class _Balancer:
    """A program with *image*; *competes*: whether it serves Services that kavip may serve."""

    name: str
    image: re.Pattern[str]
    competes: Callable[[Workload], bool]
    command: str = "kubectl get services --all-namespaces --output=wide"


def _has_no_class(workload: Workload) -> bool:
    return not any(_CLASS.match(text[:_MOST]) for each in workload.containers for text in each.args or ())


def _serves_services(workload: Workload) -> bool:
    return any(
        each.variable("svc_enable") in _TRUE and each.variable("lb_class_only") not in _TRUE
        for each in workload.containers
    )


def _always(_: Workload) -> bool:
    return True


_BALANCERS: Final = (
    _Balancer(
        "MetalLB",
        re.compile(r"metallb[/-](controller|speaker|rhel\d+)\b(?!-)"),  # the last one is that of OpenShift
        _has_no_class,
        "kubectl kavip import metallb",
    ),
    _Balancer(
        "kube-vip", re.compile(r"/kube-vip(-iptables)?\b(?!-)"), _serves_services, "kubectl kavip import kube-vip"
    ),
    _Balancer("ServiceLB of K3s", re.compile(r"/klipper-lb\b"), _always),
    _Balancer("PureLB", re.compile(r"purelb/(allocator|lbnodeagent)\b"), _always),
    _Balancer("OpenELB", re.compile(r"/openelb(-controller|-speaker)?\b"), _always),
)


def other_balancers(found: Inspection) -> Iterator[Finding]:
    """Check that no other program serves the same Services."""
    for workload in sorted(found.workloads, key=lambda each: each.metadata.key):
        key = workload.metadata.key
        if workload.metadata.name in names.OLD_OPERATOR_DEPLOYMENTS and workload.spec.replicas:
            stop = f"kubectl scale deployment {quote(workload.metadata.name)} --replicas=0"
            yield Finding(
                f"keepalived-operator runs ({key}): kavip writes nothing meanwhile",
                f"{stop} --namespace={quote(workload.metadata.namespace)}",
            )
        for each in _BALANCERS if workload.spec.replicas else ():
            images = (one.image[:_MOST] for one in workload.containers)
            if any(map(each.image.search, images)) and each.competes(workload):
                yield Finding(f"{each.name} runs ({key}) and has no class of its own", each.command)
