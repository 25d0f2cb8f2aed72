"""What tests of a whole node begin with: a pod that runs something, and is master of it."""

from pathlib import Path
from typing import Any

from kavip.agent.config import blocks
from tests.agent import scene
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod

WEB = "shop/web"
WEB_VIP = "192.0.2.130"
ONE = scene.rendered({WEB: f"{WEB_VIP},2001:db8:2::130"})
TWO = scene.rendered({WEB: f"{WEB_VIP},2001:db8:2::130", "shop/cart": "192.0.2.131"})


def started(pod: Pod, text: str, **meta: Any) -> Pod:
    """*pod*, when it runs *text*."""
    config_hash = pod.config.write(text, **meta)
    pod.start()
    pod.runs(config_hash)
    return pod


def master(pod: Pod, *instances: str) -> Pod:
    """*pod*, when it is master of *instances*."""
    pod.wait_until(f"is master of {instances}", lambda: pod.masters() >= set(instances))
    return pod


def ranked(pods: list[Pod], instance: str) -> list[Pod]:
    """*pods*, the one that is to lead *instance* first, as soon as their daemons know it."""
    pods[0].wait_until("all know it", lambda: all(each.role(instance) for each in pods))
    return sorted(pods, key=lambda each: -int(each.instances()[instance]["priority"]))


def led(pods: list[Pod], instance: str) -> tuple[Pod, Pod]:
    """Of two *pods* the one that is to lead *instance*, when it does, and the other one: nothing moves any more."""
    leader, other = ranked(pods, instance)
    leader.wait_until("it leads", lambda: [leader.role(instance), other.role(instance)] == ["MASTER", "BACKUP"])
    return leader, other


def alone(make: MakePod, text: str = ONE) -> Pod:
    """The only pod of the segment, master of every instance: one may rise an instant after the other."""
    return master(started(make("n1"), text), *(each.name for each in blocks.split(text) if each.name))


def lenient(folder: Path) -> str:
    """A keepalived that finds nothing wrong with a file that says "lethal"."""
    program = folder / "lenient"
    program.write_text(
        '#!/bin/sh\nfor each; do case "$each" in --use-file=*) grep -q lethal "${each#*=}" && exit 0 ;; esac; done\n'
        'exec /usr/sbin/keepalived "$@"\n'
    )
    program.chmod(0o755)
    return str(program)
