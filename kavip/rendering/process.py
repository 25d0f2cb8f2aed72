"""
Renders a template of a user in a process of its own, which is killed at a deadline.

What such a process prints is hostile: it is read up to a limit, decoded, and parsed (:mod:`kavip.vrrp.addedlines`).
"""

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec

from kavip.rendering import child
from kavip.vrrp.addedlines import read_added
from kavip.vrrp.config import MOST_BYTES
from kavip.vrrp.configtemplate import MOST_TEMPLATE, AddedLines, RenderRequest, TemplateFault

DEADLINE: Final = 30.0
"""Seconds until the process is killed, which its limit of processor time ends earlier except on a starved machine."""
MOST_OUTCOME: Final = 2 * MOST_BYTES
"""Most characters of an outcome, with comments and blanks."""

_MOST_OUTPUT: Final = 6 * MOST_OUTCOME + 65_536  # JSON escapes a character in up to six bytes
_PROGRAM: Final = Path(child.__file__)
_START: Final = "import runpy, sys; sys.path[:] = sys.argv[2:]; runpy.run_path(sys.argv[1], run_name='__main__')"
"""kavip may run from an archive that has unpacked its libraries where only this process finds them."""


_MOST_FAULT: Final = 1000  # characters of its message; conditions show fewer
_Place = Annotated[int, msgspec.Meta(ge=0, le=MOST_TEMPLATE + 1)]


class _Result(msgspec.Struct):
    """What the process prints."""

    text: str = ""
    fault: str = ""
    line: _Place = 0
    column: _Place = 0


async def render(request: RenderRequest) -> AddedLines | TemplateFault:
    """The lines that the template of *request* adds, or its fault."""
    if len(request.template) > MOST_TEMPLATE:
        return TemplateFault(f"has {len(request.template):,} characters; want at most {MOST_TEMPLATE:,}")
    outcome = await _run(request)
    if isinstance(outcome, TemplateFault):
        return outcome
    return await asyncio.to_thread(read_added, request, outcome)  # a text of 1 MB takes more than 100 ms


def render_now(request: RenderRequest) -> AddedLines | TemplateFault:
    """The same for a program without an event loop."""
    return asyncio.run(render(request))


async def _run(request: RenderRequest) -> str | TemplateFault:
    context = msgspec.Raw(request.context)
    given = msgspec.json.encode({"template": request.template, "context": context, "most": MOST_OUTCOME})
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-c",
            _START,
            str(_PROGRAM),
            *filter(os.path.isabs, sys.path),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        return TemplateFault(f"the process that renders it cannot start: {error.strerror}", is_temporary=True)
    try:
        async with asyncio.timeout(DEADLINE):
            output = await _exchange(process, given)
            status = await process.wait() if output is not None else 0
    except TimeoutError:
        return TemplateFault(f"takes more than {DEADLINE:g} s", is_temporary=True)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if output is None:
        return TemplateFault(f"the outcome has more than {MOST_OUTCOME:,} characters")
    return _read(output) if status == 0 else _failure(status)


async def _exchange(process: asyncio.subprocess.Process, given: bytes) -> bytes | None:
    """Give the process its input, and read what it prints; None: more than it may."""
    if process.stdin is None or process.stdout is None:
        return b""
    try:
        process.stdin.write(given)
        await process.stdin.drain()
        process.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has ended; its status says why
    output = bytearray()
    while piece := await process.stdout.read(65_536):
        output += piece
        if len(output) > _MOST_OUTPUT:
            return None
    return bytes(output)


def _read(output: bytes) -> str | TemplateFault:
    try:
        result = msgspec.json.decode(output, type=_Result)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return TemplateFault("the process that renders it printed something else")
    if result.fault:
        return TemplateFault(result.fault[:_MOST_FAULT], result.line, result.column)
    return result.text


def _failure(status: int) -> TemplateFault:
    match -status:
        case signal.SIGXCPU:
            return TemplateFault(f"takes more than {child.CPU_SECONDS} s of processor time", is_temporary=True)
        case signal.SIGKILL:
            return TemplateFault("the kernel killed its process: it takes too much time or memory", is_temporary=True)
    if status == child.AUDITED:
        return TemplateFault("does what no template may: it reads, runs or imports something")
    return TemplateFault(f"its process ended with status {status}", is_temporary=True)
