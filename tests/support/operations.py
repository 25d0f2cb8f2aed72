"""The cost of a decision as a number of operations, which no other load on the machine changes."""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


def calls(operation: Callable[[], object]) -> int:
    """How many functions written in Python *operation* calls."""
    count = 0

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal count
        count += event == "call"

    with without_collections():
        sys.setprofile(profile)
        try:
            operation()
        finally:
            sys.setprofile(None)
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
    with without_collections():
        sys.settrace(trace)
        try:
            operation()
        finally:
            sys.settrace(before)
    return count


@contextmanager
def without_collections() -> Iterator[None]:
    """No garbage collection during the block: hypothesis has a callback in Python for it, which would count."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
