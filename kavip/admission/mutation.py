"""
The defaults that kavip writes: the fields of a new group, and the group annotation of a plain Service.

Patches are minimal and idempotent, and unknown fields stay. A mutation never fails a request: the validators report
objects that cannot be read.
"""

from typing import Any, Final

import msgspec

from kavip import names
from kavip.admission.verdict import Verdict
from kavip.api import patch, review
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.rawobject import ABSENT, RawObject
from kavip.api.review import AdmissionRequest
from kavip.api.service import Service, ServiceStatus
from kavip.errors import BadInput
from kavip.snapshot import Snapshot
from kavip.vrrp import groupspec

_NO_PATCH: Final = Verdict()


def mutate_service(request: AdmissionRequest, snapshot: Snapshot) -> Verdict:
    """Write the annotation of the default group on a Service that belongs to it and does not name a group."""
    asked = review.decode_objects(request, Service)
    if asked.lacks_old:
        return _NO_PATCH
    # The API server replaces the status of the manifest by the stored one, but only after admission.
    stored = asked.old.status if asked.old is not None else ServiceStatus()
    subject = msgspec.structs.replace(asked.subject, status=stored)
    key = snapshot.group_of(subject)
    if not key or subject.declared_group or subject.metadata.deletion_timestamp:
        return _NO_PATCH
    return _patched(request, Service, {("metadata", "annotations", names.GROUP_ANNOTATION): key})


def mutate_group(request: AdmissionRequest) -> Verdict:
    """Write the defaults of a new group; on UPDATE restore those that the new object omits."""
    asked = review.decode_objects(request, KeepalivedGroup)
    if asked.subject.metadata.deletion_timestamp or asked.lacks_old:
        return _NO_PATCH
    old = asked.old
    values = groupspec.defaults(asked.subject) if old is None else defaults_on_update(asked.subject.spec, old.spec)
    return _patched(request, KeepalivedGroup, {("spec", name): value for name, value in values.items()})


def defaults_on_update(new: GroupSpec, old: GroupSpec) -> dict[str, Any]:
    """The fields of ``spec`` that an UPDATE from *old* to *new* restores, with their values; UNSET removes a field."""
    return _omitted_defaults(new, old) | _obsolete_defaults(new, old)


def _omitted_defaults(new: GroupSpec, old: GroupSpec) -> dict[str, Any]:
    """The defaulted fields of *old* that *new* omits: applying the same manifest again must not remove them."""
    omitted: dict[str, Any] = {}
    if new.unicast_enabled is None and old.unicast_enabled is not None:
        omitted["unicastEnabled"] = old.unicast_enabled
    if new.segment is None and old.segment is not None:
        omitted["segment"] = old.segment
    if new.vrrp_version is None and old.vrrp_version is not None:
        omitted["vrrpVersion"] = old.vrrp_version
    # An interval belongs to its version: with another version the old interval is not restored.
    same_version = new.vrrp_version in (None, old.vrrp_version)
    if same_version and new.advert_interval_milliseconds is None and old.advert_interval_milliseconds is not None:
        omitted["advertIntervalMilliseconds"] = old.advert_interval_milliseconds
    return omitted


def _obsolete_defaults(new: GroupSpec, old: GroupSpec) -> dict[str, Any]:
    """The default interval of version 3: ``kubectl apply`` keeps it when the user changes to version 2."""
    is_changed = new.vrrp_version not in (None, groupspec.NEW_VERSION) and old.vrrp_version == groupspec.NEW_VERSION
    is_kept = new.advert_interval_milliseconds == old.advert_interval_milliseconds == groupspec.NEW_INTERVAL
    return {"advertIntervalMilliseconds": msgspec.UNSET} if is_changed and is_kept else {}


def _patched(
    request: AdmissionRequest, kind: type[Service | KeepalivedGroup], values: dict[patch.Pointer, Any]
) -> Verdict:
    if bytes(request.object) in ABSENT:  # the review was about the old object
        return _NO_PATCH
    try:
        before = RawObject(bytes(request.object), kind).document()
    except BadInput:  # in a part that kavip's types skip
        return _NO_PATCH
    after = before
    for path, value in values.items():
        after = patch.put(after, path, value)
    return Verdict(patch=patch.diff(before, after))
