"""
The admission policy: which chain of rules applies to an object. The webhook and ``kavip check`` share it.

The rules are in :mod:`~kavip.admission.services`, :mod:`~kavip.admission.groups` and :mod:`~kavip.admission.pools`. Of
an object in deletion only the edits that change what kavip reads are evaluated: removing a finalizer is always
accepted. A Service that kavip does not manage is accepted; only its external IPs are checked, and only if the
administrator asked for that.
"""

from typing import Any

from kavip.admission import groups, pools, services
from kavip.admission.chain import ALLOWED, DEFAULTS, Context, PolicyOptions, run
from kavip.admission.verdict import UNCHANGED, Verdict
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.rawobject import UncheckedUpdate
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.snapshot import Snapshot


def review(request: Review[Any], snapshot: Snapshot, *, options: PolicyOptions = DEFAULTS) -> Verdict:
    """Evaluate *request* against *snapshot*; the verdict has all findings."""
    subject, old = request.subject, request.old
    if request.only_ends_deletion:
        return ALLOWED
    if isinstance(subject, Service):
        return _service(request, snapshot, options)
    context: Context[Any] = Context(snapshot, old, options)
    match subject, request.operation:
        case VIPPool(), Operation.DELETE:
            return run(pools.DELETION, subject, context)
        case KeepalivedGroup(), Operation.DELETE:
            return run(groups.DELETION, subject, context)
        case KeepalivedGroup(), _:
            return run(groups.CHAIN, subject, context, since=old)
        case VIPPool(), _:
            return run(pools.CHAIN, subject, context, since=old)
    return ALLOWED


def unchecked(error: UncheckedUpdate) -> Verdict:
    """The verdict for an object that is too large for a decision, and that the UPDATE does not change."""
    return Verdict(warnings=(f"{UNCHANGED}{error}",))


def _service(request: Review[Service], snapshot: Snapshot, options: PolicyOptions) -> Verdict:
    subject, old = request.subject, request.old
    if request.operation is Operation.DELETE:
        return ALLOWED
    group = snapshot.group_of(subject)
    if group is None:
        return run(services.UNMANAGED, subject, Context(snapshot, old, options), since=old)
    # An unmanaged Service was never evaluated by this chain: when it becomes managed, all rules apply as on creation.
    since = old if old is not None and not _is_unseen(old) and snapshot.group_of(old) is not None else None
    old_group = (snapshot.group_of(since) if since is not None else None) or ""
    chain = services.WITH_GROUP if group in snapshot.groups else services.CHAIN
    return run(chain, subject, Context(snapshot, since, options, group, old_group), since=since)


def _is_unseen(old: Service) -> bool:
    """Whether *old* got its external IPs while the mutating webhook was unavailable."""
    return bool(old.spec.external_ips) and not old.selects_kavip
