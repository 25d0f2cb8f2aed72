"""
Runs cases of the refusal table at a real API server whose webhook is kavip.

Only the Snapshot is not real: the Snapshot of a case has objects that an API server would not keep as they are, such as
addresses that an informer has not read yet. While no case runs, the webhook accepts everything, so the objects that a
case needs can be created.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from hack import refusals
from hack.refusals import Case, Manifest
from hack.testbed.controlplane import ControlPlane
from hack.testbed.place import Result
from kavip.admission.chain import ALLOWED, PolicyOptions
from kavip.admission.registration import RegistrationOptions, URLClientConfig
from kavip.admission.verdict import Verdict
from kavip.api.review import AdmissionRequest, UserInfo
from kavip.kube.client import Client
from kavip.snapshot import Snapshot
from kavip.webhook.certs.registrar import WebhookRegistrar
from kavip.webhook.certs.selfsigned import DynamicAuthority
from kavip.webhook.server import ROUTES, Route, WebhookServer
from tests.admission.apiclient import APPLY, MERGE, Answer, ApiClient, object_path
from tests.support.loopthread import LoopThread

NAME = "kavip-cases"  # of the webhook configurations, and the namespace of the CA
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(slots=True)
class CaseRunner:
    """The API server of *plane*, kubectl, and the case that runs."""

    plane: ControlPlane
    api: ApiClient
    case: Case | None = None
    _snapshot: Snapshot = field(default_factory=Snapshot)

    def decide(self, route: Route, request: AdmissionRequest, _snapshot: Snapshot, _options: PolicyOptions) -> Verdict:
        """Evaluate *request* against the cluster of the case, without waiting for missing references."""
        if self.case is None:
            return ALLOWED
        return replace(route.decide(request, self._snapshot, self.case.options), missing=())

    async def exempts(self, _user: UserInfo) -> bool:
        """Whether the user of the case may set any external IP."""
        return self.case is not None and self.case.exempt

    async def permits(self, _user: UserInfo, _namespace: str) -> bool:
        """Whether the user of the case may create DaemonSets."""
        return self.case is not None and self.case.exempt

    @contextmanager
    def running(self, case: Case) -> Iterator[None]:
        """Create the old object of *case*, evaluate requests against its cluster, and clean up."""
        start = case.old
        if start:
            self.put(start)
        self.case, self._snapshot = case, refusals.snapshot(case)
        try:
            yield
        finally:
            self.case = None
            for path in {object_path(each) for each in (case.object, start) if each}:
                self.api.request("DELETE", path)

    def put(self, manifest: Manifest) -> None:
        """Create *manifest* as both kinds of ``kubectl apply`` would have done, with its status."""
        body = {key: value for key, value in manifest.items() if key != "status"}
        body["metadata"] = {key: value for key, value in body["metadata"].items() if key != "creationTimestamp"}
        note = {"metadata": {"annotations": {_APPLIED: json.dumps(body)}}}
        named = {key: manifest[key] for key in ("apiVersion", "kind")}
        self._patch(object_path(manifest), body, kind=APPLY, fieldManager="kubectl")
        self._patch(object_path(manifest), {**named, **note}, kind=APPLY, fieldManager="kubectl-last-applied")
        if status := manifest.get("status"):
            self._patch(f"{object_path(manifest)}/status", {"status": status}, kind=MERGE)

    def _patch(self, path: str, body: object, **how: str) -> None:
        answer = self.api.request("PATCH", path, body, **how)
        assert answer.code in (200, 201), answer.body

    def get(self, manifest: Manifest) -> Answer:
        """The object that *manifest* names."""
        return self.api.request("GET", object_path(manifest))

    def kubectl(self, *args: str, given: object = None) -> Result:
        """Run kubectl with *given* on its standard input; never raises."""
        return self.plane.kubectl(*args, input=json.dumps(given) if given else None, check=False)


@contextmanager
def case_runner(plane: ControlPlane, loop: LoopThread) -> Iterator[CaseRunner]:
    """A runner for *plane*, registered for every Service that kavip could manage."""
    runner = CaseRunner(plane, ApiClient(plane))
    routes = {path: replace(route, decide=partial(runner.decide, route)) for path, route in ROUTES.items()}
    server, client = (
        WebhookServer(
            Snapshot(), routes=routes, may_set_external_ips=runner.exempts, may_create_daemon_sets=runner.permits
        ),
        Client.from_settings(str(plane.kubeconfig)),
    )
    port = loop.run(server.start("127.0.0.1", 0))
    loop.run(client.__aenter__())
    publisher = WebhookRegistrar(
        client,
        NAME,
        URLClientConfig(f"https://127.0.0.1:{port}"),
        NAME,
        options=RegistrationOptions(external_ips="all"),
    )
    authority = DynamicAuthority(
        client, namespace=NAME, hosts=["127.0.0.1"], serve=server.serve_certificate, publisher=publisher
    )
    try:
        loop.run(authority.reconcile())
        yield runner
    finally:
        plane.kubectl("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", NAME, check=False)
        loop.run(client.__aexit__(None, None, None))
        loop.run(server.stop())
        runner.api.close()
