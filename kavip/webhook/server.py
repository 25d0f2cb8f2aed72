"""
The TLS server on 9443: bytes in, an AdmissionReview out.

A bad request is an HTTP error, so that the API server's ``failurePolicy`` decides; a bad object is a ``.response``. A
rule that raises gives a well-formed answer all the same: a validator says no with code 500, a mutator lets pass
unchanged; both are counted, and logged with the UID. Until the caches are filled every review is answered 503, never
with a guess. How long a stranger may take, and how much, is decided in :mod:`kavip.http.listener` and
:mod:`kavip.webhook.body`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from traceback import extract_tb
from typing import Final

import structlog
from aiohttp import web
from prometheus_client import Counter

from kavip import names, telemetry
from kavip.admission import mutation, policy
from kavip.admission.chain import PolicyOptions
from kavip.admission.response import ReviewedObject, failure, response
from kavip.admission.verdict import Verdict
from kavip.api import review as wire
from kavip.api.group import KeepalivedGroup
from kavip.api.pool import VIPPool
from kavip.api.refusal import Refusal
from kavip.api.review import AdmissionRequest, AdmissionResponse, UserInfo
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.http.listener import Listener, Reply
from kavip.names import Reason
from kavip.pki.certificates import Pair
from kavip.snapshot import Snapshot
from kavip.webhook.body import Reader, Unreadable
from kavip.webhook.certs import tls

PATIENCE: Final = 0.5  # seconds for which an object that is missing may still arrive
_LOOK: Final = 0.02
_ERROR, _ALLOWED, _DENIED = "error", "allowed", "denied"

_JSON: Final = "application/json"

log: Final = structlog.get_logger(__name__)

Decide = Callable[[AdmissionRequest, Snapshot, PolicyOptions], Verdict]
Exemption = Callable[[UserInfo, str], Awaitable[bool]]
"""Whether a user is exempt from the rules about external IPs in a namespace."""


async def nobody(_user: UserInfo, _namespace: str) -> bool:
    """Nobody is exempt."""
    return False


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
    names.MUTATE_SERVICE_PATH: Route(
        lambda request, snapshot, _: mutation.mutate_service(request, snapshot), mutates=True
    ),
    names.MUTATE_GROUP_PATH: Route(lambda request, _, __: mutation.mutate_group(request), mutates=True),
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
        options: PolicyOptions = PolicyOptions(),  # noqa: B008 - frozen
        routes: Mapping[str, Route] = ROUTES,
        may_set_external_ips: Exemption = nobody,
    ) -> None:
        """Make the server; :meth:`start` opens the port, :meth:`present` gives it a certificate."""
        self._may_set_external_ips = may_set_external_ips
        self._snapshot, self._caches_unready, self._options = snapshot, unready, options
        self._context = tls.context()
        self._has_certificate = False
        self._draining = False
        self._desks = {path: _Desk(path, route) for path, route in routes.items()}
        self._bodies = Reader()
        self._listener = Listener(
            self._serve, tls=lambda: self._context, evicted=telemetry.EVICTIONS.labels("webhook").inc
        )

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
        self._context = tls.showing(leaf)
        self._has_certificate = True
        telemetry.CERTIFICATE_EXPIRY.labels("leaf").set(leaf.certificate.not_valid_after_utc.timestamp())

    async def start(self, host: str = "", port: int = names.WEBHOOK_PORT) -> int:
        """Open the port, and return it: with *port* 0 the kernel has chosen."""
        bound = await self._listener.start(host, port)
        log.info("webhook listens", host=host or "*", port=bound)
        return bound

    async def stop(self, drain: float = 0.0) -> None:
        """
        Close the port.

        For *drain* seconds before that, go on answering with ``Connection: close``: the API server keeps its
        connections to a pod that has left the endpoints, and each must be told. Those on which nothing was asked
        meanwhile get the listener's farewell.
        """
        self._draining = True
        await asyncio.sleep(drain)
        await self._listener.stop()

    async def _serve(self, request: web.BaseRequest) -> web.Response | Reply:
        """Answer one request."""
        desk = self._desks.get(request.path)
        if desk is None:
            return _told(404, f"no such path; want one of {', '.join(sorted(self._desks))}")
        if request.method != "POST":
            return _told(405, "want POST", Allow="POST")
        if reason := self.refusing():
            return _told(503, reason)
        try:
            body = await self._bodies.read(request)
        except Unreadable as error:
            return _told(error.status, str(error))
        try:
            reply = Reply(await self._review(desk, body), _JSON)
        except BadInput as error:
            return _told(400, str(error))
        finally:
            self._bodies.free(body)
        if self._draining:
            reply.force_close()
        return reply

    async def _review(self, desk: "_Desk", body: bytes) -> bytes:
        start = perf_counter()
        asked = wire.read(body)
        answered, outcome = await self._answer(desk, asked)
        desk.outcomes[outcome].inc()
        desk.seconds.observe(perf_counter() - start)
        return wire.answer(answered)

    async def _answer(self, desk: "_Desk", asked: AdmissionRequest) -> tuple[AdmissionResponse, str]:
        subject = ReviewedObject(
            kind=asked.kind.kind, group=asked.kind.group, name=asked.name, namespace=asked.namespace
        )
        mutates = desk.route.mutates
        try:
            found = await self._decide(desk.route, asked)
            if found.exemptible:
                found = await self._pardoned(found, asked)
        except BadInput as error:
            found = Verdict() if mutates else Verdict((Refusal.of(Reason.INVALID, error),))
        except Exception as error:  # noqa: BLE001 - the edge: logged, counted, and answered
            log.error("review failed", path=desk.path, uid=asked.uid, error=type(error).__name__, at=_places(error))
            if mutates:
                return response(asked.uid, Verdict(), subject), _ERROR
            text = f"kavip could not judge this {subject.kind}: an error of its own; its log has it under {asked.uid}"
            return failure(asked.uid, 500, "InternalError", text), _ERROR
        return response(asked.uid, found, subject), _ALLOWED if found.allowed else _DENIED

    async def _pardoned(self, found: Verdict, asked: AdmissionRequest) -> Verdict:
        """*found*, without what does not bind this user; he is asked about only where that would let the object in."""
        pardoned = found.exempted()
        if pardoned.allowed and await self._may_set_external_ips(asked.user_info, asked.namespace):
            return pardoned
        return found

    async def _decide(self, route: Route, asked: AdmissionRequest) -> Verdict:
        """Judge; and judge again once what was missing has arrived: it may come with the same ``kubectl apply``."""
        self._snapshot.rests.expire(datetime.now(UTC))
        found = route.decide(asked, self._snapshot, self._options)
        clock = asyncio.get_running_loop().time
        deadline = clock() + PATIENCE
        while found.missing and not found.allowed and clock() < deadline:
            await asyncio.sleep(_LOOK)
            if any(reference.exists(self._snapshot) for reference in found.missing):
                found = route.decide(asked, self._snapshot, self._options)
        return found


class _Desk:
    """A path with its route and its metrics, looked up once."""

    __slots__ = ("outcomes", "path", "route", "seconds")

    def __init__(self, path: str, route: Route) -> None:
        self.path, self.route = path, route
        self.outcomes: dict[str, Counter] = {
            outcome: telemetry.REVIEWS.labels(path, outcome) for outcome in (_ALLOWED, _DENIED, _ERROR)
        }
        self.seconds = telemetry.REVIEW_SECONDS.labels(path)


def _told(status: int, why: str, **headers: str) -> web.Response:
    """An HTTP error with one line of reason."""
    return web.Response(status=status, text=f"{why}\n", headers=headers)


def _places(error: BaseException) -> list[str]:
    """Where *error* came through; its message may quote the object, so it is not told."""
    return [f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in extract_tb(error.__traceback__)]
