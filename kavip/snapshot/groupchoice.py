"""
Which group serves a Service: the one that it names, the one that kavip chose for it, or the default group.

A Service that names no group stays with the group that kavip chose for it, while that group exists and serves it. The
choice is recorded in kavip's own condition (:mod:`kavip.ipam.record`), so a new default group moves no Service, and
nothing is written to what users wrote.
"""

from collections.abc import Callable

from kavip import names
from kavip.api.group import KeepalivedGroup
from kavip.api.service import Service
from kavip.ipam.record import read_record


def choose_group(
    service: Service,
    default: KeepalivedGroup | None,
    *,
    is_served_by: Callable[[str, Service], bool],
    has_groups: Callable[[str], bool],
) -> str | None:
    """
    The key of the group that *service* belongs to (:meth:`.Snapshot.group_of`).

    *is_served_by* returns whether the group of a key exists and serves the namespace of a Service, *has_groups* whether
    kavip serves groups in a namespace.
    """
    if not is_candidate(service):
        return None
    if declared := service.declared_group:
        return declared
    is_of_class = service.spec.load_balancer_class == names.LOAD_BALANCER_CLASS
    chosen = read_record(service).group
    if chosen and is_served_by(chosen, service):
        return chosen
    if default is not None and is_served_by(default.key, service):
        return default.key if is_of_class or not has_foreign_status(service) else None
    if chosen and has_groups(chosen.partition("/")[0]):
        return chosen
    if is_of_class:
        return default.key if default else ""
    return None


def is_candidate(service: Service) -> bool:
    """Whether kavip may manage *service*: it can have VIPs, and does not have the class of another controller."""
    if service.has_foreign_class:
        return False
    return service.is_load_balancer or bool(service.spec.external_ips and service.declared_group)


def has_foreign_status(service: Service) -> bool:
    """Whether another controller wrote the address in status: kavip always writes its condition with it."""
    return bool(service.status.load_balancer.ingress) and not read_record(service).reason


def scope_of(group: KeepalivedGroup) -> object:
    """Which Services *group* serves."""
    return group.key, group.spec.allowed_namespaces
