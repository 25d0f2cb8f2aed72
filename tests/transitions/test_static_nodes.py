"""Nodes that join and leave a static group: real agents and daemons, and a real API server that stops in between."""

import json
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from hack.testbed import process, runs
from hack.testbed.controlplane import ControlPlane
from hack.testbed.flags import Address
from hack.testbed.programs import Programs
from hack.testbed.segment import Host, Segment
from kavip.agent.peers import store
from kavip.agent.peers.modeswitch import LEAD
from kavip.cli.main import cli
from tests.agent.pod import PATIENCE, Pod
from tests.support import manifests
from tests.transitions.livegroup import serve_vips
from tests.transitions.recording import Recording, instances, requested, router_ids

pytestmark = [pytest.mark.netns, pytest.mark.apiserver]

VIP, VIP6 = "192.0.2.200", "2001:db8:2::200"
UNUSED = "192.0.2.250"
"""An address that no machine has."""
ROUTER_ID = 213
"""n3 ranks first with it, then n1, then n2, each far ahead of the next one; n1 ranks first as the bootstrap node."""
ROLE = "node-role.kubernetes.io/control-plane"
VIPS = (VIP, VIP6)
GROUP = f"""
apiVersion: redhatcop.redhat.io/v1alpha1
kind: KeepalivedGroup
metadata: {{name: api, namespace: kube-system}}
spec:
  interface: eth0
  metricsPort: 9750
  nodeSelector: {{{ROLE}: ""}}
  advertIntervalMilliseconds: 1000  # a pause of three seconds makes no new master
  virtualIPs: [{{address: {VIP}, routerID: {ROUTER_ID}}}, {{address: "{VIP6}", routerID: {ROUTER_ID}}}]
"""
KUBECONFIG = """
current-context: static
clusters:
- name: static
  cluster: {{server: "https://{server}:6443", tls-server-name: kubernetes.default.svc, certificate-authority: ca.crt}}
contexts: [{{name: static, context: {{cluster: static, user: static}}}}]
users: [{{name: static, user: {{token: {token}}}}}]
"""


FOLLOW = ("--follow-nodes", "--bootstrap=n1")


FIRST = "n1=192.0.2.11,2001:db8:2::11"


def rendered(shape: str, *flags: str, group: str = GROUP, node: str = FIRST) -> list[manifests.Object]:
    """The objects of ``kavip render --static`` in *shape*; *node* is the only one in the file."""
    given = ("--static", shape, f"--node={node}", *flags)
    found = CliRunner().invoke(cli, ["render", "--filename=-", *given], input=group)
    assert found.exit_code == 0, found.output
    return list(manifests.parsed(found.stdout))


def files_of(*flags: str, group: str = GROUP, node: str = FIRST) -> dict[str, bytes]:
    """The files that the static pod of *group* mounts."""
    (body,) = rendered("pod", *flags, group=group, node=node)
    notes = body["metadata"]["annotations"]
    return {key: notes[f"kavip.io/{key}"].encode() for key in ("keepalived.conf", "agent.json")}


class StaticCluster:
    """Three machines with static pods of the group; the API server runs on n1 and is reached by the VIP at first."""

    def __init__(self, programs: Programs, lan: Segment, folder: Path) -> None:
        self.lan, self.folder = lan, folder
        api = Address(lan.node("n1").ipv4, 6443, 2379, 2380)
        self.plane = ControlPlane(programs, folder / "api", address=api, place=lan.node("n1"))
        self.files = files_of(*FOLLOW)
        self.text = self.files["keepalived.conf"].decode()
        self.pods: dict[str, Pod] = {}

    def start(self) -> None:
        """Start the API server with the account of the agents, and what answers on the VIP."""
        self.plane.start()
        self._apply(*rendered("rbac"))
        self.give_access(VIP)
        for host in self.lan.nodes:
            serve_vips(host)

    def give_access(self, server: str) -> None:
        """Write the kubeconfig of the agents; *server* is the address of the API server."""
        token = self.plane.kubectl("create", "token", "kavip-static-api", "-n", "kube-system").stdout
        access = self.folder / "access"
        access.mkdir(exist_ok=True)
        (access / "ca.crt").write_bytes(self.plane.authority.pem)
        (access / "kubeconfig").write_text(KUBECONFIG.format(server=server, token=token.strip()))

    def add_node(self, name: str) -> None:
        """Create the Node *name* as its kubelet does, and then label it as kubeadm does."""
        host = self.lan.node(name)
        self._apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        addresses = [{"type": "InternalIP", "address": address} for address in (host.ipv4, host.ipv6)]
        patch = json.dumps({"status": {"addresses": addresses}})
        self.plane.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)
        self.plane.kubectl("label", "node", name, f"{ROLE}=")

    def start_pod(self, name: str) -> Pod:
        """Start the static pod of the node *name*."""
        pod = self.pods.get(name) or self._pod(self.lan.node(name))
        self.pods[name] = pod
        pod.start()
        return pod

    def wipe(self, name: str) -> None:
        """Put a new machine in the place of the node *name*, which has left."""
        shutil.rmtree(self._state(name))
        shutil.rmtree(self.folder / name)
        del self.pods[name]

    def _pod(self, host: Host) -> Pod:
        pod = Pod(host, self.folder / host.name)
        pod.port = 9750
        state = self._state(host.name)
        state.mkdir()
        pod.flags = (f"--kubeconfig={self.folder}/access/kubeconfig", f"--state-dir={state}")
        pod.config.swap(self.files)
        return pod

    def wait_for(self, name: str, *peers: str, standing: str = "Joined") -> None:
        """
        Wait until the node *name* has that *standing* and accepts adverts of exactly *peers*.

        An agent reports that it has joined before keepalived runs that: only then it hears adverts.
        """
        hosts = [self.lan.node(peer) for peer in peers]
        wanted = {address for host in hosts for address in (host.ipv4, host.ipv6)}
        pod = self.pods[name]

        def is_so() -> bool:
            state = pod.state()
            roles = [each["state"] for each in state["instances"] if each["state"] in ("BACKUP", "MASTER")]
            has_joined = len(roles) == len(VIPS) or standing != "Joined"
            return state["standing"] == standing and has_joined and set(state["peers"]) == wanted

        pod.wait_until(f"{name} is {standing} with {peers}", is_so)

    def join_all(self) -> None:
        """Start all nodes; return when each accepts the others, and the bootstrap node is master."""
        for name in ("n1", "n2", "n3"):
            self.add_node(name)
            self.start_pod(name)
        self.wait_for("n1", "n2", "n3")
        self.wait_for("n2", "n1", "n3")
        self.wait_for("n3", "n1", "n2")
        self.wait_for_master("n1")

    def wait_for_refusal(self, name: str, other: str) -> None:
        """Wait until the node *name* keeps multicast because it waits for *other*, a node or a list of them."""
        pod, wanted = self.pods[name], f"leaves multicast later: it waits for {other}"
        pod.wait_until("it stays in multicast", lambda: pod.state()["refused"] == wanted)

    def wait_for_empty_list(self, *names: str) -> None:
        """Wait until the nodes *names* have read that there is no Node."""

        def is_so() -> bool:
            return all(json.loads((self._state(name) / store.FILE).read_text()).get("nodes") == {} for name in names)

        process.wait_for("the list is empty", is_so, timeout=PATIENCE)

    def _state(self, name: str) -> Path:
        return self.folder / f"state-{name}"

    def wait_for_master(self, name: str) -> None:
        """Wait until the node *name* alone is master, of both families."""

        def is_alone() -> bool:
            counts = {each: len(pod.masters()) for each, pod in self.pods.items() if pod.agent}
            return counts == {**dict.fromkeys(counts, 0), name: len(VIPS)}

        process.wait_for(f"{name} alone is master", is_alone, timeout=PATIENCE)

    def leave(self, name: str) -> None:
        """End the pod of the node *name* as systemd does: the agent first."""
        pod = self.pods[name]
        agent, keepalived = pod.agent, pod.keepalived
        assert agent and keepalived
        agent.signal(signal.SIGQUIT)
        process.wait_for("the agent ends", lambda: not agent.alive, timeout=PATIENCE)
        process.stop([keepalived], grace=PATIENCE)
        pod.agent = pod.keepalived = None

    def stop(self) -> None:
        """Stop everything."""
        for pod in self.pods.values():
            pod.stop()
        self.plane.stop()

    def recording(self) -> Recording:
        """A recording that knows the instances of the group."""
        recorded = Recording()
        recorded.router_ids, recorded.instances = router_ids(self.text), instances(self.text, VIPS)
        return recorded

    def _apply(self, *objects: manifests.Object) -> None:
        text = "\n---\n".join(map(json.dumps, objects))
        self.plane.kubectl("apply", "--filename=-", input=text)


@pytest.fixture
def static(programs: Programs, tmp_path: Path) -> Iterator[StaticCluster]:
    """The group on three machines; no pod runs yet."""
    with ExitStack() as stack:
        state = stack.enter_context(runs.in_memory())
        lan = stack.enter_context(Segment(state, nodes=3))
        found = StaticCluster(programs, lan, tmp_path)
        stack.callback(found.stop)
        found.start()
        yield found


def test_nodes_join_and_the_first_leaves_with_its_api_server(static: StaticCluster) -> None:
    """The VIP answers all the time but for the moves that are due, and never from two masters."""
    static.start_pod("n1")
    static.wait_for_master("n1")
    recorded = static.recording()
    with requested(static.lan, VIPS, recorded, masters=2):
        static.start_pod("n2")
        static.wait_for("n2", "n1", standing="Joining")  # there is no such Node yet
        static.start_pod("n3")
        for name in ("n2", "n3"):
            static.add_node(name)
        static.wait_for("n1", "n2", "n3")
        static.wait_for("n2", "n1", "n3")
        static.wait_for("n3", "n1", "n2")
        static.wait_for_master("n1")
        static.leave("n1")
        static.plane.stop()
        static.wait_for_master("n3")
        static.wait_for("n2", "n3")
        static.wait_for("n3", "n2")
        static.leave("n2")
        static.pods["n2"].replace()
        static.start_pod("n2")  # as after a reboot: the last nodes are on disk
        static.wait_for("n2", "n3")
        static.wait_for_master("n3")
    assert recorded.double_masters == (), recorded.timeline()
    for vip in VIPS:
        assert recorded.moved_cleanly(vip, moves=1), recorded.timeline()


def test_a_machine_that_replaces_the_first_one_begins_nothing(static: StaticCluster) -> None:
    """With its name, an empty disk and a file that names another node, it waits until it reads the Nodes."""
    static.give_access(static.lan.node("n1").ipv4)
    static.join_all()
    recorded = static.recording()
    with requested(static.lan, VIPS, recorded, masters=2):
        static.leave("n1")
        static.plane.kubectl("delete", "node", "n1")
        static.wait_for("n2", "n3")
        static.wait_for("n3", "n2")
        static.give_access(VIP)  # which is on n3, without an API server
        static.wipe("n1")
        static.files = files_of("--follow-nodes", node="n2=192.0.2.12,2001:db8:2::12")
        static.start_pod("n1")
        static.wait_for("n1", "n2", standing="Joining")
        static.wait_for_master("n3")
        static.give_access(static.lan.node("n1").ipv4)
        static.add_node("n1")
        static.wait_for("n1", "n2", "n3")
        static.wait_for("n2", "n1", "n3")
        static.wait_for("n3", "n1", "n2")
        static.wait_for_master("n3")
    assert recorded.double_masters == (), recorded.timeline()
    for vip in VIPS:
        assert recorded.moved_cleanly(vip, moves=1), recorded.timeline()


def test_nodes_outlive_their_node_objects_and_agents(static: StaticCluster) -> None:
    """Nothing moves if all Nodes are deleted, or if agents restart; a dead node stays a peer for a while only."""
    static.join_all()
    recorded = static.recording()
    with requested(static.lan, VIPS, recorded, masters=2):
        static.plane.kubectl("delete", "node", "--all")
        for name in ("n1", "n2", "n3"):
            static.pods[name].kill_agent()
            static.pods[name].start_agent()
        static.wait_for_empty_list("n1", "n2", "n3")
        static.wait_for("n1", "n2", "n3")
        static.wait_for("n2", "n1", "n3")
        static.wait_for("n3", "n1", "n2")
        static.pods["n3"].kill_keepalived()
        static.pods["n3"].kill_agent()
        static.wait_for("n1", "n2")
        static.wait_for("n2", "n1")
    assert recorded.double_masters == (), recorded.timeline()
    for vip in VIPS:
        assert recorded.moved_cleanly(vip, moves=0), recorded.timeline()


def test_multicast_is_left_when_every_node_has_the_file(static: StaticCluster) -> None:
    """
    Until then all nodes stay in multicast, also after an agent restarts, and while one of them cannot read the Nodes.

    There are never two masters.
    """
    nodes = ("n1", "n2", "n3")
    static.give_access(static.lan.node("n1").ipv4)  # the VIP is on n3, which has no API server
    following, group = static.files, GROUP.replace("spec:", "spec:\n  unicastEnabled: false")
    static.files = files_of("--node=n2=192.0.2.12,2001:db8:2::12", "--node=n3=192.0.2.13,2001:db8:2::13", group=group)
    for name in nodes:
        static.add_node(name)
        static.start_pod(name)
    static.wait_for_master("n3")
    recorded = static.recording()
    with requested(static.lan, VIPS, recorded, masters=2):
        for name in nodes[:-1]:
            static.pods[name].config.swap(following)
            static.wait_for_refusal(name, "n3" if name == "n2" else "n2")
        static.pods["n1"].kill_agent()
        static.pods["n1"].start_agent()
        static.wait_for_refusal("n1", "n3")
        static.wait_for_master("n3")
        static.give_access(UNUSED)
        static.pods["n3"].config.swap(following)
        static.wait_for_refusal("n3", "a list of the nodes")
        time.sleep(LEAD + 2)  # in which the others would leave multicast if n3 had said that it can
        for name in nodes[:-1]:
            static.wait_for_refusal(name, "n3")
        static.give_access(static.lan.node("n1").ipv4)
        static.wait_for("n1", "n2", "n3")
        static.wait_for("n2", "n1", "n3")
        static.wait_for("n3", "n1", "n2")
        static.wait_for_master("n1")
    assert recorded.double_masters == (), recorded.timeline()
    assert recorded.adverts[-1].target not in ("224.0.0.18", "ff02::12")
