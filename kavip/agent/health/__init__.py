"""
Whether this node can serve: health checks of the group, and endpoints of Services with policy ``Local``.

* :mod:`~kavip.agent.health.nodehealth`: both, and the track files that carry them to keepalived;
* :mod:`~kavip.agent.health.checks`: runs the checks; :mod:`~kavip.agent.health.probe`: one HTTP probe;
* :mod:`~kavip.agent.health.endpoints`: which Services have an endpoint here, asked of
  :mod:`~kavip.agent.health.kubeproxy`.
"""
