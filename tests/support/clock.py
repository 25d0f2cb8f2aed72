"""Time that passes when a test says so, on a loop that serves real sockets."""

import asyncio


def skip(seconds: float) -> None:
    """
    Let *seconds* pass for all that goes by the time of the running loop.

    With that limits can be long, so that a machine that stalls runs into none of them, and tests need not wait.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    loop.time = lambda: now() + seconds  # type: ignore[method-assign]  # of this loop alone
