"""
HTTP servers on plain sockets: what the webhook, the probes, the metrics and the agent share.

* :mod:`~kavip.http.sockets`: sockets that listen on every family of a host;
* :mod:`~kavip.http.listener`: an aiohttp server whose connections are bounded in number, idle time and body;
* :mod:`~kavip.http.ports`: ``/livez`` and ``/readyz``, and ``/metrics``.
"""
