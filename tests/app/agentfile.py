"""
``python -m tests.app.agentfile ADDRESS FILE`` serves the text of FILE at ``/state``, with the server of the agents.
"""

import asyncio
import sys
from pathlib import Path

from kavip import names
from kavip.agent.http.server import JSON, AgentServer, PageContent, PageRequest


async def serve(address: str, file: Path) -> None:
    """Serve until the process ends."""

    async def state(_: PageRequest) -> PageContent:
        return PageContent(await asyncio.to_thread(file.read_bytes), JSON)

    async with AgentServer({names.STATE_PATH: state}).listening(address, names.AGENT_PORT):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
