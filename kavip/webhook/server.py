"""
The TLS server on 9443: bytes in, an AdmissionReview out.

A bad request is an HTTP error, so that the API server's ``failurePolicy`` decides; a bad object is a ``.response``. A
rule that raises gives a well-formed answer all the same: a validator says no with code 500, a mutator lets pass
unchanged; both are counted, and logged with the UID. Until the caches are filled every review is answered 503, never
with a guess.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Final

import structlog
from aiohttp import web

from kavip import names, telemetry
from kavip.api import review as wire
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.review import AdmissionRequest, AdmissionResponse
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.names import Reason
from kavip.snapshot import Snapshot
from kavip.webhook import mutation, policy, verdict
from kavip.webhook.certs import Pair
from kavip.webhook.checks import Options
from kavip.webhook.verdict import Subject, Verdict

# The API server takes objects of 3 MiB at most; a review carries two of them as JSON (controller-runtime's derivation).
BODY_LIMIT: Final = 7 * 1024 * 1024
DEADLINE: Final = 1.8  # seconds for a whole review; the shorter timeoutSeconds is 2
PATIENCE: Final = 0.5  # seconds for which an object that is missing may still arrive (contract 8)
_LOOK: Final = 0.02
_IDLE: Final = 3600.0  # longer than any client keeps a connection: closing one that is about to be used loses a call

log: Final = structlog.get_logger(__name__)

Decide = Callable[[AdmissionRequest, Snapshot, Options], Verdict]


@dataclass(frozen=True, slots=True)
class Route:
    """What stands behind a path; where *mutates*, no failure of ours may stop a request."""

    decide: Decide
    mutates: bool = False


def _validates(kind: type[Service] | type[KeepalivedGroup] | type[VIPPool]) -> Route:
    return Route(
        lambda request, snapshot, options: policy.review(wire.question(request, kind), snapshot, options=options)
    )


ROUTES: Final[Mapping[str, Route]] = {
    names.MUTATE_SERVICE_PATH: Route(lambda request, snapshot, _: mutation.service(request, snapshot), mutates=True),
    names.MUTATE_GROUP_PATH: Route(lambda request, _, __: mutation.group(request), mutates=True),
    names.VALIDATE_SERVICE_PATH: _validates(Service),
    names.VALIDATE_GROUP_PATH: _validates(KeepalivedGroup),
    names.VALIDATE_POOL_PATH: _validates(VIPPool),
}


class Server:
    """Answers reviews from *snapshot*; *unready* says why the caches may not be trusted yet, or ""."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        unready: Callable[[], str] = lambda: "",
        options: Options = Options(),  # noqa: B008 - frozen
        routes: Mapping[str, Route] = ROUTES,
    ) -> None:
        """Make the server; :meth:`start` opens the port, :meth:`present` gives it a certificate."""
        self._snapshot, self._caches_unready, self._options = snapshot, unready, options
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._context.set_alpn_protocols(["http/1.1"])
        self._has_certificate = False
        self._draining = False
        application = web.Application(client_max_size=BODY_LIMIT)
        for path, route in routes.items():
            application.router.add_post(path, partial(self._serve, path, route))
        self._runner = web.AppRunner(application, access_log=None, keepalive_timeout=_IDLE, handle_signals=False)

    def unready(self) -> str:
        """Say why reviews are not answered, or should not be sent here any more; "" when all is well."""
        if self._draining:
            return "shutting down"
        return self.refusing()

    def refusing(self) -> str:
        """Say why reviews are answered 503; "" when they are judged. While draining they still are."""
        return self._caches_unready() if self._has_certificate else "no certificate yet"

    def present(self, leaf: Pair) -> None:
        """Serve with *leaf* from the next connection on; those that stand keep theirs."""
        # OpenSSL reads files only. A memfd is one that never touches a disk, and works on a read-only root.
        descriptor = os.memfd_create("kavip-webhook-leaf", os.MFD_CLOEXEC)
        try:
            os.write(descriptor, leaf.certificate_pem + leaf.key_pem)
            self._context.load_cert_chain(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)
        self._has_certificate = True
        telemetry.CERTIFICATE_EXPIRY.labels("leaf").set(leaf.certificate.not_valid_after_utc.timestamp())

    async def start(self, host: str = "", port: int = names.WEBHOOK_PORT) -> int:
        """Open the port, and return it: with *port* 0 the kernel has chosen."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host or None, port, ssl_context=self._context).start()
        bound: int = self._runner.addresses[0][1]
        log.info("webhook listens", host=host or "*", port=bound)
        return bound

    async def stop(self, drain: float = 0.0) -> None:
        """
        Close the port.

        For *drain* seconds before that, go on answering with ``Connection: close``: the API server keeps its
        connections to a pod that has left the endpoints, and each must be told.
        """
        self._draining = True
        await asyncio.sleep(drain)
        connections = self._runner.server.connections if self._runner.server else []
        transports = [each.transport for each in connections if each.transport is not None]
        await self._runner.cleanup()
        for transport in transports:
            if not transport.get_write_buffer_size():
                transport.abort()  # idle: asyncio would wait half a minute for the peer's farewell
        await asyncio.sleep(0)

    async def _serve(self, path: str, route: Route, request: web.Request) -> web.Response:
        if reason := self.refusing():
            raise web.HTTPServiceUnavailable(text=f"{reason}\n")
        start = perf_counter()
        try:
            async with asyncio.timeout(DEADLINE):
                asked = wire.read(await _body(request))
                answered, outcome = await self._answer(path, route, asked)
        except TimeoutError:
            raise web.HTTPRequestTimeout(text=f"no whole review within {DEADLINE} seconds\n") from None
        except BadInput as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None
        telemetry.REVIEWS.labels(path, outcome).inc()
        telemetry.REVIEW_SECONDS.labels(path).observe(perf_counter() - start)
        reply = web.Response(body=wire.answer(answered), content_type="application/json")
        if self._draining:
            reply.force_close()
        return reply

    async def _answer(self, path: str, route: Route, asked: AdmissionRequest) -> tuple[AdmissionResponse, str]:
        subject = Subject(kind=asked.kind.kind, group=asked.kind.group, name=asked.name)
        try:
            found = await self._decide(route, asked)
        except BadInput as error:
            found = Verdict() if route.mutates else Verdict((Refusal.of(Reason.INVALID, error),))
        except Exception:
            log.exception("review failed", path=path, uid=asked.uid)
            if route.mutates:
                return verdict.response(asked.uid, Verdict(), subject), "error"
            text = f"kavip could not judge this {subject.kind}: an error of its own; its log has it under {asked.uid}"
            return verdict.failure(asked.uid, 500, "InternalError", text), "error"
        return verdict.response(asked.uid, found, subject), "allowed" if found.allowed else "denied"

    async def _decide(self, route: Route, asked: AdmissionRequest) -> Verdict:
        """Judge; and judge again once what was missing has arrived: it may come with the same ``kubectl apply``."""
        found = route.decide(asked, self._snapshot, self._options)
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE
        while found.awaits and not found.allowed and clock() < deadline:
            await asyncio.sleep(_LOOK)
            if any(awaited.arrived(self._snapshot) for awaited in found.awaits):
                found = route.decide(asked, self._snapshot, self._options)
        return found


async def _body(request: web.Request) -> bytes:
    if request.content_type != "application/json":
        raise BadInput("Content-Type", request.content_type, "want application/json")
    return await request.read()
