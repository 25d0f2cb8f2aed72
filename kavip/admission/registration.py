"""
The two webhook configurations as data.

What the API server asks, what passes with kavip down, and how long it waits. The chart and
``config/webhook`` are compared with this page; outside a cluster kavip registers by URL with the same rules.
"""

from dataclasses import dataclass
from typing import Any, Final

from kavip import names

Configuration = dict[str, Any]

MUTATING: Final = "MutatingWebhookConfiguration"
VALIDATING: Final = "ValidatingWebhookConfiguration"
MUTATE_TIMEOUT: Final = 2  # seconds
VALIDATE_TIMEOUT: Final = 3
_ADVICE: Final = {"failurePolicy": "Ignore", "timeoutSeconds": MUTATE_TIMEOUT}
SKIPPED_NAMESPACES: Final = ("kube-system",)  # a cluster must be able to start without us


@dataclass(frozen=True, slots=True)
class ByService:
    """Reached through a Service in the cluster."""

    namespace: str
    name: str
    port: int = 443

    def config(self, path: str) -> dict[str, Any]:
        """``clientConfig`` for *path*."""
        return {"service": {"namespace": self.namespace, "name": self.name, "path": path, "port": self.port}}


@dataclass(frozen=True, slots=True)
class ByURL:
    """Reached at ``https://HOST:PORT``, outside a cluster."""

    url: str

    def config(self, path: str) -> dict[str, Any]:
        """``clientConfig`` for *path*."""
        return {"url": self.url.rstrip("/") + path}


Client = ByService | ByURL


def _rule(group: str, version: str, resource: str, *operations: str, scope: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],  # no subresource: status and scale are never asked about
        "operations": list(operations),
        "scope": scope,
    }


def _marked(subject: str, classed: str) -> str:
    """CEL: *subject* carries a kavip annotation, or a class of which *classed* holds."""
    keys = " || ".join(f"key.startsWith('{prefix}')" for prefix in names.ANNOTATION_PREFIXES)
    annotated = f"has({subject}.metadata.annotations) && {subject}.metadata.annotations.exists(key, {keys})"
    of_class = f"has({subject}.spec.loadBalancerClass) && {subject}.spec.loadBalancerClass{classed}"
    return f"({subject} != null && (({annotated}) || ({of_class})))"


# Each condition is one expression; all of a list must hold. On CREATE there is no oldObject, on DELETE no object, and
# an expression that fails is a request refused: nothing is read before it is known to be there.
_ALIVE: Final = {
    "name": "not-being-deleted",
    "expression": "object == null || !has(object.metadata.deletionTimestamp)",
}
_PLAIN: Final = (
    "(object != null && has(object.spec.type) && object.spec.type == 'LoadBalancer'"
    " && !has(object.spec.loadBalancerClass))"
)
_OURS: Final = f" == '{names.LOAD_BALANCER_CLASS}'"
_LIKE_OURS: Final = f".startsWith('{names.KAVIP_GROUP}/')"  # a mistyped one is told
_KAVIP_OR_PLAIN: Final = {"name": "kavip-or-plain", "expression": f"{_marked('object', _OURS)} || {_PLAIN}"}
_KAVIP: Final = {
    "name": "kavip",
    "expression": f"{_marked('object', _LIKE_OURS)} || {_marked('oldObject', _LIKE_OURS)}",
}
# Those that an update leaves as they were are never refused, so with kavip down such an update passes.
_EXTERNAL_IPS: Final = (
    "(object != null && has(object.spec.externalIPs) && size(object.spec.externalIPs) > 0"
    " && !(oldObject != null && has(oldObject.spec.externalIPs)"
    " && oldObject.spec.externalIPs == object.spec.externalIPs))"
)
_KAVIP_OR_EXTERNAL_IPS: Final = {
    "name": "kavip-or-external-ips",
    "expression": f"{_KAVIP['expression']} || {_EXTERNAL_IPS}",
}
_SERVICES: Final = _rule("", "v1", "services", "CREATE", "UPDATE", scope="Namespaced")
_GROUPS: Final = _rule(names.REDHATCOP_GROUP, names.VERSION, "keepalivedgroups", "CREATE", "UPDATE", scope="Namespaced")
_GROUPS_THAT_GO: Final = _rule(names.REDHATCOP_GROUP, names.VERSION, "keepalivedgroups", "DELETE", scope="Namespaced")
_POOLS: Final = _rule(names.KAVIP_GROUP, names.VERSION, "vippools", "CREATE", "UPDATE", "DELETE", scope="Cluster")


@dataclass(frozen=True, slots=True)
class Hook:
    """
    One webhook: what it is asked about. *everywhere*: in our own namespace and in ``kube-system`` too.

    *advises*: it only warns, and nobody waits long for it, or in vain.
    """

    name: str
    path: str
    rule: dict[str, Any]
    conditions: tuple[dict[str, str], ...]
    everywhere: bool = True
    advises: bool = False


MUTATORS: Final = (
    Hook("mutate-service", names.MUTATE_SERVICE_PATH, _SERVICES, (_ALIVE, _KAVIP_OR_PLAIN), everywhere=False),
    Hook("mutate-keepalivedgroup", names.MUTATE_GROUP_PATH, _GROUPS, (_ALIVE,)),
)
VALIDATORS: Final = (
    Hook("validate-service", names.VALIDATE_SERVICE_PATH, _SERVICES, (_ALIVE, _KAVIP), everywhere=False),
    Hook("validate-keepalivedgroup", names.VALIDATE_GROUP_PATH, _GROUPS, (_ALIVE,)),
    Hook("warn-keepalivedgroup", names.VALIDATE_GROUP_PATH, _GROUPS_THAT_GO, (_ALIVE,), advises=True),
    Hook("validate-vippool", names.VALIDATE_POOL_PATH, _POOLS, (_ALIVE,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """
    What an administrator may choose: whose externalIPs are checked, and what happens when nobody answers.

    With ``external_ips: all`` the API server asks about externalIPs of every Service, whoever manages it.
    """

    external_ips: str = "managed"
    mutating: str = "Ignore"
    validating: str = "Fail"


USUAL: Final = Manner()


def configurations(
    name: str, client: Client, *, namespace: str, ca_bundle: str = "", manner: Manner = USUAL
) -> tuple[Configuration, Configuration]:
    """
    Both configurations, called *name*, for a kavip that runs in *namespace*.

    *ca_bundle* is base64; without it the field is left out, for kavip to write under its own field manager.
    """
    mutating = {"failurePolicy": manner.mutating, "timeoutSeconds": MUTATE_TIMEOUT, "reinvocationPolicy": "Never"}
    validating = {"failurePolicy": manner.validating, "timeoutSeconds": VALIDATE_TIMEOUT}

    def webhook(hook: Hook, common: dict[str, Any]) -> dict[str, Any]:
        trust = {"caBundle": ca_bundle} if ca_bundle else {}
        where = {} if hook.everywhere else {"namespaceSelector": _outside(*SKIPPED_NAMESPACES, namespace)}
        return {
            "name": f"{hook.name}.{names.KAVIP_GROUP}",
            "clientConfig": {**client.config(hook.path), **trust},
            "rules": [hook.rule],
            **where,
            "matchConditions": [_widened(each, manner) for each in hook.conditions],
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **common,
            **(_ADVICE if hook.advises else {}),
        }

    return (
        _configuration(MUTATING, name, [webhook(hook, mutating) for hook in MUTATORS]),
        _configuration(VALIDATING, name, [webhook(hook, validating) for hook in VALIDATORS]),
    )


def _widened(condition: dict[str, str], manner: Manner) -> dict[str, str]:
    return _KAVIP_OR_EXTERNAL_IPS if condition is _KAVIP and manner.external_ips == "all" else condition


def _configuration(kind: str, name: str, webhooks: list[dict[str, Any]]) -> Configuration:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }


def _outside(*namespaces: str) -> dict[str, Any]:
    wanted = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": sorted({*namespaces})}
    return {"matchExpressions": [wanted]}
