"""
The admission webhook: the TLS server on port 9443, its authorization for external IPs, and its certificates.

* :mod:`~kavip.webhook.server`: TLS, the five paths, errors, readiness;
* :mod:`~kavip.webhook.body`: reads a request body within limits of size, time and memory;
* :mod:`~kavip.webhook.budget`: the bytes that large bodies hold together, in fair shares;
* :mod:`~kavip.webhook.senders`: which clients are API servers or Nodes, by their addresses;
* :mod:`~kavip.webhook.authorizer`: whether a user may set any external IP, by SubjectAccessReview;
* :mod:`~kavip.webhook.certs`: where the certificate comes from.

The decisions themselves are in :mod:`kavip.admission`.
"""
