"""Attempts with DaemonSets: privileges, fields that kavip never sets, and containers that a stored one has."""

from collections.abc import Callable
from functools import partial
from typing import Any

from hack.escalations.account import merge, replace
from hack.escalations.attempt import APPS, DAEMONSETS, Attempt, applied, changed
from hack.escalations.stage import MIXED, NAMESPACE, Manifest, owned
from kavip import names
from kavip.api.group import KeepalivedGroup


def with_daemonsets(group: KeepalivedGroup) -> list[Attempt]:
    """Every attempt with the DaemonSet of *group*, or with one that already has privileged containers."""
    return [*_privileges(group), *_fields(group), *_stored_containers()]


def _privileges(group: KeepalivedGroup) -> list[Attempt]:
    body = owned(group)[1]

    attempt = partial(_attempt, body)

    def volume(**source: Any) -> Callable[[Manifest], Any]:
        return lambda body: _pod(body)["volumes"].append({"name": "more", **source})

    def context(**settings: Any) -> Callable[[Manifest], Any]:
        return lambda body: _containers(body)[0]["securityContext"].update(settings)

    token = {"sources": [{"serviceAccountToken": {"path": "token"}}]}
    named = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "web", "key": "password"}}}
    return [
        attempt("privileged", context(privileged=True, allowPrivilegeEscalation=True)),
        attempt("capability SYS_ADMIN", context(capabilities={"drop": ["ALL"], "add": ["SYS_ADMIN"]})),
        attempt("the capabilities of the runtime", context(capabilities={"add": ["NET_ADMIN"]})),
        attempt("allowPrivilegeEscalation", context(allowPrivilegeEscalation=True)),
        attempt("no seccomp profile", context(seccompProfile={"type": "Unconfined"})),
        attempt("a privileged init container", lambda body: _pod(body)["initContainers"][0].pop("securityContext")),
        attempt("hostPath /", volume(hostPath={"path": "/"})),
        attempt("hostPID", lambda body: _pod(body).update(hostPID=True, shareProcessNamespace=False)),
        attempt("hostIPC", lambda body: _pod(body).update(hostIPC=True)),
        attempt("an image outside the list", lambda body: _containers(body)[0].update(image="evil")),
        attempt("an agent outside the list", lambda body: _pod(body)["initContainers"][0].update(image="evil")),
        attempt("an account outside the list", lambda body: _pod(body).update(serviceAccountName="admin")),
        attempt("the token of its account", lambda body: _pod(body).update(automountServiceAccountToken=True)),
        attempt("a projected token", volume(projected=token)),
        attempt("a CSI volume", volume(csi={"driver": "secrets-store.csi.k8s.io"})),
        attempt("a value from a Secret", lambda body: _containers(body)[0]["env"].append(named)),
        attempt("a label without a value", lambda body: _template(body)["labels"].update(tier="")),
        attempt("the labels of another Service", lambda body: _template(body)["labels"].update(app="web")),
        Attempt(
            "DaemonSet: the key of the webhook's CA",
            applied(changed(body, _beside_the_ca)),
            DAEMONSETS,
        ),
    ]


def _fields(group: KeepalivedGroup) -> list[Attempt]:
    """Fields that kavip never sets, or not to these values."""
    body = owned(group)[1]
    attempt = partial(_attempt, body)
    handover = _containers(body)[0]["lifecycle"]["preStop"]

    def pod(**fields: Any) -> Callable[[Manifest], Any]:
        return lambda body: _pod(body).update(fields)

    def container(**fields: Any) -> Callable[[Manifest], Any]:
        return lambda body: _containers(body)[0].update(fields)

    def request(**fields: Any) -> Manifest:
        return {"httpGet": {**handover["httpGet"], **fields}}

    def annotation(key: str, value: str) -> Callable[[Manifest], Any]:
        return lambda body: _template(body).setdefault("annotations", {}).update({key: value})

    of_configmap = {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "web", "key": "a"}}}
    hook, id_program = {"preStop": {"exec": {"command": ["id"]}}}, {"exec": {"command": ["id"]}}
    headers = [{"name": "A", "value": "b"}]
    finalizers, claims = ["evil.example.com/x"], [{"name": "d", "resourceClaimName": "gpu"}]
    context = {"seccompProfile": {"type": "RuntimeDefault"}, "supplementalGroups": [6]}
    ten_years = 315_360_000
    return [
        attempt("AppArmor off", annotation("container.apparmor.security.beta.kubernetes.io/keepalived", "unconfined")),
        attempt("a device, by CRI-O", annotation("io.kubernetes.cri-o.Devices", "/dev/sda")),
        attempt("a device, by CDI", annotation("cdi.k8s.io/x", "vendor.example.com/gpu=all")),
        attempt("a container of an injector", annotation("vault.hashicorp.com/agent-inject", "true")),
        attempt("pods that outlive it", lambda body: _template(body).update(finalizers=finalizers)),
        attempt("pods that take ten years to end", pod(terminationGracePeriodSeconds=ten_years)),
        attempt("another runtime", pod(runtimeClassName="nvidia")),
        attempt("a device claim", pod(resourceClaims=claims)),
        attempt("another scheduler", pod(schedulerName="mine")),
        attempt("hostUsers", pod(hostUsers=True)),
        attempt("a node, past the scheduler", pod(nodeName="n1")),
        attempt("groups of the host", pod(securityContext=context)),
        attempt("a writable root file system", lambda body: _context(body).update(readOnlyRootFilesystem=False)),
        attempt("a program as hook", container(lifecycle=hook)),
        attempt("a hook after the start", container(lifecycle={"postStart": handover})),
        attempt("a hook on another page", container(lifecycle={"preStop": request(path="/shutdown")})),
        attempt("a hook on another host", container(lifecycle={"preStop": request(host="192.0.2.1")})),
        attempt("a hook with headers", container(lifecycle={"preStop": request(httpHeaders=headers)})),
        attempt("a program as probe", container(livenessProbe=id_program)),
        attempt("a value from a ConfigMap", lambda body: _containers(body)[0]["env"].append(of_configmap)),
        attempt("minReadySeconds", lambda body: body["spec"].update(minReadySeconds=9)),
    ]


def _stored_containers() -> list[Attempt]:
    """A DaemonSet may keep the containers that it has, but not run them elsewhere, or with other volumes."""
    conforming = {
        "automountServiceAccountToken": False,
        "dnsPolicy": "Default",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
    }
    old = f"{APPS}/lb/daemonsets/legacy"
    mixed, start = f"{APPS}/lb/daemonsets/{MIXED}", "/spec/template/spec"
    nodes = {"op": "add", "path": f"{start}/nodeSelector", "value": {"a": "b"}}
    volume = {"op": "add", "path": f"{start}/volumes/-", "value": {"name": "more", "secret": {"secretName": "web"}}}
    command = {"op": "replace", "path": f"{start}/initContainers/0/command", "value": ["id"]}
    return [
        Attempt(
            "DaemonSet of keepalived-operator: other nodes for privileged pods",
            merge(old, {"spec": {"template": {"spec": {**conforming, "nodeSelector": {"a": "b"}}}}}),
            DAEMONSETS,
        ),
        Attempt("DaemonSet with a privileged sidecar: other nodes", replace(mixed, [nodes]), DAEMONSETS),
        Attempt("DaemonSet with a privileged sidecar: another volume", replace(mixed, [volume]), DAEMONSETS),
        Attempt("DaemonSet with a privileged sidecar: another init container", replace(mixed, [command]), DAEMONSETS),
    ]


def _attempt(body: Manifest, what: str, change: Callable[[Manifest], Any]) -> Attempt:
    return Attempt(f"DaemonSet: {what}", applied(changed(body, change)), DAEMONSETS)


def _beside_the_ca(body: Manifest) -> None:
    body["metadata"]["namespace"] = NAMESPACE
    _pod(body)["volumes"].append({"name": "more", "secret": {"secretName": names.CA_SECRET_NAME}})


def _template(body: Manifest) -> Any:
    return body["spec"]["template"]["metadata"]


def _pod(body: Manifest) -> Any:
    return body["spec"]["template"]["spec"]


def _containers(body: Manifest) -> Any:
    return _pod(body)["containers"]


def _context(body: Manifest) -> Any:
    return _containers(body)[0]["securityContext"]
