"""
``kavip render``.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kavip import names
from kavip.cli import flags
from kavip.cli.printing import echo

if TYPE_CHECKING:
    from kavip.cli.views.simulate import Simulation
    from kavip.cli.views.static import StaticGroup

_IMAGE: Final = "kavip:latest"


@click.command()
@flags.FILES
@flags.group_namespaces
@click.option("--group", default="", help="ns/name of one group; empty: all")
@click.option(
    "--static",
    "shape",
    is_flag=False,
    flag_value="pod",
    type=click.Choice(("pod", "kubeadm", "k3s", "machineconfig", "butane", "unit", "rbac")),
    help="run the groups without an API server: as static pods, also in the shape of a platform, or from files for "
    "systemd; rbac: the account that --follow-nodes needs",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    help="NAME=ADDRESS[,ADDRESS] of a node of the groups, in addition to those in files",
)
@click.option(
    "--follow-nodes",
    is_flag=True,
    help="the agents keep the nodes current: they read the Nodes that match the nodeSelector of the group",
)
@click.option("--bootstrap", default="", help="with --follow-nodes: the node that ranks first until its kavip stops")
@click.option("--image", default=_IMAGE, show_default=True, help="kavip's image in static pods")
@click.option("--output-dir", type=click.Path(path_type=Path), help="where --static unit writes NODE/etc/...")
def render(
    *,
    paths: tuple[Path, ...],
    group_namespaces: tuple[str, ...],
    group: str,
    shape: str | None,
    nodes: tuple[str, ...],
    follow_nodes: bool,
    bootstrap: str,
    image: str,
    output_dir: Path | None,
) -> None:
    """
    Print the keepalived.conf of each group in files, with the lines of its template.

    With --static, print static pods instead, the same for every node, or in the shape of a platform, or write the files
    of systemd units for each node. Exit status: 0 all is printed, 1 an object is refused, or a template cannot be used,
    2 a file cannot be read, or there is no group.
    """
    from kavip.admission.chain import PolicyOptions
    from kavip.cli.sources import files
    from kavip.cli.views import planoutput, simulate, static, staticnodes, staticplatforms
    from kavip.podtemplate.permissions import ALL_PERMITTED
    from kavip.reconcile.plan import ReconcileOptions
    from kavip.rendering import process

    _check_usage(shape, follow_nodes=follow_nodes, bootstrap=bootstrap, image=image)
    given, templates = files.load_with_templates(paths)
    static.check_group(group, given)
    simulated = simulate.plan(
        staticnodes.with_nodes(nodes, given),
        group_namespaces=group_namespaces,
        settings=PolicyOptions(templates=ALL_PERMITTED),
        options=ReconcileOptions(image=image, templates=ALL_PERMITTED, compact_text=shape is None),
        templates=templates,
        render=process.render_now,
    )
    problems = planoutput.template_problems(simulated, group)
    refusals = planoutput.refusals(simulated)
    for line in (*problems, *planoutput.untried_templates(simulated, group), *refusals):
        echo(line, err=True)
    if shape is None:
        _print_texts(simulated, group)
    if shape is None or refusals or problems:
        sys.exit(1 if refusals or problems else 0)
    following = static.Following(bootstrap) if follow_nodes else None
    chosen = [each for each in simulated.objects if group in ("", static.key_of(each))]
    groups = static.groups_of(chosen, following=following)
    if shape == "rbac":
        _print_objects(objects for each in groups for objects in staticplatforms.account(each))
        return
    _print_requirements(groups, simulated)
    if shape == "unit":
        _write_units(groups, simulated, output_dir)
        return
    _print_pods(groups, shape, image=image)


def _check_usage(shape: str | None, *, follow_nodes: bool, bootstrap: str, image: str) -> None:
    """Raise an error for options that have no effect, and for an image that no node could pull."""
    from kavip.api.naming import is_image
    from kavip.errors import BadInput

    if follow_nodes and shape is None:
        raise click.UsageError("--follow-nodes needs --static: a keepalived.conf alone has fixed peers")
    if bootstrap and not follow_nodes:
        raise click.UsageError("--bootstrap needs --follow-nodes")
    if not is_image(image):
        raise BadInput("--image", image, "want an image, such as registry.example/kavip:1.0")


def _print_texts(simulated: "Simulation", group: str) -> None:
    """Print the keepalived.conf of *group*, or of all."""
    for key, text in simulated.configurations.items():
        if group in ("", key):
            click.echo(text, nl=False)


def _print_pods(groups: Sequence["StaticGroup"], shape: str, *, image: str) -> None:
    """Print the pods of *groups* in *shape*, and where they belong."""
    from kavip.cli.views import static, staticplatforms

    if image == _IMAGE:
        echo(f"the pods run {image}: name the image that their nodes have, or can pull, with --image", err=True)
    if shape == "butane":
        _print_objects([staticplatforms.butane(groups)])
    elif shape == "machineconfig":
        _print_objects(map(staticplatforms.machine_config, groups))
    else:
        for each in groups if shape in staticplatforms.FOLDERS else ():
            path = staticplatforms.path_on_node(each, shape)
            echo(f"{each.key}: belongs into {path} on each node", err=True)
        _print_objects(map(static.static_pod, groups))


def _print_objects(objects: Iterable[Mapping[str, Any]]) -> None:
    from kavip.cli.views import static

    for each in objects:
        click.echo(static.yaml_of(each), nl=False)


def _print_requirements(groups: Sequence["StaticGroup"], simulated: "Simulation") -> None:
    """Print what each group needs on its nodes; raises an error for a group without a node."""
    from kavip.cli.views import static, staticnodes

    for each in groups:
        group = simulated.snapshot.groups[each.key]
        if not (nodes := simulated.snapshot.group_nodes(group)):
            raise click.UsageError(f"group {each.key} has no node: name them with --node NAME=ADDRESS")
        config = each.config_map["data"][names.CONFIG_KEY]
        lacking = staticnodes.lacking_families(config, nodes) if group.spec.unicast_enabled else ()
        for line in (*lacking, *static.required_files(each)):
            echo(f"{each.key}: {line}", err=True)


def _write_units(groups: Sequence["StaticGroup"], simulated: "Simulation", folder: Path | None) -> None:
    from kavip.cli.views import static

    if folder is None:
        raise click.UsageError("--static unit needs --output-dir")
    for each in groups:
        nodes = simulated.snapshot.group_nodes(simulated.snapshot.groups[each.key])
        for path, text in static.systemd_files(each, nodes).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
