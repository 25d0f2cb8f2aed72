"""
Where the certificate of the webhook comes from, and how the API server comes to trust it.

* :mod:`~kavip.webhook.certs.source`: the certificate source for a ``certs.mode``;
* :mod:`~kavip.webhook.certs.selfsigned`: ``self``: a dynamic authority; its CA is shared by all replicas;
* :mod:`~kavip.webhook.certs.provided`: the other modes: another program writes the certificate into a Secret;
* :mod:`~kavip.webhook.certs.cabundle`: reads ``caBundle`` of the webhook configurations; injects it, or hands it over;
* :mod:`~kavip.webhook.certs.registrar`: writes the webhook configurations completely;
* :mod:`~kavip.webhook.certs.cainjector`: on the controller's leader: injects what a webhook has handed over;
* :mod:`~kavip.webhook.certs.olm`: what the Operator Lifecycle Manager does for a kavip that it runs;
* :mod:`~kavip.webhook.certs.watch`: watches the Secret or ConfigMap, and the configurations;
* :mod:`~kavip.webhook.certs.clientca`: the CA of the client certificates of API servers.

The certificates themselves are values of :mod:`kavip.pki`.
"""
