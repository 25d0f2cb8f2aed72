"""Templates of users in their process: what comes out, where faults are, and what stops a hostile one."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from kavip.rendering import child, process
from kavip.vrrp.configtemplate import MOST_TEMPLATE, AddedLines, RenderRequest, TemplateFault

pytestmark = pytest.mark.slow

OWN = "global_defs {\n    router_id edge\n}\n\nvrrp_instance a/web {\n    state BACKUP\n}\n"
CONTEXT = {"own": OWN, "instances": [{"name": "a/web", "family": 4}], "group": {"name": "edge", "labels": {"a": "b"}}}


async def fault(template: str, **context: Any) -> TemplateFault:
    """The fault of *template*."""
    found = await render(template, **context)
    assert isinstance(found, TemplateFault), found
    return found


async def render(template: str, **context: Any) -> AddedLines | TemplateFault:
    """The outcome of *template*."""
    return await process.render(RenderRequest(template, json.dumps({**CONTEXT, **context}).encode(), OWN))


async def test_a_template_adds_lines() -> None:
    """It reads its context, and what it prints beside kavip's text are the added lines."""
    template = """{% for line in own.splitlines() %}
{{ line }}
{% if line.startswith("global_defs") %}
    vrrp_min_garp
{% elif line.startswith("vrrp_instance") and instances[0].family == 4 %}
    garp_master_delay {{ [2, 3] | max }}
{% endif %}
{% endfor %}
"""
    found = await render(template)
    assert isinstance(found, AddedLines), str(found)
    assert [each.keyword for each in found.globals] == ["vrrp_min_garp"]
    assert [each.words for each in found.instances["a/web"]] == [("3",)]


@pytest.mark.parametrize(
    ("template", "line", "column", "message"),
    [
        ("{{ own }}\n  {% if %}", 2, 9, "Expected an expression"),
        ("{{ own }}\n{# open", 2, 3, "Missing end of comment tag"),
        ("{{ own }}\n  {% for x in own %}", 2, 19, "Unexpected end of template"),
        ("{{ own }}\n {% nonsense %}", 2, 5, "Encountered unknown tag 'nonsense'"),
        ("{{ own }}\n{{ own | tojson }}", 2, 10, "No filter named 'tojson'"),
        ("{{ own }}\n\n   {{ nothing }}", 3, 7, "'nothing' is undefined"),
        ("{{ own }}\n{{ instances[7].name }}", 2, 16, "list object has no element 7"),
        ("{{ own }}\n{{ 1 // 0 }}", 2, 4, "ZeroDivisionError"),
        ("{{ own }}\n{{ instances }}", 2, 4, "list cannot be printed"),
        ("{{ own }}\n{% include 'x' %}", 2, 4, "only these statements can be used: call, filter"),
        ("{{ own }}\n{% import 'x' as y %}", 2, 4, "only these statements can be used: call, filter"),
        ("{{ own.__class__ }}", 1, 7, "__class__: names that begin with an underscore"),
        ("{{ ''['__class__'] }}", 1, 6, "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ '{0.__class__}'.format(own) }}", 1, 26, "only macros, namespace, range"),
        ("{{ instances.append(1) }}", 1, 20, "only macros, namespace, range"),
        ("{{ range(10 ** 9) | list }}", 1, 21, "OverflowError: range has 1,000,000,000 numbers"),
        ("{{ own }}\n{% extends 'x' %}", 2, 4, "only these statements can be used: call, filter"),
        ("{% block x %}{% endblock %}", 1, 4, "only these statements can be used: call, filter"),
        ("{% from 'x' import y %}", 1, 4, "only these statements can be used: call, filter"),
        ("{% autoescape true %}{% endautoescape %}", 0, 0, "only these statements can be used"),
        ("{% do own %}", 1, 4, "Encountered unknown tag 'do'"),
        ("{{ (own | attr('x')) }}", 1, 11, "No filter named 'attr'"),
        ("{{ '%c' | format(65) }}", 1, 11, "No filter named 'format'"),
        ("{{ own | center(9) }}", 1, 10, "No filter named 'center'"),
        ("{{ instances | map('center', 9) | list }}", 1, 35, "No filter named 'center'"),
        ("{{ instances | map(attribute='__class__') | join }}", 1, 45, "access to attribute '__class__'"),
        ("{{ instances | sum(attribute='items.__self__') }}", 1, 16, "access to attribute '__self__'"),
        ("{{ self._TemplateReference__context }}", 1, 8, "names that begin with an underscore"),
        ("{{ lipsum }}", 1, 4, "'lipsum' is undefined"),
        ("{{ cycler('a') }}", 1, 10, "'cycler' is undefined"),
        ("{{ range.__globals__ }}", 1, 9, "names that begin with an underscore"),
        ("{{ (range)(3) | list }}", 1, 17, "list cannot be printed"),
        ("{{ [range][0](3) | join }}", 1, 14, "only macros, namespace, range"),
    ],
)
async def test_a_fault_has_its_place(template: str, line: int, column: int, message: str) -> None:
    """The line is that of the template; the column that of the statement or expression, or of the token in it."""
    found = await fault(template)
    assert message in str(found)
    assert (found.line, found.column) == (line, column), found


async def test_a_fault_of_a_line_has_its_place() -> None:
    """Where a line stands in the template as it is, its place is that in the template."""
    found = await fault("global_defs {\n    router_id edge\n    vrrp_strict\n}\n")
    assert (found.line, found.column) == (3, 5)
    assert "vrrp_strict: keepalived then refuses what kavip writes" in str(found)


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (
            "{% for a in range(9999) %}{% for b in range(9999) %}{% set c = a * b %}{% endfor %}{% endfor %}",
            "takes more than 2 s of processor time",
        ),
        (
            "{% set x = namespace(v='xxxxxxxx') %}{% for a in range(99) %}{% set x.v = x.v ~ x.v %}{% endfor %}",
            "needs more than 128 MiB",
        ),
        ("{{ 'x' * 2000000000 }}", "needs more than 128 MiB"),
        ("{% for a in range(9999) %}{{ own }}{{ own }}{{ own }}{{ own }}{% endfor %}", "the outcome has more than"),
        ("{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(1) }}", "calls itself too often"),
        ("{{ " + "(" * 300 + "1" + ")" * 300 + " }}", "nests"),
        ("{{ " + "-" * 70 + "1 }}", "nests more than 60 levels deep"),
        ("{{1+1}}" * 9000, "has more than 20,000 parts"),
        ("x" * (MOST_TEMPLATE + 1), "want at most 65,536"),
        ("{{ 9 ** 9 ** 9 }}", ""),
        ("{{ '%2000000000d' % 1 }}", "needs more than 128 MiB"),
        ("{{ [1] * 500000000 }}", "needs more than 128 MiB"),
        ("{{ ('x' * 9999) | replace('x', 'x' * 99999) }}", "needs more than 128 MiB"),
        ("{{ 'x' | indent(2000000000, true) }}", "needs more than 128 MiB"),
        ("{{ [1] | batch(2000000000, 1) | list | length }}", ""),
        ("{{ [1] | slice(2000000000) | list | length }}", ""),
        ("{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "calls itself too often"),
        ("{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "calls itself"),
        ("{{ own }}{{ '\\n' * 2000001 }}", "the outcome has more than"),
    ],
)
async def test_a_hostile_template_is_stopped(template: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By time, memory, size of the outcome, depth, or number of its parts; the process is gone afterwards."""
    monkeypatch.setattr(process, "DEADLINE", 300.0)
    before = children()
    assert message in str(await fault(template))
    assert children() <= before


def children() -> set[str]:
    """The processes of the programs that render."""
    found = set()
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found |= {str(each)} if b"rendering/child.py" in each.read_bytes() else set()
        except OSError:
            continue
    return found


async def test_the_process_inherits_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No variable of the environment, no file but its own three, and no folder of kavip."""
    program = tmp_path / "child.py"
    program.write_text(
        "import json, os, resource, sys\n"
        "files = sorted(each for each in range(999) if os.path.exists(f'/proc/self/fd/{each}'))\n"
        "print(json.dumps({'fault': f'{sorted(os.environ)} {files} {os.getcwd()} {sys.flags.isolated}'}))\n"
    )
    monkeypatch.setattr(process, "_PROGRAM", program)
    monkeypatch.setenv("KAVIP_SECRET", "x")
    opened = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(opened, True)
    try:
        found = await fault("x")
    finally:
        os.close(opened)
    assert str(found) in ("[] [0, 1, 2] / 1", "['LC_CTYPE'] [0, 1, 2] / 1")  # Python itself may set LC_CTYPE


async def test_a_process_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sleeping costs no processor time, so the parent has a deadline of its own."""
    program = tmp_path / "child.py"
    program.write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setattr(process, "_PROGRAM", program)
    monkeypatch.setattr(process, "DEADLINE", 0.5)
    found = await fault("x")
    assert (str(found), found.is_temporary) == ("takes more than 0.5 s", True)


async def test_a_cancelled_rendering_leaves_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A controller that stops kills it."""
    program, mark = tmp_path / "child.py", tmp_path / "pid"
    program.write_text(
        f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(process, "_PROGRAM", program)
    task = asyncio.create_task(render("x"))
    while not mark.exists() or not mark.read_text():
        await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


@pytest.mark.parametrize(
    "output",
    [
        "'nonsense'",
        "'[]'",
        "'\\xff'",
        "'x' * 30_000_000",
        """'{"fault": "x", "line": -1}'""",
        """'{"fault": "x", "line": ' + '9' * 5000 + '}'""",
        """'{"fault": "' + 'x' * 9_000_000 + '"}'""",
        """'{"text": "' + '\\\\n' * 2_000_000 + '"}'""",
    ],
)
async def test_output_of_the_process_is_hostile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, output: str) -> None:
    """What is no result is a fault, and no more is read than a result may have."""
    program = tmp_path / "child.py"
    program.write_text(f"print({output})\n")
    monkeypatch.setattr(process, "_PROGRAM", program)
    assert len(str(await fault("x"))) < 600


def test_the_locked_process_can_open_nothing() -> None:
    """Even code that escapes from the sandbox opens no file, starts no process, and reaches no network."""
    for code in ("open('/etc/passwd')", "__import__('socket').socket()", "__import__('os').system('true')"):
        pid = os.fork()
        if not pid:
            child._lock()
            try:
                eval(code)
            finally:
                os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == child.AUDITED
