"""
The defaults that kavip writes: the fields of a new group. Of a Service it only removes what kavip itself once wrote.

Patches are minimal and idempotent, and unknown fields stay. A mutation never fails a request: the validators report
objects that cannot be read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from kavip import names
from kavip.admission.verdict import Verdict
from kavip.api import patch, review
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.api.meta import ManagedObject
from kavip.api.rawobject import ABSENT, MAX_ITEMS, RawObject, has_more_items
from kavip.api.review import AdmissionRequest
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.snapshot import Snapshot, is_candidate
from kavip.vrrp import groupspec

_NO_PATCH: Final = Verdict()


def mutate_service(request: AdmissionRequest, snapshot: Snapshot) -> Verdict:
    """
    Remove the group annotation that kavip wrote and that has no use any more; write nothing.

    Release 0.1.0 wrote it to plain Services of the default group. It has no use on a Service without VIPs, and where
    the group is gone: then the default group adopts the Service.
    """
    parsed = review.decode_objects(request, Service)
    old, subject = parsed.old, parsed.subject
    group = subject.declared_group
    if old is None or parsed.lacks_old or subject.metadata.deletion_timestamp:
        return _NO_PATCH
    if not group or old.declared_group != group:
        return _NO_PATCH
    if _is_load_balancer(subject) and snapshot.any_group(group) is not None:
        return _NO_PATCH
    if not is_written_by_admission(_managed_fields(request)):
        return _NO_PATCH
    return _patched(request, Service, {("metadata", "annotations", names.GROUP_ANNOTATION): msgspec.UNSET})


def _is_load_balancer(service: Service) -> bool:
    """Whether a plain Service like this one is kavip's; only such Services got the annotation."""
    return service.is_load_balancer and is_candidate(service)


def _managed_fields(request: AdmissionRequest) -> Sequence[Mapping[str, Any]]:
    if has_more_items(bytes(request.object), than=MAX_ITEMS):  # too much to decode for a clean-up
        return ()
    try:
        return msgspec.json.decode(request.object, type=ManagedObject).metadata.managed_fields or ()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()


def is_written_by_admission(entries: Sequence[Mapping[str, Any]]) -> bool:
    """
    Whether *entries* (``metadata.managedFields``) say that no user wrote the group annotation.

    The API server records the manager of each field before it calls mutating webhooks, so what a webhook writes has no
    manager. Without entries nothing is known.
    """
    return bool(entries) and not any(_owns(entry.get("fieldsV1")) for entry in entries)


def _owns(fields: object) -> bool:
    """Whether *fields* of one manager contain the group annotation."""
    for name in ("f:metadata", "f:annotations", f"f:{names.GROUP_ANNOTATION}"):
        if not isinstance(fields, Mapping) or name not in fields:
            return False
        fields = fields[name]
    return True


def mutate_group(request: AdmissionRequest) -> Verdict:
    """Write the defaults of a new group; on UPDATE restore those that the new object omits."""
    parsed = review.decode_objects(request, KeepalivedGroup)
    if parsed.subject.metadata.deletion_timestamp or parsed.lacks_old:
        return _NO_PATCH
    old = parsed.old
    values = groupspec.defaults(parsed.subject) if old is None else defaults_on_update(parsed.subject.spec, old.spec)
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
