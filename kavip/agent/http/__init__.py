"""
The agent's port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``, over plain HTTP on the node's address.

* :mod:`~kavip.agent.http.server`: requests and answers; :mod:`~kavip.agent.http.connections`: how many, and whose;
* :mod:`~kavip.agent.http.state`: the body of ``/state``;
* :mod:`~kavip.agent.http.metrics`: kavip's metrics; :mod:`~kavip.agent.http.exporters`: keepalived's, by the names of
  other exporters.
"""
