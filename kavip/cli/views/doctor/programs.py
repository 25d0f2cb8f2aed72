"""
Kubernetes, the CRDs, kavip's Deployments and their rights.
"""

import re
from collections.abc import Iterator
from shlex import quote
from typing import Any, Final

import msgspec

from kavip import __version__, names
from kavip.api import conditions
from kavip.api.group import GroupSpec, GroupStatus
from kavip.api.installation import Workload
from kavip.api.meta import Wire
from kavip.api.pool import PoolSpec, PoolStatus
from kavip.cli.views.doctor.finding import Finding
from kavip.cli.views.doctor.inspection import Inspection, Right
from kavip.kube import resources
from kavip.kube.resources import Component, Resource, Scope

OLDEST: Final = (1, 30)
"""The first version of Kubernetes that kavip works with."""
APPLY_DEFINITIONS: Final = "kubectl apply --server-side -f config/crd/bases"
UPGRADE: Final = "helm upgrade kavip charts/kavip --namespace {namespace} --reset-then-reuse-values"

_NAME_LABEL: Final = "app.kubernetes.io/name"
_VERSION_LABEL: Final = "app.kubernetes.io/version"
_COMPONENTS: Final = {
    "run": (Component.WEBHOOK, Component.CONTROLLER),
    "webhook": (Component.WEBHOOK,),
    "controller": (Component.CONTROLLER,),
}
_KINDS: Final[tuple[tuple[Resource[Any], dict[str, type[Wire]]], ...]] = (
    (resources.GROUPS, {"spec": GroupSpec, "status": GroupStatus}),
    (resources.POOLS, {"spec": PoolSpec, "status": PoolStatus}),
)
_CONDITIONAL: Final = "admissionregistration.k8s.io"  # on objects of one name, and not with each setting
_MOST_NAMESPACES: Final = 20  # namespaces of groups in which rights are reviewed
DEFINITIONS: Final = tuple(f"{resource.plural}.{resource.group}" for resource, _ in _KINDS)


def kubernetes(found: Inspection) -> Iterator[Finding]:
    """Check that Kubernetes is not too old."""
    match = re.match(r"v?(\d{1,4})\.(\d{1,4})", found.version)
    if match is None or (int(match[1]), int(match[2])) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        yield Finding(
            f"the API server is Kubernetes {found.version or 'of unknown version'}; kavip needs {wanted}",
            "kubeadm upgrade plan",
        )


def definitions(found: Inspection) -> Iterator[Finding]:
    """Check that the API server has kavip's kinds with all fields of this version."""
    for resource, parts in _KINDS:
        name = f"{resource.plural}.{resource.group}"
        definition = found.definitions.get(name)
        if definition is None:
            yield Finding(f"CustomResourceDefinition {name} does not exist", APPLY_DEFINITIONS)
            continue
        established = conditions.find(definition.status.conditions, "Established")
        if established is None or established.status != "True":
            yield Finding(
                f"CustomResourceDefinition {name} is not established",
                f"kubectl describe customresourcedefinition {name}",
            )
        versions = (each for each in definition.spec.versions or () if each.name == names.VERSION and each.served)
        version = next(versions, None)
        if version is None:
            yield Finding(f"CustomResourceDefinition {name} does not serve {names.VERSION}", APPLY_DEFINITIONS)
            continue
        for part, type_ in parts.items():
            schema = (version.schema.root.properties or {}).get(part)
            if schema is None or schema.keeps_unknown:
                continue
            known = {each.encode_name for each in msgspec.structs.fields(type_)}
            if lacking := sorted(known - set(schema.properties or ())):
                fields = ", ".join(f"{part}.{each}" for each in lacking)
                yield Finding(f"CustomResourceDefinition {name} lacks {fields}", APPLY_DEFINITIONS)


def own_deployments(workloads: tuple[Workload, ...]) -> list[Workload]:
    """kavip's Deployments among *workloads*, by key."""
    return sorted(
        (each for each in workloads if each.metadata.label(_NAME_LABEL) == "kavip" and component_of(each)),
        key=lambda each: each.metadata.key,
    )


def component_of(workload: Workload) -> tuple[Component, ...]:
    """The components of kavip that *workload* runs."""
    commands = (argument for each in workload.containers for argument in (each.args or ())[:1])
    return next((_COMPONENTS[each] for each in commands if each in _COMPONENTS), ())


def deployments(found: Inspection) -> Iterator[Finding]:
    """Check that kavip runs, in the version of this program."""
    if _is_outside(found):
        return
    own = own_deployments(found.workloads)
    running = {component for each in own for component in component_of(each)}
    for component in Component:
        if component not in running:
            yield Finding(
                f"no Deployment runs kavip's {component}",
                "helm upgrade --install kavip charts/kavip --namespace kavip --create-namespace",
            )
    for each in own:
        where = f"--namespace={quote(each.metadata.namespace)}"
        if not each.status.ready_replicas:
            yield Finding(
                f"Deployment {each.metadata.key} has no ready pod",
                f"kubectl describe deployment {quote(each.metadata.name)} {where}",
            )
        version = each.metadata.label(_VERSION_LABEL)
        if version and version != __version__:
            yield Finding(
                f"Deployment {each.metadata.key} is of version {version}, this program of {__version__}",
                UPGRADE.format(namespace=quote(each.metadata.namespace)),
            )


def _is_outside(found: Inspection) -> bool:
    """Whether kavip runs outside the cluster: its webhooks are URLs."""
    hooks = [hook for each in found.configurations.values() for hook in each.webhooks or ()]
    return bool(hooks) and all(each.client_config.service is None for each in hooks)


def needed_rights(workloads: tuple[Workload, ...]) -> list[Right]:
    """
    The rights that kavip's accounts need with all settings, sorted.

    Rights in its own namespace, on objects of one name, and rights without which kavip works are left out.
    """
    rights: set[Right] = set()
    for each in own_deployments(workloads):
        account = f"{each.metadata.namespace}/{each.spec.template.spec.service_account_name or 'default'}"
        listed = next((text for one in each.containers if (text := one.variable("KAVIP_GROUP_NAMESPACES"))), "")
        spaces = sorted({text.strip() for text in listed.split(",")} - {""})
        for component in component_of(each):
            rights |= set(_rights(account, component, spaces))
    return sorted(rights)


def _rights(account: str, component: Component, spaces: list[str]) -> Iterator[Right]:
    for resource in resources.ALL:
        if resource.names or resource.optional or resource.tolerate_forbidden or resource.group == _CONDITIONAL:
            continue
        for use in resource.uses:
            if use.component is not component or use.scope is Scope.RELEASE:
                continue
            what = f"{resource.plural}/{use.subresource}" if use.subresource else resource.plural
            where = spaces[:_MOST_NAMESPACES] if use.scope is Scope.GROUPS and spaces else [""]
            for verb in use.verbs:
                for namespace in where:
                    yield Right(account, verb, resource.group, what, namespace)


def rights(found: Inspection) -> Iterator[Finding]:
    """Check that kavip's accounts have the rights of the chart."""
    for each in found.denied:
        command = UPGRADE.format(namespace=quote(each.account.partition("/")[0]))
        yield Finding(f"account {each.account} may not {each}", command)
