"""A whole cluster: one for most of this module, since it takes ten seconds."""

import json
import os
import sys
from collections.abc import Iterator

import pytest

from hack.testbed import process, runs
from hack.testbed.cluster import Cluster
from hack.testbed.images import WEB
from hack.testbed.place import run
from hack.testbed.programs import Programs

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
VIP = "192.0.2.140"

# asks the name server in its first argument for the IPv4 address of the name in its second
QUERY = """
import socket, struct, sys
question = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[2].split(".")) + b"\\0"
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.settimeout(5)
server.sendto(struct.pack(">6H", 1, 0x100, 1, 0, 0, 0) + question + struct.pack(">2H", 1, 1), (sys.argv[1], 53))
print(socket.inet_ntoa(server.recv(512)[-4:]))
"""


@pytest.fixture(scope="module")
def small(programs: Programs) -> Iterator[Cluster]:
    """Two nodes."""
    with runs.temporary() as state, Cluster(programs, state, nodes=2) as started:
        yield started
    assert not state.exists()


@pytest.fixture(scope="module")
def web(small: Cluster) -> Cluster:
    """The same with a web pod on each node behind a Service."""
    labels = {"app": "web"}
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    pod = {
        "containers": [{"name": "web", "image": WEB}],
        "topologySpreadConstraints": [{**spread, "labelSelector": {"matchLabels": labels}}],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {
            "type": "LoadBalancer",
            "externalIPs": [VIP],
            "ipFamilyPolicy": "RequireDualStack",
            "selector": labels,
            "ports": [{"port": 80}],
        },
    }
    small.kubectl(
        "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment, service]})
    )
    status = ("rollout", "status", "deployment/web", "--timeout=60s")
    process.wait_for("the pods run", lambda: not small.kubectl(*status, check=False).returncode, timeout=240)
    return small


def test_services_answer_in_both_families(web: Cluster) -> None:
    """From a node, by cluster address, through kube-proxy."""
    addresses = web.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIPs[*]}").stdout.split()
    assert len(addresses) == 2
    for address in addresses:
        url = f"http://[{address}]/" if ":" in address else f"http://{address}/"

        def answers(url: str = url) -> bool:
            return web.nodes[0].exec("curl", "-sS", "-m20", url, check=False).stdout.startswith("web-")

        process.wait_for(f"{url} answers", answers, timeout=180)


def test_a_virtual_ip_on_a_node_answers_the_client(web: Cluster) -> None:
    """What keepalived does, done by hand: the address on one node is enough."""
    node = web.nodes[1]
    node.exec("ip", "addr", "add", f"{VIP}/32", "dev", "eth0")
    answered: set[str] = set()

    def both() -> bool:
        answered.add(web.client.exec("curl", "-sS", "-m20", f"http://{VIP}/", check=False).stdout)
        return len(answered - {""}) == 2

    process.wait_for("both pods have answered", both, timeout=180)
    node.exec("ip", "addr", "del", f"{VIP}/32", "dev", "eth0")


def test_exec_reaches_a_pod(web: Cluster) -> None:
    """The API server finds its way to kubelet."""
    shown = web.kubectl("exec", "deployment/web", "--", "/web", "name")
    assert shown.stdout.startswith("web-")


def test_the_wrappers_work_from_outside(small: Cluster) -> None:
    """`kubectl` and `helm` in the bin directory use this cluster."""
    assert "n1" in run([str(small.state / "bin/kubectl"), "get", "nodes"]).stdout
    assert "NAME" in run([str(small.state / "bin/helm"), "list", "-A"]).stdout


def test_a_command_runs_on_the_client_and_a_cable_is_pulled(small: Cluster) -> None:
    """`client` and `cable` in the bin directory; the node sees its link go down, and come back."""
    folder, link = small.state / "bin", ("ip", "link", "show", "eth0")
    assert small.client.ipv4 in run([str(folder / "client"), "ip", "-o", "address"]).stdout
    run([str(folder / "cable"), "n2", "down"])
    process.wait_for("n2 has no link", lambda: "NO-CARRIER" in small.node("n2").exec(*link).stdout, timeout=60)
    run([str(folder / "cable"), "n2", "up"])
    process.wait_for("n2 has its link", lambda: "LOWER_UP" in small.node("n2").exec(*link).stdout, timeout=60)


def test_another_process_can_take_it_over(small: Cluster, programs: Programs) -> None:
    """The state directory is all it takes."""
    again = Cluster.attach(programs, small.state)
    assert again.kubectl("get", "nodes", "-o", "name").stdout.split() == ["node/n1", "node/n2"]
    root = again.plane.user("testbed:root", "system:masters")
    assert again.kubectl("auth", "whoami", kubeconfig=root).returncode == 0


def test_killing_by_name_hits_one_node_only(web: Cluster) -> None:
    """The pod of that node restarts, the other one runs on."""
    other = web.node("n2").processes("web")
    assert web.kill_in_node("n1", "web")
    assert web.node("n2").processes("web") == other
    process.wait_for("the pod is back", lambda: bool(web.node("n1").processes("web")), timeout=180)


def test_a_node_loses_power_and_comes_back(web: Cluster) -> None:
    """All that ran on it ends at once; switched on again, its pods run again."""
    node = web.node("n1")
    running = node.processes()
    web.stop_node("n1")
    assert not any(one.alive for one in running)
    web.start_node("n1")
    process.wait_for("its pod runs again", lambda: bool(node.processes("web")), timeout=180)


def test_one_family_with_cluster_dns(programs: Programs) -> None:
    """On a node without IPv6, the cluster's name server resolves the Services; kubectl finds kavip as a plugin."""
    with (
        runs.temporary() as state,
        Cluster(programs, state, nodes=1, families=(4,), with_dns=True) as single,
    ):
        node = single.nodes[0]
        assert node.exec("ip", "-6", "address", "show", "dev", "eth0", "scope", "global").stdout == ""
        name = "kubernetes.default.svc.cluster.local"

        def resolved() -> bool:
            result = node.exec(sys.executable, "-c", QUERY, "10.96.0.10", name, check=False)
            return result.stdout.strip() == "10.96.0.1"

        process.wait_for(f"{name} is resolved", resolved, timeout=180, interval=0.5)
        folder = state / "bin"
        listed = run([str(folder / "kubectl"), "plugin", "list"], env={"PATH": f"{folder}:{os.environ['PATH']}"})
        assert str(folder / "kubectl-kavip") in listed.stdout
        assert "explain" in run([str(folder / "kubectl-kavip"), "--help"]).stdout
