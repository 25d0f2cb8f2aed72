"""What the API server trusts, as far as kavip's webhooks are registered."""

from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509

from kavip.pki.certificates import KeyPair
from kavip.pki.verification import is_trusted


@dataclass(frozen=True, slots=True)
class Trust:
    """
    The *cas* that every webhook trusts, and whether any webhook *is_registered*.

    Without a webhook the API server sends nothing, so it cannot distrust a replica either.
    """

    cas: Sequence[x509.Certificate]
    is_registered: bool = True

    def accepts(self, leaf: KeyPair) -> bool:
        """Whether the API server trusts *leaf*, or sends nothing yet."""
        return not self.is_registered or is_trusted(leaf, self.cas)
