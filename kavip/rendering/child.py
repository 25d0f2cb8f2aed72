"""
Renders one template of a user: a request as JSON on standard input, the result as JSON on standard output.

Executed as a program with Jinja and the standard library alone; it imports nothing else of kavip. The text of the
template is hostile. So there are several barriers, and none relies on another:

* Before anything runs: only statements, filters and methods of a list, no names with an underscore at the beginning,
  and no more parts and levels than a limit.
* Jinja's immutable sandbox, without a loader and without functions that read time or chance.
* Limits of the kernel for processor time and memory. No files, sockets or processes: their number is limited to zero
  before the template runs.
* An audit hook that ends the process when Python itself is asked for more than a template needs.

The parent kills the process at a deadline. A fault has line and column: each token gets a number in place of its line,
and so do Jinja's errors.
"""

import json
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Template, Undefined, nodes
from jinja2.exceptions import SecurityError, TemplateError, TemplateSyntaxError, UndefinedError
from jinja2.ext import Extension
from jinja2.lexer import Token, TokenStream
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_SECONDS: Final = 2
MEMORY: Final = 128 << 20
"""Bytes of data. Together with kavip's own they must fit into the memory limit of the pod."""
MOST_PARTS: Final = 20_000
"""Nodes of a template's syntax tree."""
DEEPEST: Final = 60
"""Levels of that tree."""
LARGEST_RANGE: Final = 10_000
AUDITED: Final = 86
"""The exit status when the audit hook ends the process."""

FILTERS: Final = (
    "abs", "batch", "capitalize", "count", "d", "default", "dictsort", "first", "groupby", "indent", "int", "items",
    "join", "last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "replace", "reverse",
    "round", "select", "selectattr", "slice", "sort", "string", "sum", "title", "trim", "truncate", "unique", "upper",
    "wordcount",
)  # fmt: skip
METHODS: Final = frozenset(
    {
        "changed", "count", "cycle", "endswith", "find", "get", "items", "join", "keys", "lower", "lstrip", "replace",
        "rstrip", "split", "splitlines", "startswith", "strip", "title", "upper", "values",
    }
)  # fmt: skip
GLOBALS: Final = ("namespace", "range")
_READ_AFTER_AN_ERROR: Final = ("f_code", "tb_frame")
"""The attributes by which this module finds the place of an error; Python audits them."""

STATEMENTS: Final = ("call", "filter", "for", "if", "macro", "set", "with")
_STATEMENT_NODES: Final = frozenset(
    {
        nodes.Assign, nodes.AssignBlock, nodes.CallBlock, nodes.FilterBlock, nodes.For, nodes.If, nodes.Macro,
        nodes.Output, nodes.With,
    }
)  # fmt: skip
_EXPRESSIONS: Final = (nodes.Expr, nodes.Helper, nodes.Template)
_IGNORED: Final = frozenset({"comment", "comment_begin", "comment_end", "raw_begin", "raw_end", "whitespace"})

Place = tuple[int, int]
"""A line and a column, counted from 1."""


class Fault(Exception):
    """What is wrong with a template, and where."""

    def __init__(self, message: str, place: Place = (0, 0)) -> None:
        super().__init__(message)
        self.place = place


class _Numbered(Extension):
    """Numbers the tokens, in place of their lines."""

    def filter_stream(self, stream: TokenStream) -> Iterator[Token]:
        for number, token in enumerate(stream, start=1):
            yield Token(number, token.type, token.value)


def main() -> None:
    """Render the request on standard input."""
    request = json.loads(sys.stdin.buffer.read())
    _prefer_for_oom_kill()
    _limit(resource.RLIMIT_CPU, CPU_SECONDS)
    _limit(resource.RLIMIT_DATA, MEMORY)
    _limit(resource.RLIMIT_CORE, 0)
    sys.stdout.write(json.dumps(_result(request)))
    sys.stdout.flush()


def _prefer_for_oom_kill() -> None:
    """Where memory runs out, the kernel shall kill this process, not the controller."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _limit(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (bound, bound + (which == resource.RLIMIT_CPU)))  # SIGXCPU, a second before SIGKILL


def _result(request: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return {"text": render(request["template"], request["context"], most=request["most"])}
    except Fault as fault:
        line, column = fault.place
        return {"fault": str(fault), "line": line, "column": column}


def render(source: str, context: Mapping[str, Any], *, most: int) -> str:
    """The outcome of *source*, at most *most* characters; raises :class:`Fault`."""
    environment = _environment()
    source = source.replace("\r\n", "\n").replace("\r", "\n")
    places = _places(environment, source)
    template: Template | None = None
    try:
        tree = environment.parse(source)
        _check(tree, places)
        template = environment.from_string(tree)
        _lock()
        # not template.render(): that would import and compile code to make a traceback
        return _joined(template.root_render_func(template.new_context(dict(context))), most)
    except Fault:
        raise
    except TemplateSyntaxError as error:
        raise Fault(error.message or "a syntax error", _place(places, error.lineno)) from None
    except MemoryError as error:
        message = f"needs more than {MEMORY >> 20} MiB"
        raise Fault(message, _place(places, _number_of(error, template))) from None
    except RecursionError as error:
        message = "calls itself too often, or nests too deeply"
        raise Fault(message, _place(places, _number_of(error, template))) from None
    except (ArithmeticError, LookupError, TemplateError, TypeError, ValueError, AttributeError) as error:
        raise Fault(_message(error), _place(places, _number_of(error, template))) from None


def _environment() -> Environment:
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        finalize=_printed,
        autoescape=False,  # not HTML; the outcome is parsed
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        extensions=[_Numbered],
        cache_size=0,
        optimized=False,  # so that no expression is evaluated before the process is locked
    )
    made.filters = {name: made.filters[name] for name in FILTERS}
    made.globals = {name: made.globals[name] for name in GLOBALS} | {"range": _range}
    return made


def _printed(value: object) -> object:
    """A value that may be printed: the text of any other could depend on addresses in memory."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    if isinstance(value, Undefined):
        str(value)  # raises an error that names it
    raise TypeError(f"{type(value).__name__} cannot be printed; want text or a number")


def _range(*limits: int) -> range:
    found = range(*limits)
    if len(found) > LARGEST_RANGE:
        raise OverflowError(f"range has {len(found):,} numbers; want at most {LARGEST_RANGE:,}")
    return found


def _lock() -> None:
    """From now on this process opens nothing, starts nothing, and imports nothing."""
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_NOFILE, 0)
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "object.__getattr__" or arguments[1] not in _READ_AFTER_AN_ERROR:
        os._exit(AUDITED)


def _joined(pieces: Iterator[str], most: int) -> str:
    found, size = [], 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise Fault(f"the outcome has more than {most:,} characters")
        found.append(piece)
    return "".join(found)


# --- before it runs ---------------------------------------------------------------------------------------------------
def _check(tree: nodes.Template, places: list[Place]) -> None:
    """Refuse a template that has more, or other parts, than it may."""
    count, level = 0, list[nodes.Node]([tree])
    for _ in range(DEEPEST):
        count += len(level)
        if count > MOST_PARTS:
            raise Fault(f"has more than {MOST_PARTS:,} parts")
        for node in level:
            if problem := _problem(node):
                raise Fault(problem, _place(places, node.lineno))
        level = [child for node in level for child in node.iter_child_nodes()]
        if not level:
            return
    raise Fault(f"nests more than {DEEPEST} levels deep", _place(places, level[0].lineno))


def _problem(node: nodes.Node) -> str:
    if not isinstance(node, _EXPRESSIONS) and type(node) not in _STATEMENT_NODES:
        return f"only these statements can be used: {', '.join(STATEMENTS)}"
    match node:
        case nodes.Name(name=name) | nodes.Getattr(attr=name) if name.startswith("_"):
            return f"{name}: names that begin with an underscore cannot be used"
        case nodes.Call(node=nodes.Name()):
            return ""
        case nodes.Call(node=nodes.Getattr(attr=name)) if name in METHODS:
            return ""
        case nodes.Call():
            return f"only macros, {', '.join(GLOBALS)} and these methods can be called: {', '.join(sorted(METHODS))}"
    return ""


# --- places -----------------------------------------------------------------------------------------------------------
def _places(environment: Environment, source: str) -> list[Place]:
    """The place of each token that the parser sees; the end of *source* is the last one."""
    found, at = list[Place](), 0
    try:
        for _, kind, text in environment.lex(source):
            at = max(source.find(text, at), at)
            if kind not in _IGNORED:
                found.append(_at(source, at))
            at += len(text)
    except TemplateSyntaxError as error:
        raise Fault(error.message or "a syntax error", _at(source, at)) from None
    return [*found, _at(source, len(source))]


def _at(source: str, offset: int) -> Place:
    return source.count("\n", 0, offset) + 1, offset - source.rfind("\n", 0, offset)


def _place(places: list[Place], number: int | None) -> Place:
    return places[min(number, len(places)) - 1] if number else (0, 0)


def _number_of(error: BaseException, template: Template | None) -> int:
    """The number of the token at which *template* raised *error*; 0 if that is unknown."""
    found, trace = 0, error.__traceback__
    while trace is not None and template is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            found = template.get_corresponding_lineno(trace.tb_lineno)
        trace = trace.tb_next
    return found


def _message(error: Exception) -> str:
    if isinstance(error, UndefinedError | SecurityError | TemplateError):
        return error.message or type(error).__name__
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
