"""The table of rights (``charts/kavip/files/rights.yaml``) as values."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import yaml

from tests.support import manifests

TABLE = manifests.CHART / "files" / "rights.yaml"
ACCOUNTS = ("webhook", "controller")
SCOPES = ("cluster", "groups", "release")
DEFAULTS = {"certs.mode": "self", "metrics.secure": "false"}
"""The chart values on which rules depend, as text, with their defaults."""

LISTED = frozenset({"$pools", "$groups"})
"""Chart values that are empty lists by default: rules for the names in them do not exist."""

Rights = set[tuple[str, str, str]]
"""(API group, resource, verb)"""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: who holds it where, and for which chart values; *only*: not in the chart."""

    accounts: tuple[str, ...]
    scope: str
    when: dict[str, list[str]]
    names: tuple[str, ...]
    rights: frozenset[tuple[str, str, str]]
    only: str


def rules() -> list[Rule]:
    """All rules of the table."""
    return [_rule(**each) for each in yaml.load(TABLE.read_text(), yaml.CSafeLoader)]


def _rule(
    *,
    accounts: list[str],
    scope: str,
    apiGroups: list[str],  # noqa: N803 - as the API writes it
    resources: list[str],
    verbs: list[str],
    when: dict[str, list[str]] | None = None,
    only: str = "",
    resourceNames: list[str] | None = None,  # noqa: N803 - the same
) -> Rule:
    rights = frozenset((group, resource, verb) for group in apiGroups for resource in resources for verb in verbs)
    return Rule(tuple(accounts), scope, when or {}, tuple(resourceNames or ()), rights, only)


def held(account: str, *scopes: str, values: dict[str, str] = DEFAULTS) -> Rights:
    """The rights of *account* in any of *scopes*, by default in all, with *values* of the chart instead of defaults."""
    return {
        right
        for rule in rules()
        if account in rule.accounts and rule.scope in (scopes or SCOPES) and _applies(rule, {**DEFAULTS, **values})
        for right in rule.rights
    }


def _applies(rule: Rule, values: dict[str, str]) -> bool:
    return (
        not rule.only
        and LISTED.isdisjoint(rule.names)
        and all(values[path] in wanted for path, wanted in rule.when.items())
    )


def of_roles(roles: Collection[dict[str, Any]]) -> Rights:
    """The rights that Roles and ClusterRoles grant."""
    return {
        (group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
