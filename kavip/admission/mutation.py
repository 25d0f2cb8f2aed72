"""
What kavip fills in: defaults of a new group, and the group of a plain Service.

Patches are minimal, a second pass changes nothing, and fields that kavip does not know stay as they are. No request
ever fails here: what cannot be read is left to the validators.
"""

from typing import Any, Final

import msgspec

from kavip import names
from kavip.admission.verdict import Verdict
from kavip.api import patch, review
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.review import AdmissionRequest
from kavip.api.service import Service, ServiceStatus
from kavip.snapshot import Snapshot
from kavip.vrrp import groups

_NOTHING: Final = Verdict()


def service(request: AdmissionRequest, snapshot: Snapshot) -> Verdict:
    """Write the annotation of the default group on a Service that belongs to it and does not say so."""
    asked = review.question(request, Service)
    # A status in the manifest is dropped only after this, and that of the stored Service put in its place.
    stored = asked.old.status if asked.old is not None else ServiceStatus()
    subject = msgspec.structs.replace(asked.subject, status=stored)
    key = snapshot.group_of(subject)
    if not key or subject.declared_group or subject.metadata.deletion_timestamp:
        return _NOTHING
    return _patched(request, {("metadata", "annotations", names.GROUP_ANNOTATION): key})


def group(request: AdmissionRequest) -> Verdict:
    """Write the defaults of a new group; on UPDATE put back those that the new object merely lacks."""
    asked = review.question(request, KeepalivedGroup)
    if asked.subject.metadata.deletion_timestamp:
        return _NOTHING
    wanted = groups.defaults(asked.subject) if asked.old is None else kept(asked.subject.spec, asked.old.spec)
    return _patched(request, {("spec", name): value for name, value in wanted.items()})


def kept(new: GroupSpec, old: GroupSpec) -> dict[str, Any]:
    """What an UPDATE from *old* to *new* puts back, by field of ``spec``; UNSET: what it takes out."""
    return _lost(new, old) | _left(new, old)


def _lost(new: GroupSpec, old: GroupSpec) -> dict[str, Any]:
    """The defaulted fields that *old* has and *new* lacks: a manifest applied again does not take them back."""
    lost: dict[str, Any] = {}
    if new.unicast_enabled is None and old.unicast_enabled is not None:
        lost["unicastEnabled"] = old.unicast_enabled
    if new.segment is None and old.segment is not None:
        lost["segment"] = old.segment
    if new.vrrp_version is None and old.vrrp_version is not None:
        lost["vrrpVersion"] = old.vrrp_version
    # an interval belongs to its version: whoever writes the other version leaves both defaults
    stays = new.vrrp_version in (None, old.vrrp_version)
    if stays and new.advert_interval_milliseconds is None and old.advert_interval_milliseconds is not None:
        lost["advertIntervalMilliseconds"] = old.advert_interval_milliseconds
    return lost


def _left(new: GroupSpec, old: GroupSpec) -> dict[str, Any]:
    """The default interval of version 3, which ``kubectl apply`` keeps beside the version 2 that the user writes."""
    leaves = new.vrrp_version not in (None, groups.NEW_VERSION) and old.vrrp_version == groups.NEW_VERSION
    keeps = new.advert_interval_milliseconds == old.advert_interval_milliseconds == groups.NEW_INTERVAL
    return {"advertIntervalMilliseconds": msgspec.UNSET} if leaves and keeps else {}


def _patched(request: AdmissionRequest, values: dict[patch.Pointer, Any]) -> Verdict:
    try:
        before = msgspec.json.decode(request.object)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # in a part of it that kavip does not read
        return _NOTHING
    if not isinstance(before, dict):  # none at all: the old one was judged
        return _NOTHING
    after = before
    for path, value in values.items():
        after = patch.put(after, path, value)
    return Verdict(patch=patch.diff(before, after))
