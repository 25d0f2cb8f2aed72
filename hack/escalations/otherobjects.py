"""Attempts with what no group owns: pods, Secrets, tokens, roles, webhook configurations, Services, nodes."""

from typing import Any

from hack.escalations.account import Request, apply, create, merge, replace
from hack.escalations.attempt import (
    APPS,
    CHART_VALUES,
    CORE,
    GROUPS,
    HOOK,
    HOOKS,
    LB,
    LEASES,
    NEW,
    PODS,
    POOLS,
    RBAC_API,
    RELEASE,
    SERVICES,
    SHOP,
    VALUES,
    WEBHOOKS,
    Attempt,
    a_group,
    a_pool,
    applied,
    changed,
    secret,
)
from hack.escalations.stage import NAMESPACE, POOL, WEBHOOK, Manifest
from kavip import names


def with_other_objects() -> list[Attempt]:
    """Every attempt with an object that is none of a group."""
    return [*_pods(), *_credentials(), *_roles(), *_webhooks(), *_values(), *_cluster()]


def _values() -> list[Attempt]:
    """What the right to write the pools and groups of the chart's values could be used for."""
    pool = {**a_pool(), "metadata": {"name": "other"}}
    kept = changed(a_pool(), lambda body: body["metadata"].update(finalizers=["evil.example.com/x"]))
    gone = {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}]}
    elsewhere = changed(a_group(), lambda body: body["metadata"].update(namespace="shop"))
    label, data = {"metadata": {"labels": {"a": "b"}}}, {"data": {names.VALUES_KEY: "{}"}}
    return [
        Attempt("VIPPool: another name", apply(POOLS, pool)),
        Attempt("VIPPool: create", create(POOLS, a_pool())),
        Attempt("VIPPool: a finalizer", apply(POOLS, kept), VALUES),
        Attempt("VIPPool: delete", Request("DELETE", f"{POOLS}/{POOL}")),
        Attempt("KeepalivedGroup: of this name in another namespace", applied(elsewhere), VALUES),
        Attempt("KeepalivedGroup: an owner, with which it ends", merge(f"{GROUPS}/edge", {"metadata": gone}), VALUES),
        Attempt("KeepalivedGroup: delete", Request("DELETE", f"{GROUPS}/edge")),
        Attempt("ConfigMap: the chart's values", merge(CHART_VALUES, data), VALUES),
        Attempt("ConfigMap: a label of the chart's values", merge(CHART_VALUES, label), VALUES),
    ]


def _pods() -> list[Attempt]:
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
    label, finalizer = {"labels": {"app": "web"}}, {"finalizers": ["evil.example.com/x"]}
    hash_of = {"annotations": {names.CONFIG_HASH_ANNOTATION: "abc"}}
    debugger = {"spec": {"ephemeralContainers": [{"name": "d", "image": "evil"}]}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "web", "namespace": "shop"}}
    target = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web"},
        "target": {"kind": "Node", "name": "n1"},
    }
    return [
        Attempt("Pod: the image of a group's pod", replace(f"{LB}/pods/edge-n1", image), PODS),
        Attempt("Pod: a label of a group's pod", merge(f"{LB}/pods/edge-n1", {"metadata": label}), PODS),
        Attempt("Pod: a finalizer", merge(f"{LB}/pods/edge-n1", {"metadata": finalizer}), PODS),
        Attempt(
            "Pod: the owner of a group's pod",
            merge(f"{LB}/pods/edge-n1", {"metadata": {"ownerReferences": None}}),
            PODS,
        ),
        Attempt(
            "Pod: another annotation", merge(f"{LB}/pods/edge-n1", {"metadata": {"annotations": {"a": "b"}}}), PODS
        ),
        Attempt("Pod: the image of another program's pod", replace(f"{SHOP}/pods/web", image), PODS),
        Attempt("Pod: the annotation of another program's pod", merge(f"{SHOP}/pods/web", {"metadata": hash_of}), PODS),
        Attempt("Pod: delete one of a group", Request("DELETE", f"{LB}/pods/edge-n1"), PODS),
        Attempt("Pod: delete another program's", Request("DELETE", f"{SHOP}/pods/web"), PODS),
        Attempt("Pod: delete all of a namespace", Request("DELETE", f"{SHOP}/pods")),
        Attempt("Pod: an ephemeral container", merge(f"{LB}/pods/edge-n1/ephemeralcontainers", debugger)),
        Attempt("Pod: exec", Request("GET", f"{LB}/pods/edge-n1/exec?command=id&stdout=true")),
        Attempt("Pod: attach", Request("GET", f"{LB}/pods/edge-n1/attach?stdout=true")),
        Attempt("Pod: port-forward", Request("GET", f"{LB}/pods/edge-n1/portforward?ports=9650")),
        Attempt("Pod: log", Request("GET", f"{SHOP}/pods/web/log")),
        Attempt("Pod: eviction", create(f"{SHOP}/pods/web/eviction", eviction)),
        Attempt("Pod: bind to a node", create(f"{SHOP}/pods/web/binding", target)),
        Attempt("Pod: create", create(f"{SHOP}/pods", {"metadata": {"name": "a"}, "spec": {}})),
        Attempt("Pod: resize", merge(f"{LB}/pods/edge-n1/resize", {"spec": {"containers": []}})),
    ]


def _credentials() -> list[Attempt]:
    of_account = {"kubernetes.io/service-account.name": "default"}
    token = secret(names.CA_SECRET_NAME, "kubernetes.io/service-account-token", **of_account)
    other = secret("other", "kubernetes.io/tls")
    lease: Manifest = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "other"}}
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    csr = {
        "metadata": {"name": "mine"},
        "spec": {"request": "eA==", "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"]},
    }
    return [
        Attempt("Secret: read one", Request("GET", f"{SHOP}/secrets/web")),
        Attempt("Secret: list", Request("GET", f"{CORE}/secrets")),
        Attempt("Secret: list those of kavip's namespace", Request("GET", f"{RELEASE}/secrets")),
        Attempt("Secret: one that is a token of an account", create(f"{RELEASE}/secrets", token), NEW, WEBHOOK),
        Attempt("Secret: another name", create(f"{RELEASE}/secrets", other), NEW, WEBHOOK),
        Attempt("Secret: in another namespace", create(f"{SHOP}/secrets", other)),
        Attempt("ServiceAccount: a token of another", create(f"{RELEASE}/serviceaccounts/default/token", asked)),
        Attempt("ServiceAccount: a token of its own", create(f"{RELEASE}/serviceaccounts/kavip/token", asked)),
        Attempt("ServiceAccount: create", create(f"{RELEASE}/serviceaccounts", {"metadata": {"name": "mine"}})),
        Attempt("Lease: another name", create(f"{LEASES}/{NAMESPACE}/leases", lease), NEW),
        Attempt("Lease: of a node", merge(f"{LEASES}/kube-node-lease/leases/n1", {"spec": {"holderIdentity": "x"}})),
        Attempt("CertificateSigningRequest", create("/apis/certificates.k8s.io/v1/certificatesigningrequests", csr)),
        Attempt("impersonation", Request("GET", f"{CORE}/namespaces", headers={"Impersonate-User": "system:admin"})),
    ]


def _roles() -> list[Attempt]:
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    itself = [{"kind": "ServiceAccount", "name": "kavip", "namespace": NAMESPACE}]
    bound = {"metadata": {"name": "mine"}, "roleRef": admin, "subjects": itself}
    more = [{"op": "add", "path": "/rules/-", "value": {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}}]
    policies, bindings = f"{HOOKS}/validatingadmissionpolicies", f"{HOOKS}/validatingadmissionpolicybindings"
    return [
        Attempt("ClusterRoleBinding to cluster-admin", create(f"{RBAC_API}/clusterrolebindings", bound)),
        Attempt("ClusterRole: more rights for itself", replace(f"{RBAC_API}/clusterroles/kavip", more)),
        Attempt("policy: delete", Request("DELETE", f"{policies}/{PODS}")),
        Attempt("policy: delete its binding", Request("DELETE", f"{bindings}/{PODS}")),
        Attempt("policy: audit only", merge(f"{bindings}/{PODS}", {"spec": {"validationActions": ["Audit"]}})),
    ]


def _webhooks() -> list[Attempt]:
    def change(what: str, field: str, value: Any, op: str = "replace") -> Attempt:
        patch = [{"op": op, "path": f"/webhooks/0/{field}", "value": value}]
        return Attempt(f"webhook configuration: {what}", replace(HOOK, patch), WEBHOOKS)

    every = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["secrets"], "operations": ["*"]}
    return [
        change("it sees Secrets", "rules", [every]),
        change("another failurePolicy", "failurePolicy", "Fail"),
        change("no conditions", "matchConditions", []),
        change("every namespace", "namespaceSelector", {}),
        change("another server", "clientConfig", {"url": "https://evil.example.com/"}),
        change("another Service", "clientConfig/service/namespace", "shop"),
        Attempt(
            "webhook configuration: no webhook",
            replace(HOOK, [{"op": "remove", "path": "/webhooks/0"}]),
            WEBHOOKS,
        ),
        Attempt(
            "webhook configuration: an owner, with which it ends",
            merge(
                HOOK,
                {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "b"}]}},
            ),
            WEBHOOKS,
        ),
        Attempt("webhook configuration: delete", Request("DELETE", HOOK)),
        Attempt(
            "webhook configuration: create",
            create(f"{HOOKS}/mutatingwebhookconfigurations", {"metadata": {"name": "a"}}),
        ),
    ]


def _cluster() -> list[Attempt]:
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/keepalivedgroups.redhatcop.redhat.io"
    gone = {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}
    named = {"status": {"loadBalancer": {"ingress": [{"hostname": "evil.example.com"}]}}}
    stolen = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}]}}}
    return [
        Attempt("Service: the spec", merge(f"{SHOP}/services/web", {"spec": {"externalIPs": ["192.0.2.9"]}})),
        Attempt(
            "Service: an owner, with which it ends", merge(f"{SHOP}/services/web/status", {"metadata": gone}), SERVICES
        ),
        Attempt(
            "Service: an annotation, by its status",
            merge(f"{SHOP}/services/web/status", {"metadata": {"annotations": {"a": "b"}}}),
            SERVICES,
        ),
        Attempt("Service: a host name", merge(f"{SHOP}/services/web/status", named), SERVICES),
        Attempt("Service: the address of another class", merge(f"{SHOP}/services/other/status", stolen), SERVICES),
        Attempt("Service: create", create(f"{SHOP}/services", {"metadata": {"name": "a"}, "spec": {}})),
        Attempt("KeepalivedGroup: the spec", merge(f"{GROUPS}/legacy", {"spec": {"image": "evil"}})),
        Attempt("KeepalivedGroup: create", create(GROUPS, {"metadata": {"name": "mine"}, "spec": {}})),
        Attempt("CustomResourceDefinition", merge(crd, {"spec": {"scope": "Cluster"}})),
        Attempt("Node: a label", merge(f"{CORE}/nodes/n1", {"metadata": {"labels": {"a": "b"}}})),
        Attempt("Node: its kubelet", Request("GET", f"{CORE}/nodes/n1/proxy/pods")),
        Attempt(
            "Namespace: its Pod Security label", merge(f"{CORE}/namespaces/shop", {"metadata": {"labels": {"a": "b"}}})
        ),
        Attempt("Deployment: kavip itself", merge(f"{APPS}/{NAMESPACE}/deployments/kavip", {"spec": {"replicas": 0}})),
        Attempt("DaemonSet: delete", Request("DELETE", f"{APPS}/lb/daemonsets/edge")),
        Attempt("ConfigMap: delete", Request("DELETE", f"{LB}/configmaps/edge")),
    ]
