"""Pods in the states with which tests begin: running a configuration, master of an instance."""

from pathlib import Path
from typing import Any

from kavip.agent.config import blocks
from tests.agent import mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod

WEB = "shop/web"
WEB_VIP = "192.0.2.130"
ONE = mounts.rendered({WEB: f"{WEB_VIP},2001:db8:2::130"})
TWO = mounts.rendered({WEB: f"{WEB_VIP},2001:db8:2::130", "shop/cart": "192.0.2.131"})


def started(pod: Pod, text: str, **meta: Any) -> Pod:
    """*pod* once it runs *text*."""
    config_hash = pod.config.write(text, **meta)
    pod.start()
    pod.runs(config_hash)
    return pod


def master(pod: Pod, *instances: str) -> Pod:
    """*pod* once it is master of *instances*."""
    pod.wait_until(f"is master of {instances}", lambda: pod.masters() >= set(instances))
    return pod


def ranked(pods: list[Pod], instance: str) -> list[Pod]:
    """*pods* in the order of their priorities for *instance*, once their daemons report it."""
    pods[0].wait_until("all know it", lambda: all(each.role(instance) for each in pods))
    return sorted(pods, key=lambda each: -int(each.instances()[instance]["priority"]))


def led(pods: list[Pod], instance: str) -> tuple[Pod, Pod]:
    """The pod that leads *instance* and the other one of *pods*, once nothing moves any more."""
    leader, other = ranked(pods, instance)
    leader.wait_until("it leads", lambda: [leader.role(instance), other.role(instance)] == ["MASTER", "BACKUP"])
    return leader, other


def alone(make: MakePod, text: str = ONE) -> Pod:
    """The only pod of the segment once it is master of every instance."""
    return master(started(make("n1"), text), *(each.name for each in blocks.split(text) if each.name))


def lenient(folder: Path) -> str:
    """A keepalived whose config test accepts a file with the word "lethal"."""
    program = folder / "lenient"
    program.write_text(
        '#!/bin/sh\nfor each; do case "$each" in --use-file=*) grep -q lethal "${each#*=}" && exit 0 ;; esac; done\n'
        'exec /usr/sbin/keepalived "$@"\n'
    )
    program.chmod(0o755)
    return str(program)
