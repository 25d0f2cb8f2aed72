"""
Other load balancers: which Services are theirs, and what their annotations mean in kavip.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kavip import names
from kavip.api import kubevip, metallb
from kavip.api.handover import HandedService
from kavip.api.service import Service
from kavip.convert.imported import NO_COUNTERPART, Remark
from kavip.ipam.record import read_record


@dataclass(frozen=True, slots=True)
class Provider:
    """
    One load balancer.

    *prefixes*: of its annotations. *meanings*: by the rest of the key, kavip's annotation; "" for what has no meaning
    for users. *marks*: what it writes on Services that it serves. *ignore*: the annotation by which it leaves one
    alone. *withdraws*: whether it stops announcing a Service of its class whose type changes.
    """

    name: str
    prefixes: tuple[str, ...]
    meanings: Mapping[str, str]
    marks: tuple[str, ...]
    ignore: str = ""
    withdraws: bool = True

    def annotation(self, service: Service, suffix: str) -> str:
        """The annotation of *service*, under any of the prefixes."""
        found = (service.metadata.annotation(f"{prefix}{suffix}") for prefix in self.prefixes)
        return next(filter(None, found), "")

    def meaning(self, service: Service, ours: str) -> str:
        """What *service* says with the annotation that corresponds to *ours*."""
        found = (self.annotation(service, suffix) for suffix, key in self.meanings.items() if key == ours)
        return next(filter(None, found), "")

    def serves(self, service: HandedService) -> bool:
        """Whether *service* may be served by it, and is not served by kavip."""
        if service.hand_over is not None:
            return True
        if not service.is_load_balancer or service.metadata.deletion_timestamp or self._is_ignored(service):
            return False
        if service.spec.load_balancer_class == names.LOAD_BALANCER_CLASS:
            return False
        return not read_record(service).reason or any(self.annotation(service, mark) for mark in self.marks)

    def may_serve(self, service: Service) -> bool:
        """Whether it serves *service*, a manifest without status, if no other load balancer does."""
        if not service.is_load_balancer or self._is_ignored(service):
            return False
        return not service.spec.load_balancer_class or service.spec.load_balancer_class.startswith(self.prefixes)

    def remarks(self, service: Service) -> Iterator[Remark]:
        """The annotations of *service* that have no counterpart."""
        subject = f"{names.SERVICE} {service.key}"
        for key in sorted(service.metadata.annotations or ()):
            prefix = next((each for each in self.prefixes if key.startswith(each)), "")
            if prefix and key.removeprefix(prefix) not in self.meanings:
                yield Remark(subject, f"metadata.annotations[{key}]", NO_COUNTERPART)

    def _is_ignored(self, service: Service) -> bool:
        return bool(self.ignore) and self.annotation(service, self.ignore) == "true"


METALLB: Final = Provider(
    "MetalLB",
    metallb.PREFIXES,
    {
        metallb.POOL: names.POOL_ANNOTATION,
        metallb.ADDRESSES: names.ADDRESSES_ANNOTATION,
        metallb.SHARING: names.SHARING_KEY_ANNOTATION,
        metallb.ASSIGNED_POOL: "",
    },
    marks=(metallb.ASSIGNED_POOL,),
    withdraws=False,  # seen with 0.16.1: with --lb-class its speakers ignore a Service that has lost the class
)
KUBE_VIP: Final = Provider(
    "kube-vip",
    (kubevip.PREFIX,),
    {kubevip.ADDRESSES: names.ADDRESSES_ANNOTATION, **dict.fromkeys(kubevip.WRITTEN, ""), kubevip.IGNORE: ""},
    marks=(kubevip.ADDRESSES, *kubevip.WRITTEN),
    ignore=kubevip.IGNORE,
)
