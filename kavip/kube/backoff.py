"""The delay before the next attempt."""

import random


def backoff(failures: int, *, base: float, cap: float) -> float:
    """
    The delay in seconds after *failures* previous failures: *base* doubled each time, at most *cap*, less up to a half.

    The random part spreads the retries of calls that failed together.
    """
    return float(min(cap, base * 2 ** min(failures, 32)) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
