"""
Configurations that a node must refuse as a whole: a fault outside the instances, or a damaged mount.

keepalived itself was tried with the cases in ``tests/vrrp/cases`` about the top of a file and ``global_defs``.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kavip.vrrp import packed
from kavip.vrrp.compact import MARKER
from tests.vrrp.triedinputs import CASES

Spoil = Callable[[str], str]
Damage = Callable[[Path], object]

_GLOBALS: Final = (
    *(each["config_snippet"] for each in CASES.values() if each["context"] == "global_defs" and each["exit_code"]),
    "no_such_keyword",
    "no_such_keyword a b",
    "router_id",
    "\\!",
    "include /etc/passwd",
    "includer /etc/passwd",
    "config_save_dir x",
    "use_pid_dir",
    "reload_time_file /tmp/x",
    "vrrp_version",
    "vrrp_garp_master_repeat x",
    "$X=1",
    "~SEQ(i, 1, 9) router_id $i",
    "@n1,n2 router_id x",
    "router_id a!b",
    'router_id "a',
    "router_id é",
    "router_id \x07",
    "router_id \x00",
    "router_id a }",
    "{",
    "}",
    "x" * 1100,
)
_OTHERS: Final = (
    "smtp_server",  # waits for a name server that does not answer
    "startup_script",  # a group may allow scripts; the node does not know
)

_BLOCKS: Final = (
    "foo_block {\n    a b\n}",
    "static_ipaddress {\n    192.0.2.200/24 dev eth0\n}",
    "static_routes {\n    198.51.100.0/24 via 192.0.2.1\n}",
    "vrrp_sync_group G {\n    group {\n        shop/web\n    }\n}",
    'vrrp_script s {\n    script "/bin/true"\n}',
    "vrrp_track_process p {\n    process sh\n}",
    "virtual_server 192.0.2.9 80 {\n}",
    "bfd_instance b {\n}",
    "net_namespace other",
    "vrrp_instance {\n}",
    'vrrp_instance "a b" {\n}',
    "global_defs {",
    "include /etc/passwd",
    "words",
    "{",
    "}",
)


def _in_globals(line: str) -> Spoil:
    return lambda text: text.replace("global_defs {\n", f"global_defs {{\n    {line}\n", 1)


def _before(block: str) -> Spoil:
    return lambda text: text.replace("global_defs {\n", f"{block}\nglobal_defs {{\n", 1)


def _first_twice(text: str) -> str:
    head, opening, rest = text.partition("vrrp_instance ")
    return head + 2 * (opening + rest.partition("\n}\n")[0] + "\n}\n")


TEXTS: Final[dict[str, Spoil]] = {
    **{f"global_defs with {line!r:.40}": _in_globals(line) for line in _GLOBALS if not line.startswith(_OTHERS)},
    **{f"{block!r:.40} at the top": _before(block) for block in _BLOCKS},
    "nothing": lambda _: "",
    "blanks": lambda _: " \n\t\n",
    "words": lambda _: "hello\n",
    "JSON": lambda _: "{}",
    "a shell script": lambda _: "#!/bin/sh\nreboot\n",
    "no global_defs": lambda text: text[text.index("vrrp_instance") :],
    "no instance's end": lambda text: text[: text.index("}\nvrrp_instance")],
    "the first bytes": lambda text: text[:60],
    "lines of DOS": lambda text: text.replace("\n", "\r\n"),
    "one line": lambda text: text.replace("\n", " "),
    "a mark of byte order": lambda text: "\ufeff" + text,
    "an instance twice": _first_twice,
    "interfaces that are not there": lambda text: text.replace("eth0", "eth9"),
}
"""What is wrong with a text that is delivered whole."""


def _empty(folder: Path) -> None:
    for each in folder.iterdir():
        each.unlink()


def _write(name: str, content: bytes) -> Damage:
    return lambda folder: void(folder / name).write_bytes(content)


def _meta(content: object) -> Damage:
    return _write("agent.json", json.dumps(content).encode())


def _link(name: str, target: str) -> Damage:
    return lambda folder: void(folder / name).symlink_to(target)


def _cut(folder: Path) -> None:
    config = folder / "keepalived.conf"
    config.write_bytes(config.read_bytes()[:-1])


def void(path: Path) -> Path:
    """*path*, with nothing there."""
    path.unlink()
    return path


MOUNTS: Final[dict[str, Damage]] = {
    "no keepalived.conf": lambda folder: (folder / "keepalived.conf").unlink(),
    "no agent.json": lambda folder: (folder / "agent.json").unlink(),
    "nothing at all": _empty,
    "a text that lost its last byte": _cut,
    "an empty text": _write("keepalived.conf", b""),
    "a compact text without the lines above": _write("keepalived.conf", f"{MARKER}    $unicast_src_ip\n".encode()),
    "a packed text that is no base64": _write("keepalived.conf", f"{packed.MARKER}no base64\n".encode()),
    "a packed text that was cut": _write("keepalived.conf", packed.pack("global_defs {\n}\n" * 99)[:-9].encode()),
    "a packed text that unpacks to megabytes": _write("keepalived.conf", packed.pack("#" * (8 << 20)).encode()),
    "a text that is packed twice": _write("keepalived.conf", packed.pack(packed.pack("global_defs {\n}\n")).encode()),
    "bytes that are no text": _write("keepalived.conf", bytes(range(256))),
    "UTF-16": _write("keepalived.conf", "global_defs {\n}\n".encode("utf-16")),
    "a text of more than a ConfigMap holds": _write("keepalived.conf", b"# filler\n" * 400_000),
    "a text that never ends": _link("keepalived.conf", "/dev/zero"),
    "a link to nowhere": _link("keepalived.conf", "nowhere"),
    "a link to itself": _link("keepalived.conf", "keepalived.conf"),
    "a link to another file": _link("keepalived.conf", "/etc/passwd"),
    "a folder": lambda folder: void(folder / "keepalived.conf").mkdir(),
    "a pipe": lambda folder: os.mkfifo(void(folder / "keepalived.conf")),
    "an empty agent.json": _write("agent.json", b""),
    "an agent.json that is cut": _write("agent.json", b'{"configHash": "'),
    "an agent.json of bytes": _write("agent.json", bytes(range(256))),
    "an agent.json of ever more brackets": _write("agent.json", b'{"more": ' + b"[" * 500_000),
    "an agent.json that is huge": _write("agent.json", b'{"configHash": "' + b"x" * (2 << 20)),
    "an agent.json with nothing": _meta({}),
    "an agent.json that is null": _meta(None),
    "an agent.json that is a list": _meta([]),
    "an agent.json with a number for a hash": _meta({"configHash": 7}),
    "an agent.json with another hash": _meta({"configHash": "0123456789abcdef"}),
    "an agent.json without a hash": _meta({"configHash": ""}),
    "an agent.json with a word for a truth": _meta({"configHash": "x", "authentication": "yes"}),
    "agent.json as a folder": lambda folder: void(folder / "agent.json").mkdir(),
}
"""What happens to a good mount."""
