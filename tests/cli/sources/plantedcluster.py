"""A fake API server for ``kavip collect``, whose objects, logs and agents hold secrets everywhere."""

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from kavip import names
from tests.kube.fakeapi import Body, refusal
from tests.support.secretforms import IN_TEXT, NEEDLE

HIDDEN: Final = "\n".join(IN_TEXT[:-1])
"""Text that may be in a bundle, with secrets in it."""
OPEN: Final = {"kavip.io/pool": "edge"}
Answer = Callable[[], web.StreamResponse]


def metadata(name: str, *, namespace: str = "", labels: dict[str, str] | None = None, **annotations: str) -> Body:
    """Metadata with secrets in annotations, labels, managers of fields, finalizers and owners."""
    found: Body = {
        "name": name,
        "uid": f"uid-{name}",
        "generation": 3,
        "labels": {"team": NEEDLE, f"{NEEDLE}.example/x": "y", **(labels or {})},
        "annotations": {
            "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"password": NEEDLE}),
            "note": NEEDLE,
            **annotations,
        },
        "managedFields": [{"manager": NEEDLE, "fieldsV1": {f"f:{NEEDLE}": {}}}],
        "finalizers": [f"example.com/{NEEDLE}"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": NEEDLE, "uid": NEEDLE}],
    }
    return {**found, **({"namespace": namespace} if namespace else {})}


def condition(kind: str = "kavip.io/Advertised") -> Body:
    """A condition whose message quotes secrets."""
    return {"type": kind, "status": "True", "reason": "Master", "message": HIDDEN, "more": NEEDLE}


def container(name: str) -> Body:
    """A container with secrets in its environment, its arguments and its volumes."""
    return {
        "name": name,
        "image": f"https://user:{NEEDLE}@registry.example/kavip:1",
        "args": ["controller", f"--token={NEEDLE}", NEEDLE],
        "command": ["kavip", f"/bin/sh -c {NEEDLE}"],
        "env": [{"name": "PASSWORD", "value": NEEDLE}, {"name": NEEDLE, "value": "x"}],
        "envFrom": [{"secretRef": {"name": NEEDLE}}],
        "ports": [{"name": "metrics", "containerPort": 8080}],
        "volumeMounts": [{"name": NEEDLE, "mountPath": f"/{NEEDLE}"}],
        "lifecycle": {"preStop": {"exec": {"command": [NEEDLE]}}},
    }


def pod(name: str, *containers: str, namespace: str, labels: dict[str, str]) -> Body:
    """A pod whose first container was restarted."""
    statuses = [
        {
            "name": each,
            "restartCount": int(each == containers[0]),
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": HIDDEN}},
            "lastState": {"terminated": {"exitCode": 1, "message": NEEDLE, "reason": "Error"}},
        }
        for each in containers
    ]
    return {
        "metadata": metadata(name, namespace=namespace, labels=labels),
        "spec": {"nodeName": "n1", "containers": [*map(container, containers)], "hostname": NEEDLE},
        "status": {"phase": "Running", "containerStatuses": statuses, "message": HIDDEN, "conditions": [condition()]},
    }


def workload(name: str, *, namespace: str, labels: dict[str, str]) -> Body:
    """A Deployment or a DaemonSet."""
    template = {
        "metadata": {"annotations": {"x": NEEDLE}, "labels": {"x": NEEDLE}},
        "spec": {"containers": [container("kavip")], "volumes": [{"name": NEEDLE}]},
    }
    return {
        "metadata": metadata(name, namespace=namespace, labels=labels),
        "spec": {"replicas": 2, "selector": {"matchLabels": {"x": NEEDLE}}, "template": template},
        "status": {"replicas": 2, "conditions": [condition("Available")]},
    }


def service(name: str, *, namespace: str = "shop", **spec: Any) -> Body:
    """A Service; of its labels ``tier`` is selected by a pool."""
    verbatim = {names.VERBATIM_ANNOTATION: json.dumps({"accept": NEEDLE})}
    return {
        "metadata": metadata(name, namespace=namespace, labels={"tier": "front"}, **OPEN, **verbatim),
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "x": NEEDLE}], "selector": {"app": NEEDLE}, **spec},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1", "x": NEEDLE}]}, "conditions": [condition()]},
    }


def group(name: str = "edge") -> Body:
    """A group with secrets in everything that its users may fill."""
    spec: Body = {
        "interface": "eth0",
        "nodeSelector": {"role": "infra"},
        "passwordAuth": {"secretRef": {"name": "vrrp", "x": NEEDLE}},
        "verbatimConfig": {"notify": f"/bin/true {NEEDLE}"},
        "daemonsetPodAnnotations": {"vault.example/token": NEEDLE},
        "podTemplate": {"spec": {"containers": [container("sidecar")]}},
        "checks": [{"name": "web", "url": f"https://probe:{NEEDLE}@host.example/?token={NEEDLE}"}],
        "tolerations": [{"key": "dedicated", "value": NEEDLE, "x": NEEDLE}],
        "affinity": {"nodeAffinity": {"x": NEEDLE}, "podAffinity": {"x": NEEDLE}},
        "resources": {"limits": {"memory": "64Mi"}, "claims": [{"name": NEEDLE}]},
        "imagePullSecrets": [{"name": NEEDLE}],
        "updateStrategy": {"type": "RollingUpdate", "x": NEEDLE},
        "somethingNew": NEEDLE,
    }
    status = {"metricsPort": 9651, "routerIDs": {"shop/web": 7}, "conditions": [condition("Ready")], "x": NEEDLE}
    return {"metadata": metadata(name, namespace="lb"), "spec": spec, "status": status}


def event(name: str, kind: str, about: str, *, note: str = HIDDEN) -> Body:
    """An Event about ``ns/name``, or a cluster-scoped object."""
    namespace, _, regarding = about.rpartition("/")
    return {
        "metadata": metadata(name, namespace=namespace or "default"),
        "regarding": {"kind": kind, "namespace": namespace, "name": regarding, "fieldPath": NEEDLE},
        "reason": "BackOff",
        "note": note,
        "type": "Warning",
        "deprecatedSource": {"component": NEEDLE},
    }


AGENT: Final = {"keepalivedGroup": "edge"}
OWN: Final = {"app.kubernetes.io/name": "kavip-controller"}
CONFIG: Final = f"""\
vrrp_script check {{
    script "/bin/check {NEEDLE}"
}}
vrrp_instance shop/web {{
    interface eth0
    authentication {{
        auth_type PASS
        auth_pass {NEEDLE}
    }}
    notify "/bin/notify {NEEDLE}" root
    notify_master "/bin/notify {{{NEEDLE}}}"
}}
"""


def objects() -> dict[str, list[Body]]:
    """The objects of each kind, by the last part of the path of their list."""
    node = {
        "metadata": metadata("n1", labels={"role": "infra"}),
        "spec": {"taints": [{"key": "k", "value": NEEDLE, "effect": "NoSchedule"}], "providerID": NEEDLE},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.21"}],
            "nodeInfo": {"kubeletVersion": "v1.35.4", "machineID": NEEDLE, "systemUUID": NEEDLE},
            "conditions": [condition("Ready")],
            "images": [{"names": [NEEDLE]}],
        },
    }
    pool_spec = {"addresses": ["192.0.2.0/28"], "serviceSelector": {"matchLabels": {"tier": "front"}}, "x": NEEDLE}
    slice_ = {
        "metadata": metadata("web-1", namespace="shop", labels={names.SERVICE_NAME_LABEL: "web"}),
        "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "n1", "hostname": NEEDLE, "targetRef": {"name": NEEDLE}}],
    }
    other = {**slice_, "metadata": metadata("x-1", namespace="shop", labels={names.SERVICE_NAME_LABEL: NEEDLE})}
    lease = {
        "metadata": metadata(names.LEASE_NAME, namespace="kavip"),
        "spec": {"holderIdentity": "kavip-controller-1", "leaseTransitions": 2, "x": NEEDLE},
    }
    return {
        "nodes": [node],
        "vippools": [{"metadata": metadata("edge"), "spec": pool_spec, "status": {"conditions": [condition("Ready")]}}],
        "keepalivedgroups": [group(), {**group("odd"), "spec": {"interface": {"no": NEEDLE}, "segment": [NEEDLE]}}],
        "services": [
            service("web"),
            service(NEEDLE, loadBalancerClass="other.example/lb"),
            service(NEEDLE, namespace="x", type="ClusterIP"),
            {**service("malformed"), "spec": [NEEDLE]},
        ],
        "endpointslices": [slice_, other],
        "deployments": [workload("kavip-controller", namespace="kavip", labels=OWN)],
        "daemonsets": [workload("edge", namespace="lb", labels=AGENT), workload(NEEDLE, namespace="x", labels=AGENT)],
        "pods": [
            pod("kavip-controller-1", "kavip", "sidecar", namespace="kavip", labels=OWN),
            pod(f"fake-{NEEDLE}", "kavip", namespace="x", labels=OWN),
            pod("edge-n1", "agent", "keepalived", "sidecar", namespace="lb", labels=AGENT),
            pod(f"other-{NEEDLE}", "agent", namespace="x", labels=AGENT),
        ],
        "leases": [lease],
        "events": [
            event("e1", "Service", "shop/web"),
            event("e2", "Node", "n1"),
            event("e3", "Service", "shop/other", note=NEEDLE),
            event("e5", "ReplicaSet", "kavip/kavip-controller-7d9f"),
            event("e6", "Secret", "kavip/kavip-webhook-ca"),
            event("e4", "Secret", "lb/vrrp", note=NEEDLE),
        ],
        "secrets": [{"metadata": metadata("vrrp", namespace="lb"), "data": {"password": NEEDLE}}],
        "configmaps": [{"metadata": metadata("x", namespace="lb"), "data": {"x": NEEDLE}}],
    }


@dataclass(slots=True)
class PlantedCluster:
    """
    The handler of a fake API server.

    *answers*: by path, what it says instead; *requests*: the paths, with the queries, that were requested.
    """

    objects: dict[str, list[Body]] = field(default_factory=objects)
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        path, last = request.path, request.path.rpartition("/")[2]
        self.requests.append((request.method, path, dict(request.query)))
        if path in self.answers:
            return self.answers[path]()
        if path == "/version":
            return web.json_response({"gitVersion": "v1.35.4"})
        if path.endswith("/configmaps/edge"):
            return web.json_response(config_map())
        if last == "state":
            return web.json_response(agent_state())
        if last == "metrics":
            return web.Response(text=f"# HELP kavip_leader x\nkavip_leader 1.0\nother {NEEDLE}\n# {NEEDLE}\n")
        if last == "log":
            return web.Response(text=log(request.query["container"]))
        if last in self.objects:
            return web.json_response({"metadata": {"resourceVersion": "7"}, "items": self.selected(request, last)})
        return refusal(403, "Forbidden")

    def selected(self, request: web.Request, kind: str) -> list[Body]:
        """The objects of *kind* in the namespace and with the label that are requested."""
        label = request.query.get("labelSelector", "").partition(" ")[0]
        namespace = request.path.partition("/namespaces/")[2].partition("/")[0]
        found = [each for each in self.objects[kind] if namespace in ("", each["metadata"].get("namespace"))]
        return [each for each in found if not label or label in each["metadata"]["labels"]]


def config_map() -> Body:
    """The ConfigMap of the group, as keepalived-operator leaves it."""
    data = {"keepalived.conf": CONFIG, "agent.json": json.dumps({"x": NEEDLE}), "more": NEEDLE}
    packed = {"next.conf.gz": b64encode(NEEDLE.encode()).decode()}
    return {"metadata": metadata("edge", namespace="lb"), "data": data, "binaryData": packed}


def agent_state() -> Body:
    """The answer of an agent."""
    instance = {"name": "shop/web", "routerID": 7, "state": "MASTER", "x": NEEDLE}
    return {"group": "lb/edge", "refused": HIDDEN, "note": HIDDEN, "instances": [instance], "x": NEEDLE}


def log(name: str) -> str:
    """The log of a container; that of a container that is not kavip's holds any text."""
    return (
        NEEDLE if name == "sidecar" else f"2026-06-01T12:00:00Z the first line of {name}\n{HIDDEN}\n\x1b[2Jlast line\n"
    )
