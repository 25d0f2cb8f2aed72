"""The steps of the demo; each runs commands in the session and records claims."""

import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from hack.demo import tour
from hack.demo.session import MANIFESTS, PATIENCE, Session
from hack.refusals import Case, Manifest
from hack.testbed.errors import TestbedError
from hack.testbed.node import Node
from hack.testbed.process import wait_for

GROUP, SERVICE, ADDED, SPREAD = "lb/edge", "shop/web", "shop/web0", "shop/spread"
CONFLICT, TAKEN = "shop/conflict", "192.0.2.184"
ASSIGNED = ("shop/first", "shop/second", "shop/beside", "shop/both")
NAMESPACE = "kavip"
ROLES = ("webhook", "controller")
"""kavip's Deployments: kavip-webhook and kavip-controller."""
_SETTLED = 2.0  # seconds for which a VIP is observed after it has moved: it might move back
_MOVES = (
    "events",
    f"--namespace={SERVICE.partition('/')[0]}",
    f"--field-selector=reason=MasterChanged,involvedObject.name={SERVICE.partition('/')[2]}",
)
CHART = Path(__file__).parents[2] / "charts" / "kavip"


def install(session: Session, *, repository: str, tag: str) -> None:
    """Helm-install kavip and wait until it answers."""
    session.title("Install kavip")
    image = ["--set", f"image.repository={repository}", "--set", f"image.tag={tag}", "--set", "image.pullPolicy=Never"]
    session.helm("install", "kavip", str(CHART), "-n", NAMESPACE, "--create-namespace", *image)
    for role in ROLES:
        session.wait(f"both replicas of kavip-{role} are ready", partial(are_ready, session, role))
    session.kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide")


def are_ready(session: Session, role: str) -> bool:
    """Whether both pods of a Deployment of kavip are ready."""
    found = session.get("deployment", f"kavip-{role}", "-n", NAMESPACE) or {}
    return bool(found.get("status", {}).get("readyReplicas") == 2)


def measure_memory(session: Session) -> None:
    """Print the resident memory of each pod of kavip's Deployments."""
    for role in ROLES:
        sizes = sorted(size for node in session.cluster.nodes for size in _resident(node, role))
        session.figure(f"resident memory of the pods of kavip-{role}", ", ".join(f"{each} MiB" for each in sizes))


def _resident(node: Node, role: str) -> Iterator[int]:
    """The resident memory, in MiB, of each ``kavip ROLE`` on *node*."""
    for process in node.processes():
        with suppress(OSError):  # the process has ended meanwhile
            words = Path(f"/proc/{process.pid}/cmdline").read_text().rstrip("\0").split("\0")
            if words[-1:] == [role] and any(word.endswith("/kavip") for word in words):
                status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
                yield from (int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))


def use(session: Session) -> None:
    """Apply a pool, a group, a Deployment and a Service; the VIP answers."""
    session.title("A pool, a group, a Deployment and a plain Service of type LoadBalancer")
    for name in ("pool", "group", "web"):
        session.kubectl("apply", "-f", str(MANIFESTS / f"{name}.yaml"))
    session.wait("the Service has an EXTERNAL-IP", lambda: session.address(SERVICE))
    address = session.address(SERVICE)
    session.wait("the client gets an answer from the VIP over HTTP", lambda: session.answers(address))
    session.claim("kavip says Programmed", _programmed(session, SERVICE))
    session.kubectl("get", "service", "web", "-n", "shop")
    _conditions(session, "service", SERVICE)
    session.kubectl("get", "vippools,keepalivedgroups", "-A")
    _conditions(session, "keepalivedgroup", GROUP)
    answers: set[str] = set()
    session.wait(
        "both pods of the Deployment answer behind the VIP", lambda: _ask_again(session, address, answers) == 2
    )
    session.wait("exactly one node holds the VIP", lambda: len(session.holders(address)) == 1)


def _ask_again(session: Session, address: str, answers: set[str]) -> int:
    """Add the answer to one more request to *answers*; return how many different ones there are."""
    answers |= {session.answers(address)} - {""}
    return len(answers)


def _programmed(session: Session, key: str) -> bool:
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if session.condition("service", key, "kavip.io/Programmed")[0] == "True":
            return True
        time.sleep(0.2)
    return False


def _conditions(session: Session, kind: str, key: str) -> None:
    namespace, _, name = key.rpartition("/")
    path = "jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{'\\n'}{end}"
    session.kubectl("get", kind, name, "-n", namespace, "-o", path)


def refuse(session: Session) -> None:
    """Apply invalid manifests: each is refused with the message of the table."""
    session.title("What kavip refuses at kubectl apply")
    with TemporaryDirectory(prefix="tour-") as folder:
        cluster_file = _written(Path(folder) / "cluster.yaml", *tour.cluster())
        session.kubectl("apply", "-f", cluster_file)
        session.wait("the tour's Services have their addresses", lambda: all(map(session.address, tour.SERVICES)))
        for number, case in enumerate(tour.cases(), start=1):
            file = _written(Path(folder) / f"{number:02}-{case.when.replace(' ', '-')}.yaml", case.object)
            _wait_until_refused(session, file, case)
            before = time.monotonic()
            done = session.kubectl("apply", "-f", file, check=False)
            refused = done.returncode != 0 and done.stderr.endswith(case.printed)
            session.claim(f"{case.when}: refused", refused, f"{time.monotonic() - before:.1f} s")
        session.kubectl("delete", "services", "--all", "-n", "shop")
        session.kubectl("delete", "keepalivedgroups", "closed", "full", "other", "-n", "lb")
        session.kubectl("delete", "vippool", "staff")


def _wait_until_refused(session: Session, file: str, case: Case) -> None:
    """Wait until kavip has observed the objects that a case refers to."""

    def refused() -> bool:
        done = session.cluster.kubectl("apply", "-f", file, "--dry-run=server", check=False)
        return done.returncode != 0 and done.stderr.endswith(case.printed)

    with suppress(TestbedError):
        wait_for(case.when, refused, timeout=PATIENCE, interval=0.2)


def _written(file: Path, *manifests: Manifest) -> str:
    file.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
    return str(file)


def assign(session: Session) -> None:
    """Show two more pools, one of them full, a shared address, a dual-stack Service, and the cause of a waiting one."""
    session.title("Addresses: pools by priority, one shared by two Services, both families, and a pool that is full")
    session.kubectl("apply", "-f", str(MANIFESTS / "addresses.yaml"))
    session.wait("each of these Services has its address", lambda: all(map(session.address, ASSIGNED)))
    session.kubectl("get", "services", "-n", "shop")
    session.claim("two Services share an address", session.address("shop/second") == session.address("shop/beside"))
    ipv4, ipv6 = session.addresses("shop/both") or ("", "")
    session.wait(f"the client gets an answer from {ipv4} and from {ipv6}", lambda: _answer(session, ipv4, ipv6))
    session.kubectl("apply", "-f", str(MANIFESTS / "late.yaml"))
    session.wait("the late Service reports why it waits", lambda: _reason(session, "shop/late") == "PoolExhausted")
    why = session.kavip("explain", "shop/late")
    session.claim(
        "kavip explain prints the reason, rule by rule", why.returncode == 1 and "0 of 2 free, 2 assigned" in why.stdout
    )
    freed = session.address("shop/first")
    session.kubectl("delete", "service", "first", "-n", "shop")
    session.wait("the waiting Service gets the freed address", lambda: session.address("shop/late") == freed)
    session.kubectl("get", "vippools")
    inside = ("exec", "-n", NAMESPACE, "deployment/kavip-controller", "--", "kavip", "explain")
    explained = session.kubectl(*inside, "shop/both", check=False)
    session.claim(
        "kavip explain prints the holders of the addresses", explained.returncode == 0 and ipv6 in explained.stdout
    )
    session.kubectl("delete", "services", "late", "second", "beside", "both", "-n", "shop")
    session.kubectl("delete", "vippools", "small", "dual")


def _answer(session: Session, *addresses: str) -> bool:
    return all(session.answers(address) for address in addresses)


def _reason(session: Session, key: str) -> str:
    return session.condition("service", key, "kavip.io/AddressAssigned")[1]


def spread(session: Session) -> None:
    """Apply a Service with three VIPs: each is on another node."""
    session.title("Three VIPs of one Service on three nodes")
    session.kubectl("apply", "-f", str(MANIFESTS / "spread.yaml"))
    session.wait("the Service has three addresses", lambda: len(session.addresses(SPREAD)) == 3)
    session.kubectl("get", "service", "spread", "-n", "shop")
    vips = session.addresses(SPREAD)
    session.wait("each node holds one of them", lambda: len(_nodes_with_one(session, vips)) == 3)
    session.wait("the client gets an answer from each", lambda: _answer(session, *vips))
    session.kavip("status")
    session.kubectl("delete", "service", "spread", "-n", "shop")
    session.kubectl("delete", "vippool", "three")


def _nodes_with_one(session: Session, vips: Iterable[str]) -> set[str]:
    """The nodes that alone hold one of *vips*."""
    holders = [session.holders(each) for each in vips]
    return {found[0].name for found in holders if len(found) == 1}


def avoid_conflict(session: Session) -> None:
    """Apply a Service while another machine has the first address of its pool: the Service gets the next one."""
    session.title("Another machine on the LAN has the first address of a pool")
    with session.cluster.stranger(TAKEN) as stranger:
        print(f"   a machine that is no node, {stranger.address.mac}, has {TAKEN}", flush=True)
        before = session.holders(TAKEN)
        session.kubectl("apply", "-f", str(MANIFESTS / "conflict.yaml"))
        session.wait("the Service has another address", lambda: session.address(CONFLICT) not in ("", TAKEN))
        address = session.address(CONFLICT)
        session.wait("the client gets an answer from it", lambda: session.answers(address))
        session.kubectl("get", "service", "conflict", "-n", "shop")
        rest = "jsonpath={range .status.cooling[*]}{.address} is in cool-down until {.until}: {.reason}{'\\n'}{end}"
        shown = session.kubectl("get", "vippool", "taken", "-o", rest)
        words = f"{TAKEN} is in cool-down until"
        session.claim("the first address is in cool-down for an hour", shown.stdout.startswith(words))
        session.claim("no node has taken it", not before and not session.holders(TAKEN))
        events = ("get", "events", "-n", "shop", "--field-selector", "reason=AddressConflict")
        session.wait(
            "an Event names the other machine",
            lambda: stranger.address.mac in session.cluster.kubectl(*events).stdout,
        )
        session.kubectl(*events)
        explained = session.kavip("explain", CONFLICT)
        session.claim("kavip explain says why", words in " ".join(explained.stdout.split()))
    session.kubectl("delete", "service", "conflict", "-n", "shop")
    session.kubectl("delete", "vippool", "taken")


def add(session: Session, *, times: int = 5) -> None:
    """Add Services to the running group, and measure the time until each VIP answers; other VIPs are not affected."""
    session.title("Services added to the running group")
    manifest = (MANIFESTS / "web.yaml").read_text().rsplit("---\n", 1)[1]
    seconds, first = [], session.address(SERVICE)
    with session.measure_outage(first) as neighbour:
        for number in range(times):
            name, address = f"web{number}", f"192.0.2.{132 + number}"
            wish = f"  annotations:\n    kavip.io/addresses: {address}\n"
            text = manifest.replace("  name: web\n", f"  name: {name}\n{wish}")
            began = time.monotonic()
            print(f"$ kubectl apply -f -   # Service {name}, kavip.io/addresses: {address}", flush=True)
            session.cluster.kubectl("apply", "-f", "-", input=text)
            answered = _until_answer(session, address, began)
            seconds.append(answered)
            print(f"   {name} {address}: {answered:.2f} s from kubectl apply to the first answer", flush=True)
    session.figure("VIP of an added Service answers after (median)", f"{statistics.median(seconds):.2f} s")
    session.claim("every added VIP answers", max(seconds) < PATIENCE)
    session.claim("half of them within 5 s", statistics.median(seconds) < 5, timed=True)
    # on a machine that stalls, the VIP may move because of keepalived's short intervals, not because of other Services
    unmoved = "no request to the first VIP failed meanwhile"
    session.claim(unmoved, neighbour.failed == 0, str(neighbour), timed=neighbour.moved)


def _until_answer(session: Session, address: str, began: float) -> float:
    while not session.answers(address) and time.monotonic() - began < PATIENCE:
        time.sleep(0.02)
    return time.monotonic() - began


def look(session: Session) -> None:
    """Show the holders of VIPs and addresses, what is wrong in the cluster, and what a manifest would change."""
    session.title("The holders of VIPs, a check of the cluster, and what a manifest would change")
    session.wait("every VIP has its master", lambda: session.ask_kavip("status").returncode == 0)
    session.kavip("status")
    address = session.address(SERVICE)
    session.wait("kavip status names the node that holds the VIP", lambda: _is_named(session, address))
    session.wait("kavip doctor finds nothing", lambda: session.ask_kavip("doctor").returncode == 0)
    session.kavip("doctor")
    with TemporaryDirectory(prefix="plan-") as folder:
        manifest = yaml.safe_load((MANIFESTS / "web.yaml").read_text().rsplit("---\n", 1)[1])
        same = session.kavip("plan", "--diff", "-f", str(MANIFESTS / "web.yaml"))
        session.claim("the manifests in use would change nothing", same.returncode == 0 and not same.stdout)
        manifest["metadata"]["name"] = "next"
        found = session.kavip("plan", "--diff", "-f", _written(Path(folder) / "next.yaml", manifest))
        session.claim(
            "one more Service would add its instance, and remove nothing",
            found.returncode == 1 and "+vrrp_instance shop/next {" in found.stdout,
        )


def _is_named(session: Session, address: str) -> bool:
    """Whether ``kavip status`` has the node that alone holds *address*: on a busy machine it may move in between."""
    lines = session.ask_kavip("status").stdout.splitlines()
    row = next((line.split() for line in lines if line.startswith(f"{address} ")), [])
    holders = [node.name for node in session.holders(address)]
    return len(holders) == 1 and holders[0] in row


def drain(session: Session) -> None:
    """Move the VIPs of a node away while the node still runs, and let them return."""
    session.title("A node is drained before somebody works on it")
    address = session.address(SERVICE)
    node = session.holder(address)
    with session.measure_outage(address) as outage:
        time.sleep(1)
        done = session.kavip("drain", node.name, "--wait")
        moved = node not in session.holders(address)
        time.sleep(_SETTLED)
    session.claim("kavip drain returns when the node holds no VIP", done.returncode == 0 and moved)
    # on a busy machine more than one request may be under way when the VIP moves
    session.claim("no request is lost, but one that is under way", outage.failed <= 1, str(outage), timed=True)
    session.kavip("undrain", node.name)
    session.wait("the VIP comes back to the node", lambda: session.holders(address) == [node])
    session.wait("Events of the Service name the nodes", lambda: f"{address} moved from node" in _moves(session))
    session.kubectl("get", *_MOVES)


def _moves(session: Session) -> str:
    """The messages of the Events about moves of the Service."""
    return " ".join(each["message"] for each in (session.get(*_MOVES) or {}).get("items", ()))


def kill(session: Session) -> None:
    """Kill the master's keepalived: the VIP moves, and the daemon is restarted."""
    address = session.address(SERVICE)
    session.title("keepalived on the master node dies (kill -9)")
    master = session.holder(address)
    with session.measure_outage(address) as outage:
        time.sleep(1)
        daemons = session.daemons(master)
        print(f"$ kill -9 {' '.join(str(one.pid) for one in daemons)}   # keepalived on {master.name}", flush=True)
        for daemon in daemons:
            daemon.signal(9)
        session.wait("keepalived runs again on that node", lambda: session.daemons(master))
        session.wait("one node holds the VIP again", lambda: len(session.holders(address)) == 1)
        time.sleep(_SETTLED)
    session.figure("VIP silent after kill -9 of keepalived", f"{outage.silence:.2f} s")
    print(f"   {outage.failed} of {outage.requests} requests lost", flush=True)
    session.wait("the VIP answers again", lambda: session.answers(address))


def power_off(session: Session) -> None:
    """Cut the power of the master node: another node takes the VIP. The last step: kavip may run on that node."""
    address = session.address(ADDED)
    session.title("The master node loses power")
    master = session.holder(address)
    with session.measure_outage(address) as outage:
        time.sleep(1)
        print(f"   power off: {master.name}", flush=True)
        session.cluster.stop_node(master.name)
        session.wait("another node holds the VIP", lambda: len(session.holders(address)) == 1)
        time.sleep(_SETTLED)
    session.figure("VIP silent after the power cut of its node", f"{outage.silence:.2f} s")
    print(
        "   (a web pod died with the node: its share of the requests fails until Kubernetes marks the node)", flush=True
    )
    session.wait("the VIP answers again", lambda: session.answers(address))
    print(f"   power on: {master.name}", flush=True)
    session.cluster.start_node(master.name)


def remove(session: Session) -> None:
    """Delete the Service: its VIP, VRID and configuration are removed."""
    session.title("The Service is deleted")
    address = session.address(SERVICE)
    session.kubectl("delete", "service", "web", "-n", "shop")
    session.wait("no node holds the VIP", lambda: not session.holders(address))
    session.wait("its VRID is free", lambda: SERVICE not in _router_ids(session))
    session.wait(
        "the configuration does not name it any more", lambda: f"vrrp_instance {SERVICE} " not in _text(session)
    )


def _text(session: Session) -> str:
    """The configuration of the group; while there is none, one that still names the Service."""
    found = session.get("configmap", "edge", "-n", "lb") or {"data": {"keepalived.conf": f"vrrp_instance {SERVICE} "}}
    return str(found["data"]["keepalived.conf"])


def _router_ids(session: Session) -> dict[str, int]:
    found = session.get("keepalivedgroup", "edge", "-n", "lb") or {}
    return dict(found.get("status", {}).get("routerIDs") or {})
