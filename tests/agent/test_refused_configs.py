"""Configurations and instances that a node refuses, beside a real keepalived."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hack.testbed import process
from kavip import names
from tests.agent import badconfigs, mounts
from tests.agent.conftest import MakePod
from tests.agent.pod import Pod
from tests.agent.podstates import (
    ONE,
    TWO,
    WEB,
    WEB_VIP,
    keepalived_that_accepts_lethal,
    master,
    start_only_pod,
    started,
)

pytestmark = pytest.mark.netns


def _without_vip(text: str) -> str:
    head, _, tail = text.partition("    virtual_ipaddress {\n")
    return head + tail.partition("    }\n")[2]


_KEPT: dict[str, Callable[[str], str]] = {
    "missing parameter": lambda text: text.replace("advert_int 0.2", "advert_int", 1),
    "missing VRID": lambda text: text.replace("virtual_router_id", "#", 1).replace("#", "# x", 1),
    "unknown keyword": lambda text: text.replace("state BACKUP", "state BACKUP\n    no_such_keyword", 1),
    "unknown interface of a VIP": lambda text: text.replace("dev eth0", "dev eth9", 1),
    "escape that crashes keepalived": lambda text: text.replace("    state BACKUP", "\\!\n    state BACKUP", 1),
    "include": lambda text: text.replace("    state BACKUP", "    include /etc/passwd\n    state BACKUP", 1),
    "unbalanced brace": lambda text: text.rstrip().removesuffix("}"),
    "interval out of range": lambda text: text.replace("advert_int 0.2", "advert_int 99", 1),
}

_LOST: dict[str, Callable[[str], str]] = {
    "another interface": lambda text: text.replace("interface eth0", "interface eth9", 1),
    "another VRID, which is taken": lambda text: text.replace("virtual_router_id 27", "virtual_router_id 26"),
    "no VIP": _without_vip,
    "another VIP, which is the node's": lambda text: text.replace("192.0.2.131/32", "192.0.2.11/24"),
}
_TELLTALES = ("passwd", "no_such_keyword", "\n")


def test_bad_configurations_never_reach_the_daemon(pod: MakePod) -> None:
    """A fault outside the instances or of the mount refuses everything; the good one runs on, and no VIP moves."""
    assert len(badconfigs.TEXTS) + len(badconfigs.MOUNTS) >= 60
    node = start_only_pod(pod, TWO)
    before, held = node.transitions(), node.addresses()
    ran = (node.run_dir / "keepalived.conf").read_text()
    damages = iter(badconfigs.MOUNTS.items())
    for name, spoil in badconfigs.TEXTS.items():
        text = spoil(TWO)
        assert text != TWO, name
        reasons = [node.refuses(node.config.write(text))]
        if (damaged := next(damages, None)) is not None:
            name, spoilt = damaged  # noqa: PLW2901 - the kind that is tried now
            node.config.write(TWO, damage=spoilt)

            def is_refused(was: str = reasons[0]) -> bool:
                return node.state()["refused"] not in ("", was)

            node.wait_until(f"{name} is refused", is_refused)
            reasons.append(node.state()["refused"])
        assert node.state()["configHash"] == mounts.hash_of(TWO), name
        assert (node.transitions(), node.addresses()) == (before, held), name
        assert not any(word in excluded for excluded in reasons for word in (*_TELLTALES, str(node.run_dir))), reasons
    assert next(damages, None) is None
    assert node.page(names.READY_PATH)[0] == 200  # otherwise a roll-out would replace all pods at once
    assert (node.run_dir / "keepalived.conf").read_text() == ran
    node.runs(node.config.write(ONE))
    assert node.state()["refused"] == ""


def left_out(pod: Pod, text: str) -> list[dict[str, Any]]:
    """The excluded instances once *pod* runs *text*, of which nothing is quoted."""
    pod.runs(pod.config.write(text))
    state = pod.state()
    assert state["refused"] == "" and pod.page(names.READY_PATH)[0] == 200
    assert f"kavip_agent_left_out_instances {len(state['leftOut'])}.0" in pod.page(names.METRICS_PATH)[1]
    assert not any(word in str(state["leftOut"]) for word in (*_TELLTALES, str(pod.run_dir))), state
    return list(state["leftOut"])


def test_a_bad_change_of_an_instance_affects_only_that_change(pod: MakePod) -> None:
    """The rest of the configuration runs, the instance runs as it last ran, and no VIP moves."""
    node = start_only_pod(pod, TWO)
    before, held = node.transitions(), node.addresses()
    for number, (name, spoil) in enumerate(_KEPT.items()):
        (excluded,) = left_out(node, spoil(TWO.replace("router_id edge", f"router_id edge-{number}")))
        assert excluded["kept"] and excluded["name"] in before, name
        assert (node.transitions(), node.addresses()) == (before, held), name
        assert f"router_id edge-{number}\n" in (node.run_dir / "keepalived.conf").read_text()
    assert left_out(node, ONE) == []


@pytest.mark.parametrize("name", _LOST)
def test_an_instance_with_another_identity_does_not_run(pod: MakePod, name: str) -> None:
    """Another instance may use its VRID or address by now; other instances stay as they are."""
    node = start_only_pod(pod, TWO)
    before = node.transitions()
    (excluded,) = left_out(node, _LOST[name](TWO))
    assert not excluded["kept"]
    node.wait_until("its VIP is gone", lambda: bool({WEB_VIP, "192.0.2.131"} - node.addresses()))
    del before[excluded["name"]]
    assert node.transitions() == before


def test_an_incomplete_mount_changes_nothing(pod: MakePod) -> None:
    """A missing key is refused, and so are a text and a hash that do not match."""
    node = start_only_pod(pod)
    node.config.swap({"keepalived.conf": TWO.encode()})
    node.wait_until("it is refused", lambda: "lacks a key" in node.state()["refused"])
    node.config.write(TWO, configHash=mounts.hash_of(ONE))
    node.wait_until("it is refused", lambda: "belong together" in node.state()["refused"])
    assert node.state()["configHash"] == mounts.hash_of(ONE)
    assert WEB_VIP in node.addresses()


def test_a_bad_first_configuration_does_not_stop_the_pod(pod: MakePod) -> None:
    """keepalived starts with an empty one, the state reports the reason, and the next good one runs."""
    node = pod("n1")
    bad = node.config.write(ONE.replace("interface eth0", "interface eth9"))
    node.start()
    assert "interface eth9 does not exist" in node.refuses(bad)
    node.lives()
    assert node.state()["instances"] == []
    node.runs(node.config.write(ONE))
    master(node, WEB)


def test_a_replaced_pod_runs_all_but_faulty_instances(pod: MakePod) -> None:
    """It has no last good configuration to keep an instance from."""
    node = start_only_pod(pod, TWO)
    bad = _KEPT["unknown keyword"](TWO)
    (excluded,) = left_out(node, bad)
    assert excluded["kept"]
    node.kill_agent()
    node.kill_keepalived()
    node.replace()
    node.start()
    node.runs(mounts.hash_of(bad))
    (excluded,) = node.state()["leftOut"]
    assert not excluded["kept"]
    master(node, *({WEB, "shop/cart", f"{WEB}/v6"} - {excluded["name"]}))
    assert excluded["name"] not in node.instances()


def test_a_replaced_pod_with_a_refused_configuration_runs_nothing(pod: MakePod) -> None:
    """The pod is not ready, so a roll-out stops at it."""
    node = start_only_pod(pod, TWO)
    bad = node.config.write(badconfigs.TEXTS["global_defs with 'no_such_keyword'"](TWO))
    node.refuses(bad)
    assert WEB in node.masters()
    node.kill_agent()
    node.kill_keepalived()
    node.replace()
    node.start()
    assert "line 4" in node.refuses(bad)
    assert node.state()["instances"] == []
    node.wait_until("the VIPs are gone", lambda: not node.addresses() & {WEB_VIP, "192.0.2.131"})
    node.lives()
    assert node.page(names.READY_PATH)[0] == 503
    node.runs(node.config.write(TWO))
    master(node, WEB)


def test_a_keepalived_that_is_killed_during_a_reload_reads_the_same_again(pod: MakePod) -> None:
    """To fall back would leave this node alone with the old configuration."""
    node = start_only_pod(pod, ONE)
    assert node.keepalived
    family = [one for pid in process.children([node.keepalived.pid]) if (one := process.find(pid))]
    for one in family:
        one.signal(signal.SIGSTOP)
    wanted = node.config.write(TWO)
    node.wait_until("keepalived gets the reload signal", lambda: any(_has_pending_sighup(one.pid) for one in family))
    node.kill_keepalived()
    node.wait_until("the agent has seen it", lambda: "keepalived killed during reload" in node.agent_log.read_text())
    assert "shop/cart" in (node.run_dir / "keepalived.conf").read_text(), node.logs()
    node.start_keepalived()
    node.runs(wanted)
    assert node.state()["refused"] == ""


def _has_pending_sighup(pid: int) -> bool:
    """Whether SIGHUP is pending for the process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) & 1 for line in lines if line.startswith(("SigPnd", "ShdPnd")))


def test_a_configuration_that_ends_keepalived_is_replaced_by_the_good_one(pod: MakePod, tmp_path: Path) -> None:
    """Its VIPs are removed at once, and kubelet's next start finds the last good configuration."""
    node = master(started(pod("n1", keepalived=keepalived_that_accepts_lethal(tmp_path)), ONE), WEB)
    lethal = ONE.replace("router_id edge", "router_id lethal").replace("advert_int 0.2", "advert_int", 1)
    reason = node.refuses(node.config.write(lethal))
    assert reason == "keepalived exited when it read this configuration"
    node.wait_until("the VIP is gone", lambda: WEB_VIP not in node.addresses())
    node.start_keepalived()
    node.runs(mounts.hash_of(ONE))
    assert node.state()["refused"] == reason
    master(node, WEB)
