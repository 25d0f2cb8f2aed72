"""
HTTP servers: what the webhook, the probes, the metrics and the agent share.

* :mod:`~kavip.http.sockets`: listening sockets, in both address families;
* :mod:`~kavip.http.listener`: an aiohttp server with bounded connections;
* :mod:`~kavip.http.ports`: ``/livez`` and ``/readyz``, and ``/metrics``.
"""
