"""
HTTP servers: what the webhook, the probes, the metrics and the agent share.

* :mod:`~kavip.http.sockets`: listening sockets, in both address families;
* :mod:`~kavip.http.listener`: an aiohttp server with a bounded number of connections;
* :mod:`~kavip.http.connection`: one of them, with its deadlines;
* :mod:`~kavip.http.shares`: which connection a new one displaces, here and on the agent's port;
* :mod:`~kavip.http.tls`: the TLS context that serves a certificate, and requests one of clients;
* :mod:`~kavip.http.servingcertificate`: the certificate of the metrics, from files or self-signed;
* :mod:`~kavip.http.bearertoken`: access to a port by bearer token;
* :mod:`~kavip.http.ratelimit`: a rate limit for each sender;
* :mod:`~kavip.http.ports`: ``/livez`` and ``/readyz``, and ``/metrics``.
"""
