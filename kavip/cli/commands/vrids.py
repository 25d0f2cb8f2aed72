"""
``kavip vrids``.
"""

import click


@click.command()
@click.argument("cluster_name")
def vrids(cluster_name: str) -> None:
    """
    Print the VRIDs of an OpenShift IPI cluster.

    The cluster CLUSTER_NAME uses them on its segment.
    """
    from kavip.vrrp import openshift

    ids = openshift.router_ids(cluster_name)
    click.echo(f"api {ids.api}\ningress {ids.ingress}\ndns {ids.dns} (OpenShift 4.7 and older)")
