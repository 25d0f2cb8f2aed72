"""
What the pods of a group are told: an annotation, upon which kubelet refreshes what they have mounted.

It carries the digest of the configuration. While an agent waits for its password it changes every few seconds: kavip
may not read Secrets, so it cannot know when there is a better one.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from kavip import names
from kavip.api.agent import ProblemCode
from kavip.api.cluster import Pod
from kavip.api.workload import controller_of
from kavip.reconcile.group.manifests import digest
from kavip.reconcile.group.status import View
from kavip.reconcile.migration.progress import is_old
from kavip.reconcile.plan import PodAnnotation

NUDGE: Final = 10.0
"""Seconds after which pods whose password is missing or of no use are told again; kubelet alone takes over a minute."""

_PASSWORD_CODES: Final = frozenset({ProblemCode.PASSWORD_MISSING, ProblemCode.PASSWORD_MISMATCH})


def lacks_password(view: View) -> bool:
    """Whether an agent complains about the Secret."""
    codes = {code for state in view.states.values() for code in (state.refused_code, state.next_refused_code)}
    return not codes.isdisjoint(_PASSWORD_CODES)


def errands(view: View, data: Mapping[str, str], *, now: datetime) -> tuple[PodAnnotation, ...]:
    """Tell each pod that does not know yet that its ConfigMap holds *data*."""
    value = digest({name: text if name == names.AGENT_KEY else "" for name, text in data.items()})  # it has the hashes
    if lacks_password(view):
        value = f"{value}-{now.timestamp() // NUDGE:.0f}"
    pods = sorted((pod for pod in view.pods if not is_old(pod, view.group)), key=lambda pod: pod.metadata.key)
    return tuple(PodAnnotation(pod.metadata.key, value) for pod in pods if _is_to_be_told(pod, view, value))


def _is_to_be_told(pod: Pod, view: View, value: str) -> bool:
    if pod.metadata.annotation(names.CONFIG_HASH_ANNOTATION) == value or pod.metadata.deletion_timestamp:
        return False
    owner = controller_of(pod.metadata)
    return owner is not None and (owner.kind, owner.name) == (names.DAEMON_SET, view.group.metadata.name)
