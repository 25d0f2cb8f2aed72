"""
The same seed gives the same examples, whatever else the process has loaded.

Hypothesis mixes the constants of all loaded modules of the project into what it draws: an edit of a module, or another
test imported before, would change the examples, and no seed would bring a finding back. It has no setting for that.
"""

from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]  # noqa: SLF001 - no setting
