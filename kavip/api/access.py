"""
Reviews that the API server answers in the response, and does not store.

TokenReview of ``authentication.k8s.io/v1``: whose token it is. SubjectAccessReview of ``authorization.k8s.io/v1``:
whether a user may do something.
"""

from kavip.api.meta import Metadata, Wire
from kavip.api.review import UserInfo


class TokenStatus(Wire, frozen=True):
    """``status`` of a TokenReview."""

    authenticated: bool = False
    user: UserInfo = UserInfo()


class TokenReview(Wire, frozen=True):
    """The owner of a token."""

    metadata: Metadata = Metadata()
    status: TokenStatus = TokenStatus()


class AccessStatus(Wire, frozen=True):
    """``status`` of a SubjectAccessReview: *denied* is an authorizer's veto."""

    allowed: bool = False
    denied: bool = False


class SubjectAccessReview(Wire, frozen=True):
    """The right of a user."""

    metadata: Metadata = Metadata()
    status: AccessStatus = AccessStatus()
