"""A cluster with kavip and web servers, for one test."""

from collections.abc import Iterator
from contextlib import contextmanager

from hack.demo.session import Session
from hack.testbed.cluster import Cluster
from tests.cluster.provisioning import (
    apply_objects,
    create_namespaces,
    delete_objects,
    release,
    retry_kubectl,
    web_deployment,
)

SHOP = "shop"
"""The namespace of the web servers."""


@contextmanager
def site(cluster: Cluster, *namespaces: str) -> Iterator[Session]:
    """
    kavip, a web server for each node, and *namespaces* during the block.

    Services in these namespaces, and all groups and pools, are deleted at the end.
    """
    cluster.helm("upgrade", "--install", *release(cluster), "--create-namespace", "--set=image.pullPolicy=Never")
    create_namespaces(cluster, SHOP, *namespaces)
    apply_objects(cluster, web_deployment(replicas=len(cluster.nodes)))
    retry_kubectl(cluster, "rollout", "status", "deployment/web", f"--namespace={SHOP}", "--timeout=100s")
    try:
        yield Session(cluster)
    finally:
        delete_objects(
            cluster,
            *(("services", "--all", f"--namespace={each}") for each in (SHOP, *namespaces)),
            ("namespaces", SHOP, "lb", *(each for each in namespaces if each != "lb"), "--wait=false"),
            ("vippool", "--all"),
        )
