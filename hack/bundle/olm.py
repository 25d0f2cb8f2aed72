"""
The part of the Operator Lifecycle Manager (OLM), played on a real API server.

It makes of a bundle what OLM's source code makes of it, field by field: accounts and roles, the Service and its
certificate, the Deployments, the webhooks. The controller manager is real, so what belonged to a deleted
ClusterServiceVersion disappears as in a cluster.
"""

import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import yaml

import kavip
from hack.bundle.csv import Release
from hack.bundle.files import files
from hack.testbed.controlplane import ControlPlane
from kavip.pki import certificates

NAMESPACE: Final = "kavip"
IN: Final = f"--namespace={NAMESPACE}"
RBAC: Final = "rbac.authorization.k8s.io"
MANAGED: Final = {"olm.managed": "true"}
TARGETS: Final = {"olm.operatorGroup": "kavip", "olm.operatorNamespace": NAMESPACE, "olm.targetNamespaces": ""}
CSVS: Final = "clusterserviceversions.operators.coreos.com"
MINE: Final = "system:serviceaccount:kavip:"
IMAGE: Final = "registry.example/kavip@sha256:" + "a" * 64
REGISTRATIONS: Final = "mutatingwebhookconfigurations,validatingwebhookconfigurations"

Object = dict[str, Any]


class OwnerConflictError(Exception):
    """Another ClusterServiceVersion that this one does not replace owns the same kind."""


def bundle(helm: str, *, version: str = kavip.__version__, image: str = IMAGE) -> list[Object]:
    """The manifests of the bundle; those of another *version* replace this one."""
    this, other = f"kavip.v{kavip.__version__}", f"kavip.v{version}"
    release = Release(image, "" if this == other else "REPLACED")
    found = files(helm, release, bundle_image="unused")
    texts = [text for path, text in found.items() if path.startswith("bundle/manifests/")]
    renamed = [text.replace(this, other).replace("REPLACED", this) for text in texts]
    return [each for text in renamed for each in yaml.safe_load_all(text)]


@dataclass(slots=True)
class Certificate:
    """What OLM issues for the Service of a Deployment: it does not keep the key of the CA."""

    ca: bytes
    leaf: bytes
    key: bytes

    @classmethod
    def for_service(cls, name: str) -> "Certificate":
        """A new one."""
        now = datetime.now(UTC)
        hosts = [f"{name}.{NAMESPACE}{suffix}" for suffix in ("", ".svc", ".svc.cluster.local")]
        authority = certificates.new_ca(now, lifetime=timedelta(days=730))
        leaf = certificates.new_leaf(authority, hosts, now, lifetime=timedelta(days=730))
        return cls(authority.certificate_pem, leaf.certificate_pem, leaf.key_pem)


@dataclass(slots=True)
class Olm:
    """Both controllers of OLM: one carries out a plan, one reconciles the ClusterServiceVersion."""

    plane: ControlPlane
    certificate: Certificate | None = None
    timeout: int | None = None
    """Seconds for each call of a webhook, in place of those of its definition."""

    @property
    def ca(self) -> bytes:
        """The CA of the certificate that it has issued."""
        assert self.certificate
        return self.certificate.ca

    # --- the plan ---------------------------------------------------------------------------------------------------
    def install(self, manifests: Sequence[Object]) -> None:
        """Install what is in the bundle; or update to it, if the version replaces one that is installed."""
        csv = next(each for each in manifests if each["kind"] == "ClusterServiceVersion")
        definitions = [each for each in manifests if each["kind"] == "CustomResourceDefinition"]
        self._install_definitions(definitions, csv["metadata"]["name"])
        annotations = {**csv["metadata"]["annotations"], **TARGETS}
        metadata = {**csv["metadata"], "namespace": NAMESPACE, "annotations": annotations}
        self._apply({**csv, "metadata": metadata})
        self._refuse_other_owners(csv)
        owner = self._owner(csv["metadata"]["name"])
        self._apply(*self._rights(csv, owner))
        beside = [each for each in manifests if each is not csv and each not in definitions]
        for each in beside:
            place = {} if each["kind"].startswith("Cluster") else {"namespace": NAMESPACE, "ownerReferences": [owner]}
            self._apply({**each, "metadata": {**each["metadata"], **place}})
        self._reconcile(csv, owner)

    def _install_definitions(self, definitions: Sequence[Object], name: str) -> None:
        alongside = {f"operatorframework.io/installed-alongside-{name}": f"{NAMESPACE}/{name}"}
        labels = {"operators.coreos.com/kavip.kavip": "", **MANAGED}
        marked = [
            {
                **each,
                "metadata": {
                    **each["metadata"],
                    "annotations": {**each["metadata"].get("annotations", {}), **alongside},
                    "labels": {**each["metadata"].get("labels", {}), **labels},
                },
            }
            for each in definitions
        ]
        self._apply(*marked)
        self.plane.wait_established()
        for each in definitions:  # OLM refuses a definition under which an object that exists would be invalid
            kind = each["metadata"]["name"]
            found = self._get(kind, "--all-namespaces")["items"]
            for one in found:
                self.plane.kubectl("replace", "--dry-run=server", "--filename=-", input=json.dumps(one))

    def _rights(self, csv: Object, owner: Object) -> Iterator[Object]:
        name, spec = csv["metadata"]["name"], csv["spec"]["install"]["spec"]
        labels = {**owner_labels(name), **MANAGED}
        accounts = dict.fromkeys(
            each["serviceAccountName"] for each in (*spec["permissions"], *spec["clusterPermissions"])
        )
        for account in accounts:
            yield _of("v1", "ServiceAccount", account, namespace=NAMESPACE, labels=MANAGED, ownerReferences=[owner])
        for each in spec["permissions"]:
            account, rules = each["serviceAccountName"], each["rules"]
            role = f"{name}-{account}"
            place = {"namespace": NAMESPACE, "ownerReferences": [owner], "labels": labels}
            yield {**_of(f"{RBAC}/v1", "Role", role, **place), "rules": rules}
            yield _binding("RoleBinding", role, account, role="Role", **place)
            # the group of operators is for all namespaces, so OLM makes each Role a ClusterRole too
            view = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "list", "watch"]}
            yield {**_of(f"{RBAC}/v1", "ClusterRole", role, labels=labels), "rules": [*rules, view]}
            yield _binding("ClusterRoleBinding", role, account, role="ClusterRole", labels=labels)
        for each in spec["clusterPermissions"]:
            role = f"{name}-{each['serviceAccountName']}-cluster"
            yield {**_of(f"{RBAC}/v1", "ClusterRole", role, labels=labels), "rules": each["rules"]}
            yield _binding("ClusterRoleBinding", role, each["serviceAccountName"], role="ClusterRole", labels=labels)

    # --- the ClusterServiceVersion ----------------------------------------------------------------------------------
    def _refuse_other_owners(self, csv: Object) -> None:
        name, owned = csv["metadata"]["name"], _owned(csv)
        for each in self._get(CSVS, "--all-namespaces")["items"]:
            other = each["metadata"]["name"]
            if other not in (name, csv["spec"].get("replaces")) and owned & _owned(each):
                self.plane.kubectl("delete", CSVS, name, IN)
                raise OwnerConflictError(f"{name}: {other} owns {', '.join(sorted(owned & _owned(each)))}")

    def _reconcile(self, csv: Object, owner: Object) -> None:
        definitions = csv["spec"]["webhookdefinitions"]
        for each in csv["spec"]["install"]["spec"]["deployments"]:
            concerned = [hook for hook in definitions if hook["deploymentName"] == each["name"]]
            spec = json.loads(json.dumps(each["spec"]))
            if concerned:
                self._certify(each["name"], spec, concerned, owner)
            self._apply(_deployment(csv, each, spec, owner))
        for each in definitions:
            self._register(csv, each)

    def _certify(self, deployment: str, spec: Object, hooks: Sequence[Object], owner: Object) -> None:
        service, secret = f"{deployment}-service", f"{deployment}-service-cert"
        account = spec["template"]["spec"]["serviceAccountName"]
        ports = {(hook["containerPort"], hook["targetPort"]) for hook in hooks}
        place = {"namespace": NAMESPACE, "labels": MANAGED, "ownerReferences": [owner]}
        self._apply(
            {
                **_of("v1", "Service", service, **place),
                "spec": {
                    "selector": spec["selector"]["matchLabels"],
                    "ports": [{"name": str(port), "port": port, "targetPort": target} for port, target in ports],
                },
            }
        )
        if not self.certificate:
            self.certificate = Certificate.for_service(service)
        data = {"tls.crt": self.certificate.leaf, "tls.key": self.certificate.key, "olmCAKey": self.certificate.ca}
        seen = {"olmcahash": str(hash(self.certificate.ca))}
        encoded = {key: b64encode(value).decode() for key, value in data.items()}
        rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]}
        self._apply(
            {
                **_of("v1", "Secret", secret, **place, annotations=seen),
                "type": "kubernetes.io/tls",
                "data": encoded,
            },
            {**_of(f"{RBAC}/v1", "Role", secret, **place), "rules": [rule]},
            _binding("RoleBinding", secret, account, role="Role", **place),
            _binding("ClusterRoleBinding", f"{service}-system-auth-delegator", account, role="ClusterRole")
            | {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "system:auth-delegator"}},
        )
        template = spec["template"]
        template["metadata"].setdefault("annotations", {}).update(seen)
        paths = {
            "apiservice-cert": ("/apiserver.local.config/certificates", "apiserver"),
            "webhook-cert": ("/tmp/k8s-webhook-server/serving-certs", "tls"),
        }
        for name, (path, file) in paths.items():
            items = [{"key": f"tls.{end}", "path": f"{file}.{end}"} for end in ("crt", "key")]
            template["spec"].setdefault("volumes", []).append(
                {"name": name, "secret": {"secretName": secret, "items": items}}
            )
            for container in template["spec"]["containers"]:
                container.setdefault("volumeMounts", []).append({"name": name, "mountPath": path})

    def _register(self, csv: Object, hook: Object) -> None:
        """One configuration for each definition. OLM knows no selector but that of its group, here all namespaces."""
        kind = hook["type"].removesuffix("AdmissionWebhook")
        service = {"namespace": NAMESPACE, "name": f"{hook['deploymentName']}-service", "path": hook["webhookPath"]}
        kept = ("rules", "failurePolicy", "matchPolicy", "sideEffects", "admissionReviewVersions", "reinvocationPolicy")
        webhook = {
            "name": hook["generateName"],
            "clientConfig": {
                "service": {**service, "port": hook["containerPort"]},
                "caBundle": b64encode(self.ca).decode(),
            },
            "namespaceSelector": {},
            **{key: hook[key] for key in kept if key in hook},
            "timeoutSeconds": self.timeout or hook["timeoutSeconds"],
        }
        labels = {
            **owner_labels(csv["metadata"]["name"]),
            **MANAGED,
            "olm.webhook-description-generate-name": hook["generateName"],
        }
        name = f"{hook['generateName']}-{csv['metadata']['name'].replace('.', '-')}"
        configuration = _of("admissionregistration.k8s.io/v1", f"{kind}WebhookConfiguration", name, labels=labels)
        self._apply({**configuration, "webhooks": [webhook]})

    def rotate(self, name: str) -> None:
        """Issue another certificate from another CA, as before the end of the first one."""
        self.certificate = None
        csv = self._get(CSVS, name, IN)
        self._reconcile(csv, self._owner(name))

    def delete(self, name: str) -> None:
        """Delete a ClusterServiceVersion; its finalizer deletes what no owner reference can."""
        self.plane.kubectl("delete", CSVS, name, IN)
        selector = ",".join(f"{key}={value}" for key, value in owner_labels(name).items())
        for kinds in ("clusterrolebindings", "clusterroles", REGISTRATIONS):
            self.plane.kubectl("delete", kinds, f"--selector={selector}")

    # --- the API server ---------------------------------------------------------------------------------------------
    def _owner(self, name: str) -> Object:
        found = self._get(CSVS, name, IN)
        return {
            "apiVersion": found["apiVersion"],
            "kind": found["kind"],
            "name": name,
            "uid": found["metadata"]["uid"],
            "controller": False,
            "blockOwnerDeletion": False,
        }

    def _get(self, *args: str) -> Object:
        found: Object = json.loads(self.plane.kubectl("get", *args, "--output=json").stdout)
        return found

    def _apply(self, *objects: Object) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        flags = ("--server-side", "--field-manager=olm.install", "--force-conflicts", "--filename=-")
        self.plane.kubectl("apply", *flags, input=text)


def owner_labels(csv: str) -> dict[str, str]:
    """By which OLM finds what belongs to a ClusterServiceVersion."""
    return {"olm.owner": csv, "olm.owner.kind": "ClusterServiceVersion", "olm.owner.namespace": NAMESPACE}


def _owned(csv: Object) -> set[str]:
    return {each["name"] for each in csv["spec"].get("customresourcedefinitions", {}).get("owned", [])}


def _of(version: str, kind: str, name: str, **metadata: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


def _binding(kind: str, name: str, account: str, *, role: str, **metadata: Any) -> Object:
    return {
        **_of(f"{RBAC}/v1", kind, name, **metadata),
        "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
    }


def _deployment(csv: Object, strategy: Object, spec: Object, owner: Object) -> Object:
    name = csv["metadata"]["name"]
    labels = {**strategy["label"], **MANAGED, **owner_labels(name), "olm.deployment-spec-hash": "any"}
    annotations = spec["template"]["metadata"].setdefault("annotations", {})
    annotations.update(csv["metadata"]["annotations"], **TARGETS)
    for container in spec["template"]["spec"]["containers"]:
        container.setdefault("env", []).append({"name": "OPERATOR_CONDITION_NAME", "value": name})
    spec["revisionHistoryLimit"] = 1
    place = {"namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]}
    return {**_of("apps/v1", "Deployment", strategy["name"], **place), "spec": spec}
