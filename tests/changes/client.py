"""
Ask VIPs over HTTP every 10 ms, each time on a new connection, until standard input closes.

Prints "ready" when it has asked each once, and at the end one JSON object: for each VIP a list of
``[when it was sent, seconds until the answer or null, who answered, or why nobody]``, in the order of sending. A
connection that stood may be reset (:data:`RESET`) where its VIP moves: it stays behind. Moments are seconds of the
monotonic clock, which all machines of a segment share.
"""

import asyncio
import json
import sys
import time

from tests.changes.server import PORT

EVERY = 0.01
RESET = "reset"
TIMEOUT = (
    0.9  # seconds: shorter than TCP's first retransmission, so a lost packet is a failure; long for a busy machine
)

Row = tuple[float, float | None, str]


class Asking(asyncio.Protocol):
    """One request; *body* is done when the server has said all."""

    def __init__(self) -> None:
        self.body: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._said = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"GET / HTTP/1.0\r\n\r\n")

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        self._said += data

    def connection_lost(self, error: Exception | None) -> None:
        """Keep the answer, if it is one."""
        answer = self._said.partition(b"\r\n\r\n")[2].decode()
        if answer and not self.body.done():
            self.body.set_result(answer)
        elif not self.body.done():
            self.body.set_exception(error or ConnectionError("no answer"))


async def ask(vip: str) -> Row:
    """One request to *vip*."""
    sent, transport, asking = time.monotonic(), None, None
    try:
        async with asyncio.timeout(TIMEOUT):
            transport, asking = await asyncio.get_running_loop().create_connection(Asking, vip, PORT)
            body = await asking.body
            return sent, time.monotonic() - sent, body
    except ConnectionResetError:
        return sent, None, RESET
    except (OSError, TimeoutError) as error:
        return sent, None, type(error).__name__
    finally:
        if transport:
            transport.abort()
        if asking:
            asking.body.cancel()  # nobody waits for what it still hears


async def main() -> None:
    """Ask in steps of an absolute clock, so that a late one does not put off those after it."""
    stopped = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    rows: dict[str, list[Row]] = {vip: [await ask(vip)] for vip in sys.argv[1:]}
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    asked: set[asyncio.Task[None]] = set()

    async def once(vip: str) -> None:
        rows[vip].append(await ask(vip))

    due = time.monotonic()
    while not stopped.done():
        for vip in rows:
            task = asyncio.create_task(once(vip))
            asked.add(task)
            task.add_done_callback(asked.discard)
        due = max(due + EVERY, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
    await asyncio.gather(*asked)
    json.dump({vip: sorted(found, key=lambda row: row[0]) for vip, found in rows.items()}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
