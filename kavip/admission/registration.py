"""
The two webhook configurations as data.

They decide which requests the API server sends, which are accepted while kavip is down, and how long the API server
waits. A test compares the chart and ``config/webhook`` with this module. Outside a cluster kavip registers a URL with
the same rules. Under OLM it registers those for Services only: OLM registers the others, by ``webhookdefinitions``,
which have neither a namespace selector nor match conditions.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Final

from kavip import names

Configuration = dict[str, Any]

MUTATING: Final = "MutatingWebhookConfiguration"
VALIDATING: Final = "ValidatingWebhookConfiguration"
MUTATE_TIMEOUT: Final = 2  # seconds
VALIDATE_TIMEOUT: Final = 3
SETTLED: Final = timedelta(seconds=5)
"""API servers, and kube-proxy on their nodes, know by then an endpoint that has become ready."""
_WARN_ONLY: Final = {"failurePolicy": "Ignore", "timeoutSeconds": MUTATE_TIMEOUT}
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
SKIPPED_NAMESPACES: Final = ("kube-system",)  # a cluster must be able to start without kavip


@dataclass(frozen=True, slots=True)
class ServiceClientConfig:
    """The webhook is a Service in the cluster."""

    namespace: str
    name: str
    port: int = 443

    def for_path(self, path: str) -> dict[str, Any]:
        """``clientConfig`` for *path*."""
        return {"service": {"namespace": self.namespace, "name": self.name, "path": path, "port": self.port}}


@dataclass(frozen=True, slots=True)
class URLClientConfig:
    """The webhook listens at ``https://HOST:PORT``, outside the cluster."""

    url: str

    def for_path(self, path: str) -> dict[str, Any]:
        """``clientConfig`` for *path*."""
        return {"url": self.url.rstrip("/") + path}


ClientConfig = ServiceClientConfig | URLClientConfig


def _rule(group: str, version: str, resource: str, *operations: str, scope: str) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "resources": [resource],  # no subresource: writes of status and scale need no review
        "operations": list(operations),
        "scope": scope,
    }


_OF_KAVIP: Final = " || ".join(f"key.startsWith('{prefix}')" for prefix in names.ANNOTATION_PREFIXES)


def _is_marked(subject: str, class_matches: str) -> str:
    """CEL: *subject* has an annotation of kavip, or a class for which *class_matches* is true."""
    annotated = f"has({subject}.metadata.annotations) && {subject}.metadata.annotations.exists(key, {_OF_KAVIP})"
    of_class = f"has({subject}.spec.loadBalancerClass) && {subject}.spec.loadBalancerClass{class_matches}"
    return f"({subject} != null && (({annotated}) || ({of_class})))"


def _differs(path: str) -> str:
    """CEL: object and oldObject differ in the field *path*, which both may lack."""
    new, old = f"object.{path}", f"oldObject.{path}"
    return f"has({new}) != has({old}) || (has({new}) && {new} != {old})"


def _has_other_annotation(subject: str, other: str) -> str:
    """CEL: *subject* has an annotation of kavip that *other* lacks, or has with another value."""
    mine, theirs = f"{subject}.metadata.annotations", f"{other}.metadata.annotations"
    lacks = f"!has({theirs}) || !(key in {theirs}) || {theirs}[key] != {mine}[key]"
    return f"(has({mine}) && {mine}.exists(key, ({_OF_KAVIP}) && ({lacks})))"


# On CREATE there is no oldObject, on DELETE no object. An error in an expression refuses the request, so each
# expression checks that a field exists before it reads the field. A condition that searches annotations is the only one
# of its webhook: of a list the API server evaluates all, also those after one that is false.
_NOT_DELETED: Final = {
    "name": "not-being-deleted",
    "expression": "object == null || !has(object.metadata.deletionTimestamp)",
}
# The same as Review.only_ends_deletion, so that finalizers can be removed while kavip is down. An object has room for
# tens of thousands of annotations, and the API server would search them for half a minute. So they are not searched
# where they are equal.
_NOT_ONLY_ENDING_DELETION: Final = {
    "name": "not-only-ending-deletion",
    "expression": (
        "object == null ? !has(oldObject.metadata.deletionTimestamp) :"
        " (oldObject == null || !has(object.metadata.deletionTimestamp)"
        f" || {_differs('spec')} || {_differs('metadata.labels')}"
        f" || (({_differs('metadata.annotations')})"
        f" && ({_has_other_annotation('object', 'oldObject')} || {_has_other_annotation('oldObject', 'object')})))"
    ),
}
_STARTS_WITH_KAVIP: Final = f".startsWith('{names.KAVIP_GROUP}/')"  # for the warning about a mistyped class
_NAMES_GROUP: Final = {
    "name": "names-a-group",
    "expression": (
        "object != null && has(object.metadata.annotations)"
        f" && '{names.GROUP_ANNOTATION}' in object.metadata.annotations"
    ),
}
_MARKED: Final = f"{_is_marked('object', _STARTS_WITH_KAVIP)} || {_is_marked('oldObject', _STARTS_WITH_KAVIP)}"
_KAVIP: Final = {"name": "kavip", "expression": f"({_NOT_ONLY_ENDING_DELETION['expression']}) && ({_MARKED})"}
# Unchanged external IPs are never refused, so no review is needed; with kavip down such an update is accepted.
_EXTERNAL_IPS: Final = (
    "(object != null && has(object.spec.externalIPs) && size(object.spec.externalIPs) > 0"
    " && !(oldObject != null && has(oldObject.spec.externalIPs)"
    " && oldObject.spec.externalIPs == object.spec.externalIPs))"
)
_KAVIP_OR_EXTERNAL_IPS: Final = {
    "name": "kavip-or-external-ips",
    "expression": f"({_NOT_ONLY_ENDING_DELETION['expression']}) && ({_MARKED} || {_EXTERNAL_IPS})",
}
_SERVICES: Final = _rule("", "v1", "services", "CREATE", "UPDATE", scope="Namespaced")
_SERVICE_UPDATES: Final = _rule("", "v1", "services", "UPDATE", scope="Namespaced")
_GROUPS: Final = _rule(names.REDHATCOP_GROUP, names.VERSION, "keepalivedgroups", "CREATE", "UPDATE", scope="Namespaced")
_GROUP_DELETION: Final = _rule(names.REDHATCOP_GROUP, names.VERSION, "keepalivedgroups", "DELETE", scope="Namespaced")
_POOLS: Final = _rule(names.KAVIP_GROUP, names.VERSION, "vippools", "CREATE", "UPDATE", "DELETE", scope="Cluster")


@dataclass(frozen=True, slots=True)
class RegisteredWebhook:
    """
    One webhook. *everywhere*: also in kavip's own namespace and in ``kube-system``.

    *warns_only*: the timeout is short, and a failure is ignored.
    """

    name: str
    path: str
    rule: dict[str, Any]
    conditions: tuple[dict[str, str], ...]
    everywhere: bool = True
    warns_only: bool = False

    @property
    def is_of_services(self) -> bool:
        """Whether it is about Services, which every user writes, and not about kavip's own kinds."""
        return self.rule in (_SERVICES, _SERVICE_UPDATES)


MUTATORS: Final = (
    RegisteredWebhook(
        "mutate-service", names.MUTATE_SERVICE_PATH, _SERVICE_UPDATES, (_NOT_DELETED, _NAMES_GROUP), everywhere=False
    ),
    RegisteredWebhook("mutate-keepalivedgroup", names.MUTATE_GROUP_PATH, _GROUPS, (_NOT_DELETED,)),
)
VALIDATORS: Final = (
    RegisteredWebhook("validate-service", names.VALIDATE_SERVICE_PATH, _SERVICES, (_KAVIP,), everywhere=False),
    RegisteredWebhook("validate-keepalivedgroup", names.VALIDATE_GROUP_PATH, _GROUPS, (_NOT_ONLY_ENDING_DELETION,)),
    RegisteredWebhook(
        "warn-keepalivedgroup",
        names.VALIDATE_GROUP_PATH,
        _GROUP_DELETION,
        (_NOT_ONLY_ENDING_DELETION,),
        warns_only=True,
    ),
    RegisteredWebhook("validate-vippool", names.VALIDATE_POOL_PATH, _POOLS, (_NOT_ONLY_ENDING_DELETION,)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationOptions:
    """
    The choices of the administrator: which externalIPs are reviewed, and the two failure policies.

    With ``external_ips: all`` the API server sends every Service with new externalIPs, also unmanaged ones.
    *services_only*: another program registers the webhooks for groups and pools.
    """

    external_ips: str = "managed"
    mutating: str = "Ignore"
    validating: str = "Fail"
    services_only: bool = False


DEFAULTS: Final = RegistrationOptions()


def is_due(endpoint_age: timedelta | None) -> bool:
    """
    Whether to create a missing configuration, by the time for which the webhook has had a ready endpoint.

    Before that, the API server would refuse what users write, because nothing answers. A configuration that exists is
    always written: API servers call its webhooks anyway, and must trust a new CA in time.
    """
    return endpoint_age is not None and endpoint_age >= SETTLED


def configurations(
    name: str,
    client: ClientConfig,
    *,
    namespace: str,
    ca_bundle: str = "",
    labels: Mapping[str, str] = NO_LABELS,
    options: RegistrationOptions = DEFAULTS,
) -> tuple[Configuration, Configuration]:
    """
    The mutating and the validating configuration *name* of a kavip in *namespace*.

    *ca_bundle* is base64. Without it the field is omitted: kavip writes it later with its own field manager.
    """
    metadata = {"name": name, **({"labels": dict(labels)} if labels else {})}
    mutating = {"failurePolicy": options.mutating, "timeoutSeconds": MUTATE_TIMEOUT, "reinvocationPolicy": "Never"}
    validating = {"failurePolicy": options.validating, "timeoutSeconds": VALIDATE_TIMEOUT}

    def as_json(webhook: RegisteredWebhook, common: dict[str, Any]) -> dict[str, Any]:
        trust = {"caBundle": ca_bundle} if ca_bundle else {}
        where = {} if webhook.everywhere else {"namespaceSelector": _outside(*SKIPPED_NAMESPACES, namespace)}
        return {
            "name": f"{webhook.name}.{names.KAVIP_GROUP}",
            "clientConfig": {**client.for_path(webhook.path), **trust},
            "rules": [webhook.rule],
            **where,
            "matchConditions": [_widened(each, options) for each in webhook.conditions],
            "matchPolicy": "Equivalent",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **common,
            **(_WARN_ONLY if webhook.warns_only else {}),
        }

    return (
        _configuration(MUTATING, metadata, [as_json(each, mutating) for each in _registered(MUTATORS, options)]),
        _configuration(VALIDATING, metadata, [as_json(each, validating) for each in _registered(VALIDATORS, options)]),
    )


def _registered(webhooks: Iterable[RegisteredWebhook], options: RegistrationOptions) -> Iterator[RegisteredWebhook]:
    return (each for each in webhooks if each.is_of_services or not options.services_only)


def _widened(condition: dict[str, str], options: RegistrationOptions) -> dict[str, str]:
    return _KAVIP_OR_EXTERNAL_IPS if condition is _KAVIP and options.external_ips == "all" else condition


def _configuration(kind: str, metadata: dict[str, Any], webhooks: list[dict[str, Any]]) -> Configuration:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": webhooks,
    }


def _outside(*namespaces: str) -> dict[str, Any]:
    wanted = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": sorted({*namespaces})}
    return {"matchExpressions": [wanted]}
