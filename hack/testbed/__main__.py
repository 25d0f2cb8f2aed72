"""The testbed's commands: `python -m hack.testbed COMMAND`, from the root of the repository."""

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path

import click

from hack.testbed import debian, foreign, images, livepage, need, packages, prepare, programs, runs
from hack.testbed.cluster import Cluster
from hack.testbed.errors import TestbedError
from hack.testbed.progress import say, step
from hack.testbed.segment import BOTH

ARCHIVE = click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path)
REQUIREMENTS = Path("requirements/run.txt")
ARCHITECTURE = click.option(
    "--arch", "architecture", default=foreign.native(), help="amd64 or arm64. [that of this machine]"
)
NAME = click.option("--name", default="default", show_default=True, help="Which cluster.")


@click.group()
def main() -> None:
    """A real Kubernetes on this machine, from the package registries."""


@main.command("programs")
def get_programs() -> None:
    """Install packages (as root) and build the programs that are not in the cache."""
    debian.install()
    found = programs.ensure()
    say(f"{len(found.paths)} programs are ready")


@main.command()
def browser() -> None:
    """Install Chromium (as root), in which the tests of the page of `kavip ui` run."""
    absent = debian.absent_of(debian.BROWSER)
    if absent and not debian.installable():
        raise TestbedError(
            f"the tests of the page need what is missing here: {', '.join(absent)}; root on Debian can install it"
        )
    debian.install(debian.BROWSER)


@main.command()
def check() -> None:
    """Fail, and name what is missing, where no cluster can ever run; packages that `programs` installs do not count."""
    need.namespaces("a cluster", () if debian.installable() else tuple(debian.PACKAGES))


@main.command("prepare")
@click.option("--tests", is_flag=True, help="Also what only the tests use.")
def prepare_all(*, tests: bool) -> None:
    """Install packages (as root), and build the programs and images that are not in the cache, side by side."""
    found = prepare.everything(programs.TESTS if tests else programs.CLUSTER, images.base)
    say(f"{len(found.paths)} programs and all images are ready")


@main.command("image")
@click.option("--dockerfile", type=ARCHIVE, default="Dockerfile", show_default=True)
@click.option("--tag", required=True, help="The image's name.")
@click.option("--base", help="What ARG BASE becomes. [the testbed's own base image]")
@click.option("--build-arg", "args", multiple=True, metavar="KEY=VALUE")
@click.option("--volume", "volumes", multiple=True, metavar="SOURCE:TARGET:ro", help="Seen while the image is built.")
@click.option("--requirements", type=ARCHIVE, help="Wheels to download for /wheels. [requirements/run.txt, if there]")
@click.option("--locked", is_flag=True, help="Refuse Debian packages that differ from requirements/debian-*.txt.")
@ARCHITECTURE
def get_image(
    dockerfile: Path,
    tag: str,
    base: str | None,
    args: tuple[str, ...],
    volumes: tuple[str, ...],
    requirements: Path | None,
    architecture: str,
    *,
    locked: bool,
) -> None:
    """Build an image of this checkout and print the path of its archive, and how its packages differ from the lock."""
    wrong = next((arg for arg in args if "=" not in arg), None)
    if wrong:
        raise click.BadParameter(f"{wrong!r} is not KEY=VALUE", param_hint="--build-arg")
    usual = dockerfile.parent / REQUIREMENTS
    archive = images.image(
        tag,
        dockerfile=dockerfile,
        base_tag=base,
        args=dict(arg.split("=", 1) for arg in args),
        volumes=volumes,
        requirements=requirements or (usual if usual.exists() else None),
        architecture=architecture,
    )
    lock = packages.lock_of(architecture)
    found = dockerfile.parent / lock
    drift = packages.drift(found, archive) if found.exists() else []
    for line in drift:
        say(f"{lock}: {line}")
    if locked and (drift or not found.exists()):
        raise TestbedError(f"{tag} is not what {lock} locks: run `make packages`, read the difference and commit it")
    click.echo(archive)


@main.command("packages")
@click.option("--tag", required=True, help="The image's name.")
@ARCHITECTURE
def lock_packages(tag: str, architecture: str) -> None:
    """Build kavip's image of this checkout, and lock its Debian packages."""
    dockerfile, lock = Path("Dockerfile").absolute(), packages.lock_of(architecture)
    archive = images.image(tag, dockerfile=dockerfile, requirements=REQUIREMENTS, architecture=architecture)
    for line in packages.drift(lock, archive):
        say(line)
    packages.write(lock, archive)


@main.command()
@NAME
@click.option("--nodes", default=3, show_default=True)
@click.option("--load", "archives", multiple=True, type=ARCHIVE, help="An image archive for every node.")
@click.option("--ipv4-only", "families", flag_value="4", help="No IPv6 address anywhere.")
@click.option("--ipv6-only", "families", flag_value="6", help="No IPv4 address anywhere.")
@click.option("--dns", is_flag=True, help="Run CoreDNS, so that pods resolve the names of Services.")
def up(name: str, nodes: int, archives: tuple[Path, ...], families: str | None, *, dns: bool) -> None:
    """Start a cluster and leave it running."""
    runs.sweep()
    built = programs.ensure((*programs.CLUSTER, "coredns") if dns else programs.CLUSTER)
    state = runs.create(name)
    spoken = (int(families),) if families else BOTH
    cluster = Cluster(built, state, nodes=nodes, images=archives, families=spoken, with_dns=dns)
    try:
        with step(f"Start cluster {name}", f"{nodes} nodes, each a set of namespaces; ten seconds or so"):
            cluster.start()
    except BaseException:
        runs.remove(state)
        raise
    runs.detach(state)
    click.echo(
        f'export PATH="{state / "bin"}:$PATH"   # kubectl, kubectl-kavip and helm of this cluster, client and cable'
    )
    say(f"its kubeconfig: {cluster.kubeconfig} (the API server answers in the network of n0: {cluster.control.netns})")
    say(
        f"`kubectl port-forward` listens in that network: nsenter --net={cluster.control.netns} curl http://127.0.0.1:..."
    )
    say("a machine on its segment that is no node: client curl http://...")
    say("to pull the cable of a node, and to plug it in again: cable n1 down; cable n1 up")
    say("to ask kavip of this checkout: kubectl kavip explain ns/name")
    say(f"to see it in a browser on this machine: hack/venv python -m hack.testbed ui --name {name}")
    say(f"to load an image into its nodes: hack/venv python -m hack.testbed load --name {name} $(make image)")
    say("to install it there: helm install ... --set image.repository=localhost/kavip --set image.tag=dev")
    say(f"to remove it: hack/venv python -m hack.testbed down --name {name}")


@main.command()
@NAME
@click.option("--all", "everything", is_flag=True, help="Every run of this user, also those of tests that still run.")
def down(name: str, everything: bool) -> None:
    """Remove a cluster: processes, mounts, namespaces, cgroups and files, however its starter ended.

    Whatever other runs left behind when they were killed goes too.
    """
    swept = runs.sweep()
    wanted = runs.names() if everything else [name]
    for victim in wanted:
        if victim in runs.names():
            runs.remove(runs.folder() / victim)
        elif victim not in swept:
            say(f"there is no run named {victim}")
            continue
        say(f"removed {victim}")
    for victim in set(swept) - set(wanted):
        say(f"removed {victim}, left behind by a run that was killed")


@main.command()
@NAME
@click.argument("archives", nargs=-1, required=True, type=ARCHIVE)
def load(name: str, archives: tuple[Path, ...]) -> None:
    """Import image archives into all nodes of a running cluster."""
    cluster = Cluster.attach(programs.ensure(), runs.folder() / name)
    for number, archive in enumerate(archives, start=1):
        size = f"{archive.stat().st_size / 2**20:.0f} MiB into each of {len(cluster.nodes)} nodes"
        with step(f"Load {archive.name}", size, done=number, of=len(archives)):
            cluster.load(archive)


@main.command()
@NAME
def ui(name: str) -> None:
    """Serve the live picture of a running cluster until interrupted, with a link for a browser on this machine."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the default ends this process, and not those it started
    cluster = Cluster.attach(programs.ensure(), runs.folder() / name)
    with livepage.served(cluster, messages=None) as link, suppress(KeyboardInterrupt):
        click.echo(f"Open {link}")
        threading.Event().wait()


@main.command()
def status() -> None:
    """Show what runs, and what was left behind."""
    if not runs.names():
        say("nothing runs")
    for name in runs.names():
        click.echo(f"{name}\t{runs.describe(runs.folder() / name)}")


if __name__ == "__main__":
    try:
        main()
    except TestbedError as error:
        say(f"testbed: {error}")
        sys.exit(1)
