"""The cost of a decision as a number of operations, which no other load on the machine changes."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(operation: Callable[[], object]) -> int:
    """How many functions written in Python *operation* calls."""
    count = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    gc.disable()  # hypothesis has a callback in Python, which would count
    sys.setprofile(profile)
    try:
        operation()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def instructions(operation: Callable[[], object]) -> int:
    """How many bytecode instructions *operation* executes; work inside functions written in C counts as one."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # hypothesis has a callback in Python, which would count
    sys.settrace(trace)
    try:
        operation()
    finally:
        sys.settrace(before)
        gc.enable()
    return count
