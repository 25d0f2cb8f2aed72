"""``make e2e`` starts a cluster, installs kavip, runs Kubernetes' LoadBalancer specs and writes a page of the docs.

The exit status is 1 if a spec fails and the page has no excuse for it.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from hack.demo.__main__ import REPOSITORY, TAG, image
from hack.e2e import report
from hack.testbed import cache, golang, images, prepare, programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from hack.testbed.progress import say, step

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "reference" / "conformance.md"
FOCUS = "LoadBalancers"
AGNHOST = "registry.k8s.io/e2e-test-images/agnhost"
REPORT = click.Path(exists=True, dir_okay=False, path_type=Path)
OUTSIDE = "203.0.113.1"  # RFC 5737
_LIMIT = 120 * 60.0  # seconds; 68 minutes on two busy cores, most of them in three specs that wait


@click.command()
@click.option("--focus", default=FOCUS, show_default=True, help="Run the specs whose text matches.")
@click.option("--report", "given", multiple=True, type=REPORT, help="Only write the page, from reports of runs.")
def main(focus: str, given: tuple[Path, ...]) -> None:
    """Run the specs and write docs/reference/conformance.md."""
    if given:
        PAGE.write_text(report.page(report.read(*given), version=version()))
        return
    folder = Path(tempfile.mkdtemp(prefix="kavip-e2e-"))
    built = prepare.everything((*programs.CLUSTER, "coredns", "agnhost"), image)
    specs, archives = programs.e2e(), [image(), agnhost(built)]
    with runs.temporary() as state:
        cluster = Cluster(built, state, images=archives, families=(4,), with_dns=True)
        with step("Start a cluster", "three nodes with IPv4 and cluster DNS"):
            cluster.start()
        try:
            install(cluster)
            move_client(cluster)
            found = call(cluster, specs, kubectl=built["kubectl"], focus=focus, folder=folder)
        finally:
            for log in (state / "kube-apiserver.log", state / "audit.log"):
                shutil.copy(log, folder)
            cluster.stop()
    if focus == FOCUS:
        PAGE.write_text(report.page(found, version=version()))
        say(f"the table is {PAGE.relative_to(ROOT)}")
    say(f"the report and all logs are in {folder}")
    unexpected = [spec for spec in found if spec.failed and not spec.excuse]
    for spec in unexpected:
        say(f"failed: {spec.text}")
    say(f"{sum(not spec.failed for spec in found)} passed, {sum(spec.failed for spec in found)} failed")
    sys.exit(1 if unexpected or not found else 0)


def version() -> str:
    """The version of Kubernetes that the testbed runs."""
    return programs.required("kubernetes", "k8s.io/kubernetes")


def agnhost(built: programs.Programs) -> Path:
    """The image that the specs run in their pods, built from the same Go module, with the programs they call."""
    context = cache.root() / "agnhost"
    context.mkdir(exist_ok=True)
    shutil.copy(built["agnhost"], context / "agnhost")
    shutil.copy(HERE / "agnhost.dockerfile", context / "Dockerfile")
    number = agnhost_version()
    return images.image(f"{AGNHOST}:{number}", dockerfile=context / "Dockerfile")


def agnhost_version() -> str:
    """The tag that the specs ask for, as the Kubernetes module states it."""
    folder = golang.folder_of(golang.TOOLS / "kubernetes", "k8s.io/kubernetes/test/utils/image")
    found = re.search(r'configs\[Agnhost\] += Config\{[^"]*"agnhost", "([\d.]+)"', (folder / "manifest.go").read_text())
    if not found:
        raise TestbedError("the image list of Kubernetes names no agnhost: adapt agnhost_version")
    return found[1]


def install(cluster: Cluster) -> None:
    """Install kavip, with a pool and a group that serve every namespace."""
    with step("Install kavip"):
        where = [str(ROOT / "charts" / "kavip"), "--namespace=kavip", "--create-namespace", "--wait=watcher"]
        which = f"--set=image.repository={REPOSITORY},image.tag={TAG},image.pullPolicy=Never"
        cluster.helm("install", "kavip", *where, which)
        cluster.kubectl("apply", "-f", str(HERE / "manifests.yaml"))


def move_client(cluster: Cluster) -> None:
    """Give the client a source address outside the nodes' network: specs take an address inside for a node's own."""
    client = cluster.client
    client.exec("ip", "address", "add", f"{OUTSIDE}/32", "dev", "lo")
    client.exec("ip", "route", "change", "192.0.2.0/24", "dev", "eth0", "src", OUTSIDE)
    for host in (cluster.control, *cluster.nodes):
        host.exec("ip", "route", "add", f"{OUTSIDE}/32", "via", client.ipv4)


def call(cluster: Cluster, specs: Path, *, kubectl: str, focus: str, folder: Path) -> list[report.Spec]:
    """Run the specs on the client's machine, which is on the nodes' segment, and return their results."""
    results = folder / "report.json"
    command = [
        str(specs),
        f"--kubeconfig={cluster.kubeconfig}",
        f"--kubectl-path={kubectl}",
        "--provider=skeleton",
        "--delete-namespace-on-failure=true",
        f"--ginkgo.focus={focus}",
        f"--ginkgo.json-report={results}",
        f"--ginkgo.timeout={_LIMIT:.0f}s",
        "--ginkgo.no-color",
        "--ginkgo.v",
    ]
    log = folder / "specs.log"
    with step("Run the specs of Kubernetes", f"about an hour; {log} grows") as current, log.open("wb") as output:
        inside = cluster.client.inside(*command)
        with subprocess.Popen(inside, stdout=output, stderr=subprocess.STDOUT, cwd=folder) as running:
            deadline = time.monotonic() + _LIMIT + 60
            while running.poll() is None and time.monotonic() < deadline:
                done, total = report.progress(log)
                current.advance(done, total, "specs")
                time.sleep(5)
            running.kill()
    return report.read(results)


if __name__ == "__main__":
    main()
