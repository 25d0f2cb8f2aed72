"""
The attempts, and the requests of kavip that they differ from in one thing.

Each names what must refuse it: RBAC, or one policy. Without that policy RBAC alone would accept the request.
"""

import msgspec

from hack.escalations.account import Request, apply, create, merge, replace
from hack.escalations.attempt import (
    APPS,
    CHART_VALUES,
    HOOK,
    LB,
    POOLS,
    RELEASE,
    SHOP,
    Attempt,
    a_group,
    a_pool,
    applied,
    changed,
    secret,
    trust_bundle,
)
from hack.escalations.groupobjects import with_group_objects
from hack.escalations.otherobjects import with_other_objects
from hack.escalations.stage import LISTED, MIXED, OWN, WEBHOOK, Manifest, owned
from kavip import names
from kavip.api.group import GroupSpec, KeepalivedGroup
from kavip.reconcile.group import manifests
from kavip.vrrp import targets


def allowed(group: KeepalivedGroup) -> list[Attempt]:
    """Requests that kavip sends in operation; nothing refuses them."""
    configmap, daemonset, monitor, role, binding = owned(group)
    listed = changed(daemonset, lambda body: body["spec"]["template"]["spec"]["containers"][0].update(image=LISTED))
    account = changed(daemonset, lambda body: body["spec"]["template"]["spec"].update(serviceAccountName="kavip-node"))
    sidecar_stays = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": LISTED}]
    hash_of = {"metadata": {"annotations": {names.CONFIG_HASH_ANNOTATION: "abc"}}}
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9", "ipMode": "VIP"}]}}}
    conditions = {"metadata": {"annotations": {names.VALUES_CONDITIONS_ANNOTATION: "[]"}}}
    requests = {
        "the ConfigMap of a group": applied(configmap),
        "its DaemonSet": applied(daemonset),
        "an image of the list": applied(listed),
        "an account of the list": applied(account),
        "every setting of pods that a group has": applied(_with_settings(group)),
        "an image beside a privileged sidecar": replace(f"{APPS}/lb/daemonsets/{MIXED}", sidecar_stays),
        "its PodMonitor": applied(monitor),
        "its Role": applied(role),
        "its RoleBinding": applied(binding),
        "the annotation of a pod": merge(f"{LB}/pods/edge-n1", hash_of),
        "the end of a pod of keepalived-operator": Request("DELETE", f"{LB}/pods/legacy-n1"),
        "caBundle": replace(HOOK, [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "eA=="}]),
        "the status of a Service": merge(f"{SHOP}/services/web/status", status),
        "a pool of the chart's values": apply(POOLS, a_pool()),
        "a group of the chart's values": applied(a_group()),
        "the conditions of the chart's values": merge(CHART_VALUES, conditions),
    }
    of_the_ca = secret(names.CA_SECRET_NAME, "kubernetes.io/tls")
    return [
        *(Attempt(what, request, "") for what, request in requests.items()),
        Attempt("the trust bundle", applied(trust_bundle()), "", WEBHOOK),
        Attempt("the Secret of the CA", create(f"{RELEASE}/secrets", of_the_ca), "", WEBHOOK),
    ]


def _with_settings(group: KeepalivedGroup) -> Manifest:
    """The DaemonSet of *group* with every field of ``spec`` that concerns its pods."""
    settings = {
        "interface": "eth0",
        "nodeSelector": {"a": "b"},
        "daemonsetPodPriorityClassName": "system-node-critical",
        "daemonsetPodAnnotations": {
            "prometheus.io/scrape": "true",
            "sidecar.istio.io/inject": "false",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "true",
            "container.apparmor.security.beta.kubernetes.io/keepalived": "runtime/default",
        },
        "resources": {"limits": {"memory": "64Mi"}},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "imagePullSecrets": [{"name": "a"}],
        "serviceAccountName": "kavip-node",
        "updateStrategy": {"type": "OnDelete"},
        "agentImage": LISTED,
        "image": LISTED,
        "checks": [{"name": "api", "url": targets.KUBE_APISERVER}],
    }
    full = msgspec.structs.replace(group, spec=msgspec.convert(settings, GroupSpec))
    return manifests.daemon_set(full, image=OWN, port=1, allowed_cidrs="192.0.2.0/24", secrets=["a", "b"])


def attempts(group: KeepalivedGroup) -> list[Attempt]:
    """Every attempt."""
    return [*with_group_objects(group), *with_other_objects()]
