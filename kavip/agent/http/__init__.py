"""
The agent's port: ``/livez``, ``/readyz``, ``/state``, ``/metrics``, over plain HTTP on the node's address.

* :mod:`~kavip.agent.http.server`: requests and answers;
* :mod:`~kavip.agent.http.connections`: how many connections, and of which clients.
"""
