"""``authorization.k8s.io/v1`` SubjectAccessReview: the API server decides whether a user may do something."""

from kavip.api.meta import Metadata, Wire


class AccessStatus(Wire, frozen=True):
    """``status``: *denied* is an authorizer's veto."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(Wire, frozen=True):
    """A review; the API server answers it in the response and does not store it."""

    metadata: Metadata = Metadata()
    status: AccessStatus = AccessStatus()
