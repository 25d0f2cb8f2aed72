"""
Makes the examples of a seed independent of the modules that the process has loaded.

Hypothesis draws constants from all loaded modules of the project. An edit of a module, or an import by another test,
would change the examples, and a seed would not repeat a finding. Hypothesis has no setting for this.
"""

from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

HypothesisProvider._local_constants = Constants()  # type: ignore[assignment]  # noqa: SLF001 - no setting
