"""
Where the certificate of the webhook comes from, and how the API server comes to trust it.

* :mod:`~kavip.webhook.certs.source`: the certificate source for a ``certs.mode``;
* :mod:`~kavip.webhook.certs.selfsigned`: ``self``: a dynamic authority; its CA is shared by all replicas;
* :mod:`~kavip.webhook.certs.provided`: the other modes: another program writes the certificate into a Secret;
* :mod:`~kavip.webhook.certs.cabundle`: reads and injects ``caBundle`` of the webhook configurations;
* :mod:`~kavip.webhook.certs.watch`: watches the Secret and the configurations;
* :mod:`~kavip.webhook.certs.clientca`: the CA of the client certificates of API servers;
* :mod:`~kavip.webhook.certs.tls`: the TLS context that serves a certificate, and requests one of clients.

The certificates themselves are values of :mod:`kavip.pki`.
"""
