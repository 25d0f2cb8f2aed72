"""What a command learns of the settings of kavip from the objects of a cluster."""

import msgspec
import pytest

from kavip.admission.chain import PolicyOptions
from kavip.api.group import ConfigTemplateRef, KeepalivedGroup
from kavip.api.meta import Condition
from kavip.cli.views.listing import Listing, settings_in
from kavip.podtemplate.permissions import TemplatePermissions
from tests.support import build

GIVEN = PolicyOptions(ipam="never", templates=TemplatePermissions.of("net", "hostPath"))


def group(status: str, *, generation: int = 2, template: bool = True) -> KeepalivedGroup:
    """A group of generation 2 with a condition."""
    reference = ConfigTemplateRef("lines") if template else None
    plain = build.group("lb/edge", config_template_ref=reference)
    condition = Condition("Accepted", status, observed_generation=generation)
    return msgspec.structs.replace(
        plain,
        metadata=msgspec.structs.replace(plain.metadata, generation=2),
        status=msgspec.structs.replace(plain.status, conditions=[condition]),
    )


def test_an_accepted_template_shows_that_it_is_permitted() -> None:
    """In its namespace, beside what the flags permit; the other settings stay."""
    found = settings_in(Listing((build.pool("edge"), group("True"))), GIVEN)
    assert found == PolicyOptions(ipam="never", templates=TemplatePermissions.of("lb,net", "hostPath"))
    assert settings_in(None, GIVEN) == GIVEN


@pytest.mark.parametrize(
    "other", [group("False"), group("True", generation=1), group("True", template=False), build.group("lb/edge")]
)
def test_any_other_group_shows_nothing(other: KeepalivedGroup) -> None:
    """One that is refused, not looked at yet, or without a template."""
    assert settings_in(Listing((other,)), GIVEN) == GIVEN
