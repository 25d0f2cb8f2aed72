"""Attempts with the objects of groups: their owners and metadata, ConfigMaps, and what Prometheus needs."""

from collections.abc import Callable
from typing import Any

from hack.escalations.account import create, merge
from hack.escalations.attempt import (
    APPS,
    CONFIGMAPS,
    CORE,
    LB,
    MONITORING,
    NAMESPACES,
    OWNED,
    RELEASE,
    SHOP,
    Attempt,
    applied,
    changed,
    trust_bundle,
)
from hack.escalations.daemonsets import with_daemonsets
from hack.escalations.stage import NAMESPACE, WEBHOOK, Manifest, owned
from kavip import names
from kavip.api.group import KeepalivedGroup


def with_group_objects(group: KeepalivedGroup) -> list[Attempt]:
    """Every attempt with an object of *group*, or one like it."""
    return [*with_daemonsets(group), *_owned_objects(group), *_metadata(group), *_monitoring(group)]


def _owned_objects(group: KeepalivedGroup) -> list[Attempt]:
    configmap, daemonset, monitor, role, _ = owned(group)
    second = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "x"}
    own = {"data": {names.CONFIG_KEY: "x"}}

    def without_a_group(body: Manifest) -> Attempt:
        orphan = changed(body, lambda new: new["metadata"].pop("ownerReferences"))
        return Attempt(f"{body['kind']} that no group owns", applied(orphan), OWNED)

    def elsewhere(body: Manifest, namespace: str, policy: str) -> Attempt:
        moved = changed(body, lambda new: new["metadata"].update(namespace=namespace))
        return Attempt(f"{body['kind']} in {namespace}", applied(moved), policy)

    hidden = changed(configmap, lambda new: new["metadata"].update(name="new"))
    hidden["metadata"]["ownerReferences"][0].update(name="new")
    return [
        *(without_a_group(each) for each in (configmap, daemonset, role)),
        Attempt("ConfigMap with the label of another group", applied(hidden), OWNED),
        *(elsewhere(each, "kube-system", OWNED) for each in (configmap, daemonset, role)),
        *(elsewhere(each, "shop", NAMESPACES) for each in (configmap, daemonset, monitor, role)),
        Attempt(
            "DaemonSet that outlives its group",
            applied(changed(daemonset, lambda body: body["metadata"]["ownerReferences"].append(second))),
            OWNED,
        ),
        Attempt(
            "DaemonSet of another program",
            merge(f"{APPS}/shop/daemonsets/web", {"metadata": {"labels": {"a": "b"}}}),
            OWNED,
        ),
        Attempt("ConfigMap: coredns", merge(f"{CORE}/namespaces/kube-system/configmaps/coredns", own), OWNED),
        Attempt("ConfigMap: the CA that programs trust", merge(f"{SHOP}/configmaps/kube-root-ca.crt", own), OWNED),
        Attempt("ConfigMap of another program", merge(f"{SHOP}/configmaps/web", own), OWNED),
        Attempt(
            "ConfigMap: a key of another program",
            applied(changed(configmap, lambda body: body["data"].update({"ca.crt": "x"}))),
            CONFIGMAPS,
        ),
        Attempt(
            "ConfigMap: another key in the trust bundle",
            applied(changed(trust_bundle(), lambda body: body["data"].update({names.AGENT_KEY: "{}"}))),
            CONFIGMAPS,
            WEBHOOK,
        ),
        Attempt(
            "ConfigMap of another name beside the trust bundle",
            create(f"{RELEASE}/configmaps", {**trust_bundle(), "metadata": {"name": "new"}, "data": {}}),
            OWNED,
            WEBHOOK,
        ),
        Attempt(
            "ConfigMap: the group loses it",
            merge(f"{LB}/configmaps/edge", {"metadata": {"ownerReferences": None}}),
            OWNED,
        ),
    ]


def _metadata(group: KeepalivedGroup) -> list[Attempt]:
    """Metadata with which an object outlives its group, ends before it, or concerns another program."""
    configmap, daemonset, *_ = objects = owned(group)
    finalizers = ["evil.example.com/x"]

    def attempt(what: str, body: Manifest, change: Callable[[Any], Any], policy: str = OWNED) -> Attempt:
        return Attempt(f"{body['kind']}: {what}", applied(changed(body, change)), policy)

    def owner(**fields: Any) -> Callable[[Any], Any]:
        return lambda body: body["metadata"]["ownerReferences"][0].update(fields)

    def notes(field: str, **entries: str) -> Callable[[Any], Any]:
        return lambda body: body["metadata"].setdefault(field, {}).update(entries)

    bundle = changed(trust_bundle(), lambda body: body["metadata"].update(finalizers=finalizers))
    return [
        *(
            attempt("a finalizer", each, lambda body: body["metadata"].update(finalizers=finalizers))
            for each in objects
        ),
        *(
            attempt("an owner of a version that nothing serves", each, owner(apiVersion="redhatcop.redhat.io/v9"))
            for each in objects
        ),
        attempt("an owner that no longer exists", daemonset, owner(uid="00000000-0000-4000-8000-000000000001")),
        attempt("an owner that does not wait for it", configmap, owner(blockOwnerDeletion=False)),
        attempt("a label of another program", configmap, notes("labels", grafana_dashboard="1")),
        attempt("an annotation of another program", configmap, notes("annotations", **{"example.com/a": "b"})),
        attempt("immutable", configmap, lambda body: body.update(immutable=True), CONFIGMAPS),
        Attempt("ConfigMap: a finalizer on the trust bundle", applied(bundle), CONFIGMAPS, WEBHOOK),
    ]


def _monitoring(group: KeepalivedGroup) -> list[Attempt]:
    _, _, monitor, role, binding = owned(group)
    held = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]}
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    itself = {"kind": "ServiceAccount", "name": "kavip", "namespace": NAMESPACE}
    sends_a_secret = {"port": "metrics", "bearerTokenSecret": {"name": "web", "key": "password"}}
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    return [
        Attempt(
            "Role with other rights of kavip",
            applied({**role, "rules": [held]}),
            MONITORING,
        ),
        Attempt("Role with all rights", applied({**role, "rules": [everything]})),
        Attempt("RoleBinding to itself", applied({**binding, "subjects": [itself]}), MONITORING),
        Attempt(
            "RoleBinding to everyone",
            applied({**binding, "subjects": [{"kind": "Group", "name": "system:authenticated"}]}),
            MONITORING,
        ),
        Attempt(
            "RoleBinding to cluster-admin",
            applied(
                {**binding, "subjects": [itself], "metadata": {**binding["metadata"], "name": "mine"}, "roleRef": admin}
            ),
        ),
        Attempt(
            "PodMonitor that sends a Secret",
            applied({**monitor, "spec": {**monitor["spec"], "podMetricsEndpoints": [sends_a_secret]}}),
            MONITORING,
        ),
    ]
