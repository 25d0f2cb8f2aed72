"""``authorization.k8s.io/v1``: whether somebody may do something, as the API server answers it."""

from kavip.api.meta import Metadata, Wire


class AccessStatus(Wire, frozen=True):
    """``status``: *denied* is an authorizer's veto."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(Wire, frozen=True):
    """A question that is answered at once and stored nowhere."""

    metadata: Metadata = Metadata()
    status: AccessStatus = AccessStatus()
