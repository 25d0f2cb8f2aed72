"""Where the administrator permits templates."""

import pytest

from kavip.podtemplate.permissions import ALL_PERMITTED, NOTHING_PERMITTED, TemplatePermissions

SOME = TemplatePermissions.of("net, lb", "")


@pytest.mark.parametrize(
    ("permissions", "group_namespaces", "places"),
    [
        (NOTHING_PERMITTED, (), []),
        (NOTHING_PERMITTED, ("lb",), []),
        (SOME, (), ["lb", "net"]),
        (SOME, ("lb", "shop"), ["lb"]),
        (ALL_PERMITTED, (), [""]),
        (ALL_PERMITTED, ("shop", "lb"), ["lb", "shop"]),
    ],
)
def test_places_are_where_groups_may_have_templates(
    permissions: TemplatePermissions, group_namespaces: tuple[str, ...], places: list[str]
) -> None:
    """kavip has no right outside of groupNamespaces, and reads nothing where no template is permitted."""
    assert permissions.places(group_namespaces) == places
