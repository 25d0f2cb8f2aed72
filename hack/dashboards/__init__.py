"""
The table of kavip's dashboards for Grafana: their rows and panels, and what each panel asks Prometheus.

``make reference`` writes it as JSON (:mod:`hack.dashboards.grafana`). Queries drop the labels of the target unless the
panel is about nodes. A node is the target of its agent (the label ``instance``). The job of an agent is its group, as
the Prometheus operator names it for the PodMonitor of the group.
"""

from typing import Final

from hack.dashboards.admission import ADMISSION
from hack.dashboards.allocator import ALLOCATOR
from hack.dashboards.cluster import CLUSTER
from hack.dashboards.group import GROUPS
from hack.dashboards.node import NODES

DASHBOARDS: Final = (CLUSTER, GROUPS, NODES, ADMISSION, ALLOCATOR)
"""In the order of the documentation."""
