"""
Why kavip leaves a Service alone, in the words of whoever asks at three in the morning.
"""

from typing import Final

from kavip import names
from kavip.api.service import Service
from kavip.snapshot import Snapshot, is_candidate

_CLASSES: Final = (None, "", names.LOAD_BALANCER_CLASS)


def why_unmanaged(snapshot: Snapshot, service: Service) -> str:
    """Why kavip does not manage *service* (:meth:`Snapshot.group_of`); "" where it does."""
    if snapshot.group_of(service) is not None:
        return ""
    spec, default = service.spec, snapshot.default_group
    if spec.load_balancer_class not in _CLASSES:
        return f"its loadBalancerClass {spec.load_balancer_class} is another controller's"
    if not is_candidate(service):
        externals = f" and the annotation {names.GROUP_ANNOTATION} for its externalIPs" if spec.external_ips else ""
        return f"it is of type {spec.type}; addresses need type LoadBalancer{externals}"
    if default is None:
        return (
            f"it has no annotation {names.GROUP_ANNOTATION}, not loadBalancerClass {names.LOAD_BALANCER_CLASS}, "
            f"and no KeepalivedGroup is labelled {names.DEFAULT_GROUP_LABEL}=true"
        )
    namespace = service.metadata.namespace
    if not snapshot.allows(default, namespace):
        return f"the default KeepalivedGroup {default.key} does not allow namespace {namespace} (allowedNamespaces)"
    return f"another controller wrote its status, and it has no annotation {names.GROUP_ANNOTATION}"
