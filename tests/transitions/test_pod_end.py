"""A pod that kubelet ends hands its VIPs over before keepalived stops."""

import signal

import pytest

from hack.testbed import process
from kavip import names
from tests.agent.pod import PATIENCE, Pod, connected
from tests.transitions.conftest import MakeLiveGroup
from tests.transitions.livegroup import LiveGroup, group, service
from tests.transitions.recording import record

pytestmark = pytest.mark.netns

VIPS = [f"192.0.2.{130 + number}" for number in range(6)]


def ask_hand_over(pod: Pod, *signals: int) -> int:
    """
    Request the page as the preStop hook of keepalived's container does; its status.

    The agent gets *signals* at once: it waits two seconds for the one after the other.
    """
    assert pod.agent
    with connected(pod.host.netns, names.HANDOVER_HOST, pod.port) as connection:
        connection.settimeout(PATIENCE)
        connection.sendall(f"GET {names.HANDOVER_PATH} HTTP/1.1\r\n\r\n".encode())
        for each in signals:
            pod.agent.signal(each)
        answer = b"".join(iter(lambda: connection.recv(4096), b""))
    return int(answer.split()[1])


def end_as_kubelet(pod: Pod) -> None:
    """End both containers at once; keepalived gets SIGTERM after its hook."""
    assert pod.agent and pod.keepalived
    assert ask_hand_over(pod, signal.SIGTERM) == 200
    process.stop([pod.keepalived], grace=PATIENCE)
    agent = pod.agent
    process.wait_for("the agent ends", lambda: not agent.alive, timeout=PATIENCE)
    pod.agent = pod.keepalived = None


def started(make: MakeLiveGroup, *, nodes: int = 3, **spec: object) -> LiveGroup:
    """A group with six VIPs."""
    live = make(nodes)
    live.apply(group(**spec), *(service(f"shop/s{number}", vip) for number, vip in enumerate(VIPS)))
    live.wait_for_masters()
    return live


def masters(live: LiveGroup) -> dict[str, str]:
    """The one master of each Service."""
    return {name: live.master(name) for name in sorted(live.preferred_nodes())}


def test_a_pod_that_ends_loses_no_answer(make_live_group: MakeLiveGroup) -> None:
    """Each of its VIPs moves from a live master to the next node, and back when a new pod runs."""
    live = started(make_live_group)
    before = masters(live)
    ending = max(sorted(live.pods), key=list(before.values()).count)
    pod = live.pods[ending]
    with record(live, VIPS) as recorded:
        end_as_kubelet(pod)
        live.wait_until_stable()
    assert ending not in masters(live).values()
    assert recorded.double_masters == (), recorded.timeline()
    for number, vip in enumerate(VIPS):
        assert recorded.moved_cleanly(vip, moves=int(before[f"shop/s{number}"] == ending)), recorded.timeline()
    assert not pod.addresses() & set(VIPS)
    pod.replace()
    pod.start()
    assert live.wait_for_masters() == before


def test_sigquit_hands_over_too(make_live_group: MakeLiveGroup) -> None:
    """The agent ends when other nodes are master, as before a shutdown; a new one takes the VIPs back."""
    live = started(make_live_group)
    before = masters(live)
    ending = max(sorted(live.pods), key=list(before.values()).count)
    pod = live.pods[ending]
    agent = pod.agent
    assert agent
    with record(live, VIPS) as recorded:
        agent.signal(signal.SIGQUIT)
        process.wait_for("the agent ends", lambda: not agent.alive, timeout=PATIENCE)
        assert not pod.addresses() & set(VIPS)
        pod.start_agent()
        assert live.wait_for_masters() == before
    for number, vip in enumerate(VIPS):
        assert recorded.moved_cleanly(vip, moves=2 * (before[f"shop/s{number}"] == ending)), recorded.timeline()


def test_an_agent_that_ends_alone_lowers_nothing(make_live_group: MakeLiveGroup) -> None:
    """Nor does a request without SIGTERM: VIPs stay, and keepalived is not reloaded."""
    live = started(make_live_group, nodes=2)
    pod = live.pods["n1"]
    reloads = pod.daemon_reloads()
    with record(live, VIPS) as recorded:
        assert ask_hand_over(pod) == 200
        assert pod.agent
        agent = pod.agent
        agent.signal(signal.SIGTERM)
        process.wait_for("the agent ends", lambda: not agent.alive, timeout=PATIENCE)
        assert pod.daemon_reloads() == reloads
        pod.start_agent()
        live.wait_until_stable()
    assert (recorded.transitions, recorded.failures) == ({}, {}), recorded.timeline()


def test_an_agent_that_starts_again_raises_a_lowered_keepalived(make_live_group: MakeLiveGroup) -> None:
    """After a hand-over in a pod that does not end, the next agent gives the node its VIPs back."""
    live = started(make_live_group, nodes=2)
    before = live.wait_for_masters()
    pod = live.pods["n1"]
    assert ask_hand_over(pod, signal.SIGTERM) == 200
    assert not pod.addresses() & set(VIPS)
    pod.kill_agent()
    pod.start_agent()
    assert live.wait_for_masters() == before


def test_the_last_pod_ends_in_bounded_time(make_live_group: MakeLiveGroup) -> None:
    """No other node takes over: the hook is answered, and keepalived removes its VIPs when it stops."""
    live = started(make_live_group, nodes=2)
    live.pods["n2"].stop()
    process.wait_for("n1 has all", lambda: set(masters(live).values()) == {"n1"}, timeout=PATIENCE)
    end_as_kubelet(live.pods["n1"])
    assert not live.pods["n1"].addresses() & set(VIPS)
