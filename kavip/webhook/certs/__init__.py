"""
How the webhook comes to its certificate, and how the API server comes to trust it.

* :mod:`~kavip.webhook.certs.source`: chooses by ``certs.mode``;
* :mod:`~kavip.webhook.certs.selfsigned`: kavip's own CA, shared by all replicas, and its rotation;
* :mod:`~kavip.webhook.certs.provided`: a certificate that somebody else makes;
* :mod:`~kavip.webhook.certs.cabundle`: writes ``caBundle`` into the webhook configurations;
* :mod:`~kavip.webhook.certs.watch`: watches the Secret and the configurations;
* :mod:`~kavip.webhook.certs.tls`: the TLS context that serves a certificate.

The certificates themselves are values of :mod:`kavip.pki`.
"""
