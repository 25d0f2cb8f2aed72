"""
The certificate of a port with TLS: files that another program writes, or one that this process signs itself.

Files are read again every ten seconds, as controller-runtime does, because kubelet swaps them below the mount. A file
that is missing or malformed changes nothing: the last good certificate stays, and the log has the cause. Without any
certificate each handshake fails. A self-signed certificate is in memory only, and is renewed in time.
"""

import asyncio
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from kavip import telemetry
from kavip.errors import BadInput
from kavip.http import tls
from kavip.pki.certificates import KeyPair, is_due, new_self_signed

CERTIFICATE_FILE: Final = "tls.crt"
KEY_FILE: Final = "tls.key"
_RELOAD_SECONDS: Final = 10.0

log: Final = structlog.get_logger(__name__)


class ServingCertificate:
    """The certificate *name* of a port, from *folder*; if that is "", a self-signed one for *host*."""

    def __init__(
        self, name: str, *, folder: str, host: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """:meth:`update` reads the files."""
        self._name, self._folder, self._host, self._clock = name, folder, host, clock
        self._context = tls.server_context()
        self._leaf: KeyPair | None = None
        self._problem = ""

    def context(self) -> ssl.SSLContext:
        """The TLS context for the next connection."""
        return self._context

    async def update(self) -> None:
        """Read the files, or renew the certificate if it is due."""
        try:
            leaf, context = await asyncio.to_thread(self._load)
        except (OSError, BadInput) as error:  # also ssl.SSLError
            self._report(f"{self._folder}: {error}")
            return
        self._report("")
        if leaf != self._leaf:
            self._leaf, self._context = leaf, context
            telemetry.CERTIFICATE_EXPIRY.labels(self._name).set(leaf.certificate.not_valid_after_utc.timestamp())

    async def run(self, *, every: float = _RELOAD_SECONDS) -> None:
        """Update until cancelled."""
        while True:
            await asyncio.sleep(every)
            await self.update()

    def _load(self) -> tuple[KeyPair, ssl.SSLContext]:
        if self._folder:
            certificate, key = (Path(self._folder, name).read_bytes() for name in (CERTIFICATE_FILE, KEY_FILE))
            leaf = KeyPair.load(certificate, key)
        elif self._leaf is None or is_due(self._leaf.certificate, self._clock()):
            leaf = new_self_signed(self._host, self._clock())
        else:
            leaf = self._leaf
        return leaf, self._context if leaf == self._leaf else tls.serving_context(leaf)

    def _report(self, problem: str) -> None:
        """Log *problem* if it is new."""
        if problem and problem != self._problem:
            log.warning("certificate unusable", certificate=self._name, error=problem)
        self._problem = problem
