"""
What is trusted and stands in no Secret of ours: left alone for a while, then taken out.

It may be the CA of replicas that serve another mode, or of a Secret that we have not seen yet; they are gone, or seen,
long before the while is over. Whoever takes it out first is followed: nobody puts it back.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from kavip.pki import certificates

STAY: Final = timedelta(minutes=5)
MOST: Final = 200  # any of them may be the one that counts, and ca.crt may be the bundle of a distribution


class Strangers:
    """Remembers since when each is there."""

    def __init__(self) -> None:
        """Nothing is seen yet."""
        self._since: dict[x509.Certificate, datetime] = {}

    def lingering(
        self, published: Sequence[x509.Certificate], ours: Collection[x509.Certificate], now: datetime
    ) -> list[x509.Certificate]:
        """Those *published* that are not *ours* and may stay yet."""
        found = [one for one in certificates.alive(published, now) if one not in ours]
        self._since = {one: self._since.get(one, now) for one in found}
        return [one for one in found if now - self._since[one] < STAY][:MOST]
