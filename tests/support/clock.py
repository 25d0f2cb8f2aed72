"""Time that a test advances, on a loop that serves real sockets."""

import asyncio


def advance(seconds: float) -> None:
    """
    Advance the time of the running loop by *seconds*.

    So timeouts can be long, and a machine that stalls does not reach them, but tests need not wait.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # of this loop alone
