"""
The policy: may this object be so? Pure, and one for the webhook, the controller and ``kavip check``.

The rules stand as chains of named checks in :mod:`~kavip.admission.services`, :mod:`~kavip.admission.groups` and
:mod:`~kavip.admission.pools`. Here is only who is judged at all, and by what: what is on its way out passes, and a
Service that kavip does not manage is never judged, but for its external IPs where the administrator says so.
"""

from typing import Any, Final

from kavip.admission import groups, pools, services
from kavip.admission.chain import DEFAULTS, Context, Options, run
from kavip.admission.verdict import Verdict
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.review import Operation, Review
from kavip.api.service import Service
from kavip.snapshot import Snapshot

PASSED: Final = Verdict()


def review(asked: Review[Any], snapshot: Snapshot, *, options: Options = DEFAULTS) -> Verdict:
    """Judge what is *asked* in the light of *snapshot*; all findings at once."""
    subject, old = asked.subject, asked.old
    context: Context[Any] = Context(snapshot, old, options)
    if subject.metadata.deletion_timestamp:
        return PASSED  # whoever edits it now removes a finalizer
    match subject, asked.operation:
        case VIPPool(), Operation.DELETE:
            return run(pools.DELETION, subject, context)
        case KeepalivedGroup(), Operation.DELETE:
            return run(groups.DELETION, subject, context)
        case _, Operation.DELETE:
            return PASSED
        case Service(), _:
            return _service(subject, context)
        case KeepalivedGroup(), _:
            return run(groups.CHAIN, subject, context, since=old)
        case VIPPool(), _:
            return run(pools.CHAIN, subject, context, since=old)
    return PASSED


def _service(subject: Service, context: Context[Service]) -> Verdict:
    snapshot, old = context.snapshot, context.old
    group = snapshot.group_of(subject)
    if group is None:
        return run(services.UNMANAGED, subject, context, since=old)
    # What was not managed was not judged: becoming managed is judged as creation is.
    since = old if old is not None and not _is_unseen(old) and snapshot.group_of(old) is not None else None
    return run(services.CHAIN, subject, Context(snapshot, since, context.options, group), since=since)


def _is_unseen(old: Service) -> bool:
    """Whether *old* has external IPs that passed while the mutating webhook was away."""
    return bool(old.spec.external_ips) and not old.is_marked
