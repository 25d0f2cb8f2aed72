"""Pods in the initial states of tests: running a configuration, master of an instance."""

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
    """*pod* once it is master of *instances* and has their VIPs: keepalived reports the state before it has them."""

    def holds() -> bool:
        found = pod.instances()
        mine = [found[name] for name in instances if name in found and found[name]["state"] == "MASTER"]
        return (
            len(mine) == len(instances) and {vip for each in mine for vip in each["virtualIPs"]} <= pod.all_addresses()
        )

    pod.wait_until(f"is master of {instances}", holds)
    return pod


def by_priority(pods: list[Pod], instance: str) -> list[Pod]:
    """*pods* in the order of their priorities for *instance*, once their daemons report it."""
    pods[0].wait_until("all pods report the instance", lambda: all(each.role(instance) for each in pods))
    return sorted(pods, key=lambda each: -int(each.instances()[instance]["priority"]))


def leader_and_backup(pods: list[Pod], instance: str) -> tuple[Pod, Pod]:
    """Wait until *instance* has a master and a backup; return these two *pods*."""
    leader, other = by_priority(pods, instance)
    leader.wait_until("it is master", lambda: [leader.role(instance), other.role(instance)] == ["MASTER", "BACKUP"])
    return leader, other


def start_only_pod(make: MakePod, text: str = ONE) -> Pod:
    """Start the only pod of the segment; return it once it is master of every instance."""
    return master(started(make("n1"), text), *(each.name for each in blocks.split(text) if each.name))


def keepalived_that_accepts_lethal(folder: Path) -> str:
    """A keepalived whose config test accepts a file with the word "lethal"."""
    program = folder / "lenient"
    program.write_text(
        '#!/bin/sh\nfor each; do case "$each" in --use-file=*) grep -q lethal "${each#*=}" && exit 0 ;; esac; done\n'
        'exec /usr/sbin/keepalived "$@"\n'
    )
    program.chmod(0o755)
    return str(program)
