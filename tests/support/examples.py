"""How many examples a property test takes: fewer in ``make test-unit``, which is to answer within seconds."""

from typing import Any, Final

from hypothesis import settings

QUICK: Final = "quick"
"""The profile of ``make test-unit``."""
FEW: Final = 10


def examples(most: int, **others: Any) -> settings:
    """Settings with *most* examples, or with few ones in the profile :data:`QUICK`; *others* as in hypothesis."""
    is_quick = settings.get_current_profile_name() == QUICK
    return settings(max_examples=min(most, FEW) if is_quick else most, **others)
