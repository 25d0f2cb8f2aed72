"""
The admission webhook: the TLS server on 9443, who may bypass the rules for external IPs, and its certificates.

* :mod:`~kavip.webhook.server`: TLS, the five paths, errors, readiness;
* :mod:`~kavip.webhook.body`: reads a request body within bounds of size and time;
* :mod:`~kavip.webhook.authorizer`: asks the API server whether a user may set external IPs;
* :mod:`~kavip.webhook.certs`: where the certificate comes from.

The decisions themselves are in :mod:`kavip.admission`.
"""
