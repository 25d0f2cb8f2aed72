"""Accounts of the components of kavip, with exactly the rights that :mod:`kavip.kube.resources` lists."""

from collections.abc import Collection, Iterator
from typing import Any

from kavip.kube.resources import ALL, GRANTED, Component, Scope
from tests.support import manifests

RBAC = "rbac.authorization.k8s.io"


def account(component: Component) -> str:
    """The user name of *component*."""
    return f"system:serviceaccount:{manifests.NAMESPACE}:kavip-{component}"


def objects(component: Component, group_namespaces: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """The roles of *component* and their bindings; rights of scope ``groups`` are in *group_namespaces*, if given."""
    for scope in Scope:
        rules = list(_rules(component, scope))
        for namespace in _namespaces(scope, group_namespaces) if rules else ():
            kind = "Role" if namespace else "ClusterRole"
            name = f"kavip-{component}-{scope}"
            where = {"namespace": namespace} if namespace else {}
            shared = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name, **where}}
            yield {**shared, "kind": kind, "rules": rules}
            yield {
                **shared,
                "kind": f"{kind}Binding",
                "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
                "subjects": [{"apiGroup": RBAC, "kind": "User", "name": account(component)}],
            }


def _namespaces(scope: Scope, group_namespaces: Collection[str]) -> Collection[str]:
    match scope:
        case Scope.CLUSTER:
            return [""]
        case Scope.RELEASE:
            return [manifests.NAMESPACE]
        case Scope.GROUPS:
            return group_namespaces or [""]


def _rules(component: Component, scope: Scope) -> Iterator[dict[str, Any]]:
    for resource in ALL:
        for use in resource.uses:
            if (use.component, use.scope) != (component, scope):
                continue
            kind = "/".join(filter(None, (resource.plural, use.subresource)))
            rule = {"apiGroups": [resource.group], "resources": [kind]}
            named = [verb for verb in use.verbs if resource.names and verb != "create"]
            if named:
                yield {**rule, "verbs": named, "resourceNames": list(resource.names)}
            if others := [verb for verb in use.verbs if verb not in named]:
                yield {**rule, "verbs": others}
    kinds, use = GRANTED
    if (use.component, use.scope) == (component, scope):
        yield {"apiGroups": [""], "resources": list(kinds), "verbs": list(use.verbs)}
