"""How long to wait before the next attempt."""

import random


def backoff(failures: int, *, base: float, cap: float) -> float:
    """
    Seconds to wait after *failures* earlier failures: *base* doubled each time, at most *cap*, less up to a half.

    The random part keeps what failed together from coming back together.
    """
    return float(min(cap, base * 2 ** min(failures, 32)) * random.uniform(0.5, 1.0))  # noqa: S311 - no secret
