"""
The TLS server on port 9443: AdmissionReviews in, AdmissionReviews out.

A malformed request is an HTTP error, so the ``failurePolicy`` of the webhook decides. A bad object is a regular
response. A rule that raises an exception still gives a well-formed response: a validator refuses with code 500, a
mutator allows the object unchanged; both are counted, and logged with the UID. Until the caches are synced every
review is answered with 503. :mod:`kavip.http.listener` and :mod:`kavip.webhook.body` bound the time and the bytes of a
client.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
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
from kavip.api.rawobject import UncheckedUpdate
from kavip.api.refusal import Refusal
from kavip.api.review import AdmissionRequest, AdmissionResponse, UserInfo
from kavip.api.service import Service
from kavip.errors import BadInput
from kavip.http import tls
from kavip.http.connection import Reply
from kavip.http.listener import Listener
from kavip.names import Reason
from kavip.pki.certificates import KeyPair
from kavip.snapshot import Snapshot
from kavip.webhook.body import BodyReader, UnreadableBody
from kavip.webhook.senders import sender_kinds

WAIT_FOR_REFERENCES: Final = 0.5  # seconds for which a missing group or pool may still be created
_POLL_SECONDS: Final = 0.02
_REFUSALS_LOGGED_EVERY: Final = 60.0  # seconds
_ERROR, _ALLOWED, _DENIED = "error", "allowed", "denied"

_JSON: Final = "application/json"

log: Final = structlog.get_logger(__name__)

Decide = Callable[[AdmissionRequest, Snapshot, PolicyOptions], Verdict]
Authorize = Callable[[UserInfo], Awaitable[bool]]
"""Whether a user may set any external IP."""


AuthorizeIn = Callable[[UserInfo, str], Awaitable[bool]]
"""Whether a user may create DaemonSets in a namespace."""


async def no_exemptions(_user: UserInfo) -> bool:
    """No user is exempt from the rules for external IPs."""
    return False


async def no_authors(_user: UserInfo, _namespace: str) -> bool:
    """No user may create DaemonSets."""
    return False


@dataclass(frozen=True, slots=True)
class Route:
    """The decision of a path; if it *mutates*, an internal error must not refuse a request."""

    decide: Decide
    mutates: bool = False


def _validates(kind: type[Service] | type[KeepalivedGroup] | type[VIPPool]) -> Route:
    def decide(request: AdmissionRequest, snapshot: Snapshot, options: PolicyOptions) -> Verdict:
        try:
            parsed = wire.decode_objects(request, kind)
        except UncheckedUpdate as error:
            return policy.unchecked(error)
        return policy.review(parsed, snapshot, options=options)

    return Route(decide)


ROUTES: Final[Mapping[str, Route]] = {
    names.MUTATE_SERVICE_PATH: Route(
        lambda request, snapshot, _: mutation.mutate_service(request, snapshot), mutates=True
    ),
    names.MUTATE_GROUP_PATH: Route(lambda request, _, __: mutation.mutate_group(request), mutates=True),
    names.VALIDATE_SERVICE_PATH: _validates(Service),
    names.VALIDATE_GROUP_PATH: _validates(KeepalivedGroup),
    names.VALIDATE_POOL_PATH: _validates(VIPPool),
}


class WebhookServer:
    """Answers reviews from *snapshot*; *unready* returns why the caches cannot be used yet, or ""."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        unready: Callable[[], str] = lambda: "",
        options: PolicyOptions = PolicyOptions(),  # noqa: B008 - frozen
        routes: Mapping[str, Route] = ROUTES,
        may_set_external_ips: Authorize = no_exemptions,
        may_create_daemon_sets: AuthorizeIn = no_authors,
        client_ca: str = "",
    ) -> None:
        """
        :meth:`start` opens the port, :meth:`serve_certificate` sets the certificate.

        No other connection displaces one with a client certificate of *client_ca*, which is PEM.
        """
        self._may_set_external_ips, self._may_create_daemon_sets = may_set_external_ips, may_create_daemon_sets
        self._snapshot, self._caches_unready, self._options = snapshot, unready, options
        self._client_ca = client_ca
        self._context = tls.server_context(client_ca)
        self._has_certificate = False
        self._draining = False
        self._endpoints = {path: _Endpoint(path, route) for path, route in routes.items()}
        self._bodies = BodyReader()
        self._listener = Listener(
            self._handle,
            tls=lambda: self._context,
            evicted=telemetry.EVICTIONS.labels("webhook").inc,
            kind_of=sender_kinds(snapshot),
            refused=self._log_refused,
        )
        self._refused_at = -inf

    def unready(self) -> str:
        """Why this replica should get no reviews; "" if it should."""
        if self._draining:
            return "shutting down"
        return self.unavailable()

    def unavailable(self) -> str:
        """Why reviews are answered with 503; "" if they are evaluated, also while the server drains."""
        return self._caches_unready() if self._has_certificate else "no certificate yet"

    def serve_certificate(self, leaf: KeyPair) -> None:
        """Serve *leaf* from the next connection on; open connections keep the previous one."""
        self._context = tls.serving_context(leaf, self._client_ca)
        self._has_certificate = True
        telemetry.CERTIFICATE_EXPIRY.labels("leaf").set(leaf.certificate.not_valid_after_utc.timestamp())

    async def start(self, host: str = "", port: int = names.WEBHOOK_PORT) -> int:
        """Open the port and return it; with *port* 0 the kernel chooses one."""
        bound = await self._listener.start(host, port)
        log.info("webhook listening", host=host or "*", port=bound)
        return bound

    async def stop(self, drain: float = 0.0) -> None:
        """
        Drain for so many seconds, then close the port.

        While it drains the server answers with ``Connection: close``: the API server keeps its connections to a pod
        that has left the endpoints, so each of them must be closed. The listener closes those without a request.
        """
        self._draining = True
        await asyncio.sleep(drain)
        await self._listener.stop()

    def _log_refused(self, client: str, why: str) -> None:
        """Log a client certificate that is not accepted; any client can present one, so once a minute."""
        now = asyncio.get_running_loop().time()
        if now - self._refused_at >= _REFUSALS_LOGGED_EVERY:
            self._refused_at = now
            log.warning("client certificate refused", client=client, why=why)

    async def _handle(self, request: web.BaseRequest) -> web.Response | Reply:
        endpoint = self._endpoints.get(request.path)
        if endpoint is None:
            return _http_error(404, f"no such path; want one of {', '.join(sorted(self._endpoints))}")
        if request.method != "POST":
            return _http_error(405, "want POST", Allow="POST")
        if reason := self.unavailable():
            return _http_error(503, reason)
        try:
            if (small := self._bodies.take_small(request)) is not None:
                answer = await self._review(endpoint, small)
            else:
                async with self._bodies.read(request) as body:
                    answer = await self._review(endpoint, body)
        except UnreadableBody as error:
            return _http_error(error.status, str(error))
        except BadInput as error:
            return _http_error(400, str(error))
        reply = Reply(answer, _JSON)
        if self._draining:
            reply.force_close()
        return reply

    async def _review(self, endpoint: "_Endpoint", body: bytes) -> bytes:
        start = perf_counter()
        request = wire.decode_request(body)
        answer, outcome = await self._answer(endpoint, request)
        endpoint.outcomes[outcome].inc()
        endpoint.seconds.observe(perf_counter() - start)
        return wire.encode_response(answer)

    async def _answer(self, endpoint: "_Endpoint", request: AdmissionRequest) -> tuple[AdmissionResponse, str]:
        kind = request.kind
        reviewed = ReviewedObject(kind=kind.kind, group=kind.group, name=request.name, namespace=request.namespace)
        mutates = endpoint.route.mutates
        try:
            verdict = await self._decide(endpoint.route, request)
            if verdict.exemptible:
                verdict = await self._exempt(verdict, request)
            if verdict.conditional:
                verdict = await self._restrict(verdict, request)
        except BadInput as error:
            verdict = Verdict() if mutates else Verdict((Refusal.of(Reason.INVALID, error),))
        except Exception as error:  # noqa: BLE001 - an edge of kavip: logged, counted, and answered
            frames = _frames(error)
            log.error("review failed", path=endpoint.path, uid=request.uid, error=type(error).__name__, at=frames)
            if mutates:
                return response(request.uid, Verdict(), reviewed), _ERROR
            text = f"kavip could not evaluate this {kind.kind}: internal error; see kavip's log for uid {request.uid}"
            return failure(request.uid, 500, "InternalError", text), _ERROR
        return response(request.uid, verdict, reviewed), _ALLOWED if verdict.allowed else _DENIED

    async def _exempt(self, verdict: Verdict, request: AdmissionRequest) -> Verdict:
        """Lift the exemptible refusals for an exempt user; check the authorization only if that allows the object."""
        exempted = verdict.exempted()
        if not exempted.allowed:
            return verdict
        try:
            user = wire.decode_user(request)
        except BadInput as error:
            log.warning("no access review", error=str(error))
            return verdict
        return exempted if await self._may_set_external_ips(user) else verdict

    async def _restrict(self, verdict: Verdict, request: AdmissionRequest) -> Verdict:
        """Refuse what needs a right that the user lacks; the API server is asked only if that matters."""
        if not verdict.allowed:
            return verdict
        user = wire.decode_user(request)
        return verdict if await self._may_create_daemon_sets(user, request.namespace) else verdict.restricted()

    async def _decide(self, route: Route, request: AdmissionRequest) -> Verdict:
        """Decide, and again once a missing reference exists: the same ``kubectl apply`` may create it."""
        self._snapshot.ledger.cooldown.expire(datetime.now(UTC))
        verdict = route.decide(request, self._snapshot, self._options)
        clock = asyncio.get_running_loop().time
        deadline = clock() + WAIT_FOR_REFERENCES
        while verdict.missing and not verdict.allowed and clock() < deadline:
            await asyncio.sleep(_POLL_SECONDS)
            if any(reference.exists(self._snapshot) for reference in verdict.missing):
                verdict = route.decide(request, self._snapshot, self._options)
        return verdict


class _Endpoint:
    """A path with its route and its metrics; looking up metrics by label is slow."""

    __slots__ = ("outcomes", "path", "route", "seconds")

    def __init__(self, path: str, route: Route) -> None:
        self.path, self.route = path, route
        self.outcomes: dict[str, Counter] = {
            outcome: telemetry.REVIEWS.labels(path, outcome) for outcome in (_ALLOWED, _DENIED, _ERROR)
        }
        self.seconds = telemetry.REVIEW_SECONDS.labels(path)


def _http_error(status: int, reason: str, **headers: str) -> web.Response:
    return web.Response(status=status, text=f"{reason}\n", headers=headers)


def _frames(error: BaseException) -> list[str]:
    """The frames of the traceback. The message is not logged: it may quote the object."""
    return [f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in extract_tb(error.__traceback__)]
