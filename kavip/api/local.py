"""``locals`` of the key ``agent.json``: how the agent of a node finds out whether a Service answers there."""

from kavip.api.meta import Wire


class Local(Wire, frozen=True):
    """
    What the track file *track* is to say: whether a Service with ``externalTrafficPolicy: Local`` answers on the node.

    It does where kube-proxy's health port *port* says so; or, of a Service without such a port, on *nodes*.
    """

    track: str
    port: int = 0
    nodes: tuple[str, ...] = ()
