"""What the demo does, act by act; each takes the story and tells it on."""

import statistics
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from hack.demo import tour
from hack.demo.story import MANIFESTS, PATIENCE, Story
from hack.refusals import Case, Manifest
from hack.testbed.errors import TestbedError
from hack.testbed.place import run
from hack.testbed.process import wait_for

GROUP, SERVICE, ADDED = "lb/edge", "shop/web", "shop/web0"
ASSIGNED = ("shop/first", "shop/second", "shop/beside", "shop/both")
NAMESPACE = "kavip"
_SETTLED = 2.0  # seconds for which a VIP is watched after it has moved: it might move back
CHART = Path(__file__).parents[2] / "charts" / "kavip"


def install(story: Story, *, repository: str, tag: str) -> None:
    """Helm-install kavip and wait until it answers."""
    story.title("Install kavip")
    image = ["--set", f"image.repository={repository}", "--set", f"image.tag={tag}", "--set", "image.pullPolicy=Never"]
    story.helm("install", "kavip", str(CHART), "-n", NAMESPACE, "--create-namespace", *image)
    story.wait("both replicas of kavip are ready", lambda: _ready_replicas(story) == 2)
    story.kubectl("get", "pods", "-n", NAMESPACE, "-o", "wide")


def _ready_replicas(story: Story) -> int:
    found = story.get("deployment", "kavip", "-n", NAMESPACE) or {}
    return int(found.get("status", {}).get("readyReplicas", 0))


def use(story: Story) -> None:
    """Apply a pool, a group, a Deployment and a Service; the VIP answers."""
    story.title("A pool, a group, a Deployment and a plain Service of type LoadBalancer")
    for name in ("pool", "group", "web"):
        story.kubectl("apply", "-f", str(MANIFESTS / f"{name}.yaml"))
    story.wait("the Service has an EXTERNAL-IP", lambda: story.address(SERVICE))
    address = story.address(SERVICE)
    story.wait("the client gets an answer from the VIP over HTTP", lambda: story.answers(address))
    story.claim("kavip says Programmed", _programmed(story, SERVICE))
    story.kubectl("get", "service", "web", "-n", "shop")
    _conditions(story, "service", SERVICE)
    story.kubectl("get", "vippools,keepalivedgroups", "-A")
    _conditions(story, "keepalivedgroup", GROUP)
    answers = _answers(story, address, kinds=2)
    story.claim("both pods of the Deployment answer behind the VIP", len(answers) == 2, ", ".join(sorted(answers)))
    story.wait("exactly one node holds the VIP", lambda: len(story.holders(address)) == 1)


def _answers(story: Story, address: str, *, kinds: int) -> set[str]:
    """Ask until so many different answers have come, or long enough."""
    found: set[str] = set()
    for _ in range(40):
        found |= {story.answers(address)} - {""}
        if len(found) == kinds:
            break
    return found


def _programmed(story: Story, key: str) -> bool:
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE:
        if story.condition("service", key, "kavip.io/Programmed")[0] == "True":
            return True
        time.sleep(0.2)
    return False


def _conditions(story: Story, kind: str, key: str) -> None:
    namespace, _, name = key.rpartition("/")
    path = "jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{'\\n'}{end}"
    story.kubectl("get", kind, name, "-n", namespace, "-o", path)


def refuse(story: Story) -> None:
    """Apply what must not come in: each is refused in the words of the table, which say what to do."""
    story.title("What kavip refuses at kubectl apply")
    with TemporaryDirectory(prefix="tour-") as folder:
        around = _written(Path(folder) / "cluster.yaml", *tour.cluster())
        story.kubectl("apply", "-f", around)
        story.wait("the tour's Services have their addresses", lambda: all(map(story.address, tour.SERVICES)))
        for number, case in enumerate(tour.cases(), start=1):
            file = _written(Path(folder) / f"{number:02}-{case.when.replace(' ', '-')}.yaml", case.object)
            _heard(story, file, case)
            before = time.monotonic()
            done = story.kubectl("apply", "-f", file, check=False)
            refused = done.returncode != 0 and done.stderr.endswith(case.printed)
            story.claim(f"{case.when}: refused", refused, f"{time.monotonic() - before:.1f} s")
        story.kubectl("delete", "services", "--all", "-n", "shop")
        story.kubectl("delete", "keepalivedgroups", "closed", "full", "other", "-n", "lb")
        story.kubectl("delete", "vippool", "staff")


def _heard(story: Story, file: str, case: Case) -> None:
    """Wait until kavip knows what a case is asked of, which it hears by watches."""

    def refused() -> bool:
        done = story.cluster.kubectl("apply", "-f", file, "--dry-run=server", check=False)
        return done.returncode != 0 and done.stderr.endswith(case.printed)

    with suppress(TestbedError):
        wait_for(case.when, refused, timeout=PATIENCE, interval=0.2)


def _written(file: Path, *manifests: Manifest) -> str:
    file.write_text(yaml.safe_dump_all(manifests, sort_keys=False))
    return str(file)


def assign(story: Story) -> None:
    """Show two more pools, one of them full, a shared address, a dual-stack Service, and the cause of a waiting one."""
    story.title("Addresses: pools by priority, one shared by two Services, both families, and a pool that is full")
    story.kubectl("apply", "-f", str(MANIFESTS / "addresses.yaml"))
    story.wait("every one of them has its address", lambda: all(map(story.address, ASSIGNED)))
    story.kubectl("get", "services", "-n", "shop")
    story.claim("two Services share an address", story.address("shop/second") == story.address("shop/beside"))
    ipv4, ipv6 = story.addresses("shop/both") or ("", "")
    story.wait(f"the client gets an answer from {ipv4} and from {ipv6}", lambda: _answer(story, ipv4, ipv6))
    story.kubectl("apply", "-f", str(MANIFESTS / "late.yaml"))
    story.wait("the late Service reports why it waits", lambda: _told(story, "shop/late") == "PoolExhausted")
    why = story.kavip("explain", "shop/late")
    story.claim("kavip explain says so, rule by rule", why.returncode == 1 and "0 of 2 free, 2 assigned" in why.stdout)
    freed = story.address("shop/first")
    story.kubectl("delete", "service", "first", "-n", "shop")
    story.wait("what is freed goes to the one that waits", lambda: story.address("shop/late") == freed)
    story.kubectl("get", "vippools")
    inside = ("exec", "-n", NAMESPACE, "deployment/kavip", "--", "kavip", "explain")
    had = story.kubectl(*inside, "shop/both", check=False)
    story.claim("kavip explain says whose addresses are whose", had.returncode == 0 and ipv6 in had.stdout)
    story.kubectl("delete", "services", "late", "second", "beside", "both", "-n", "shop")
    story.kubectl("delete", "vippools", "small", "dual")


def _answer(story: Story, *addresses: str) -> bool:
    return all(story.answers(address) for address in addresses)


def _told(story: Story, key: str) -> str:
    return story.condition("service", key, "kavip.io/AddressAssigned")[1]


def add(story: Story, *, times: int = 5) -> None:
    """Add Services to the running group, and measure the time until each VIP answers; other VIPs are not affected."""
    story.title("Services added to the running group")
    manifest = (MANIFESTS / "web.yaml").read_text().rsplit("---\n", 1)[1]
    seconds, first = [], story.address(SERVICE)
    with story.asking(first) as neighbour:
        for number in range(times):
            name, address = f"web{number}", f"192.0.2.{132 + number}"
            wish = f"  annotations:\n    kavip.io/addresses: {address}\n"
            text = manifest.replace("  name: web\n", f"  name: {name}\n{wish}")
            began = time.monotonic()
            print(f"$ kubectl apply -f -   # Service {name}, kavip.io/addresses: {address}", flush=True)
            story.cluster.kubectl("apply", "-f", "-", input=text)
            answered = _until_answer(story, address, began)
            seconds.append(answered)
            print(f"   {name} {address}: {answered:.2f} s from kubectl apply to the first answer", flush=True)
    story.figure("VIP of an added Service answers after (median)", f"{statistics.median(seconds):.2f} s")
    story.claim("every added VIP answers", max(seconds) < PATIENCE)
    story.claim("half of them within 5 s", statistics.median(seconds) < 5, timed=True)
    # on a machine that stalls, keepalived's short intervals let the VIP move, whatever is done to others
    unmoved = "no request to the first VIP failed meanwhile"
    story.claim(unmoved, neighbour.failed == 0, str(neighbour), timed=neighbour.moved)


def _until_answer(story: Story, address: str, began: float) -> float:
    while not story.answers(address) and time.monotonic() - began < PATIENCE:
        time.sleep(0.02)
    return time.monotonic() - began


def look(story: Story) -> None:
    """Who holds what, and what a manifest would change."""
    story.title("Who holds what, and what a manifest would change")
    story.wait("every VIP has its master", lambda: _status(story) == 0)
    shown = story.kavip("status")
    address = story.address(SERVICE)
    holder = story.holder(address)
    row = next((line.split() for line in shown.stdout.splitlines() if line.startswith(f"{address} ")), [])
    story.claim("kavip status names the node that holds the VIP", holder.name in row, holder.name)
    with TemporaryDirectory(prefix="plan-") as folder:
        manifest = yaml.safe_load((MANIFESTS / "web.yaml").read_text().rsplit("---\n", 1)[1])
        same = story.kavip("plan", "--diff", "-f", str(MANIFESTS / "web.yaml"))
        story.claim("what stands would change nothing", same.returncode == 0 and not same.stdout)
        manifest["metadata"]["name"] = "next"
        found = story.kavip("plan", "--diff", "-f", _written(Path(folder) / "next.yaml", manifest))
        story.claim(
            "one more Service would add its instance, and take nothing away",
            found.returncode == 1 and "+vrrp_instance shop/next {" in found.stdout,
        )


def _status(story: Story) -> int:
    """The exit status of ``kavip status``, not shown."""
    command = story.cluster.control.command(sys.executable, "-m", "kavip", "status")
    return run(command, check=False, env={"KUBECONFIG": str(story.cluster.kubeconfig)}).returncode


def kill(story: Story) -> None:
    """Kill the master's keepalived; the VIP comes back by itself, and so does the daemon."""
    address = story.address(SERVICE)
    story.title("keepalived on the master node dies (kill -9)")
    master = story.holder(address)
    with story.asking(address) as outage:
        time.sleep(1)
        daemons = story.daemons(master)
        print(f"$ kill -9 {' '.join(str(one.pid) for one in daemons)}   # keepalived on {master.name}", flush=True)
        for daemon in daemons:
            daemon.signal(9)
        story.wait("keepalived runs again on that node", lambda: story.daemons(master))
        story.wait("one node holds the VIP again", lambda: len(story.holders(address)) == 1)
        time.sleep(_SETTLED)
    story.figure("VIP silent after kill -9 of keepalived", f"{outage.silence:.2f} s")
    print(f"   {outage.failed} of {outage.asked} requests lost", flush=True)
    story.wait("the VIP answers again", lambda: story.answers(address))


def power_off(story: Story) -> None:
    """Cut the power of the master node: another one has the VIP. The last act: kavip may have died with the node."""
    address = story.address(ADDED)
    story.title("The master node loses power")
    master = story.holder(address)
    with story.asking(address) as outage:
        time.sleep(1)
        print(f"   power off: {master.name}", flush=True)
        story.cluster.stop_node(master.name)
        story.wait("another node holds the VIP", lambda: len(story.holders(address)) == 1)
        time.sleep(_SETTLED)
    story.figure("VIP silent after the power cut of its node", f"{outage.silence:.2f} s")
    print("   (a web pod died with the node: its share of the requests fails until Kubernetes notices)", flush=True)
    story.wait("the VIP answers again", lambda: story.answers(address))
    print(f"   power on: {master.name}", flush=True)
    story.cluster.start_node(master.name)


def remove(story: Story) -> None:
    """Delete the Service: VIP, VRID and configuration go."""
    story.title("The Service is deleted")
    address = story.address(SERVICE)
    story.kubectl("delete", "service", "web", "-n", "shop")
    story.wait("no node holds the VIP", lambda: not story.holders(address))
    story.wait("its VRID is free", lambda: SERVICE not in _router_ids(story))
    story.wait("the configuration does not name it any more", lambda: f"vrrp_instance {SERVICE} " not in _text(story))


def _text(story: Story) -> str:
    """The configuration of the group; while there is none, one that still names the Service."""
    found = story.get("configmap", "edge", "-n", "lb") or {"data": {"keepalived.conf": f"vrrp_instance {SERVICE} "}}
    return str(found["data"]["keepalived.conf"])


def _router_ids(story: Story) -> dict[str, int]:
    found = story.get("keepalivedgroup", "edge", "-n", "lb") or {}
    return dict(found.get("status", {}).get("routerIDs") or {})
