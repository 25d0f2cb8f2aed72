"""
The admission webhook: the TLS server on 9443, who may bypass the rules for external IPs, and its certificates.

* :mod:`~kavip.webhook.server`: TLS, the five paths, errors, readiness; :mod:`~kavip.webhook.body`: what it reads.
* :mod:`~kavip.webhook.access`: asks the API server whether a user may set external IPs.
* :mod:`~kavip.webhook.keeper`: how the certificate comes, by mode: :mod:`~kavip.webhook.rotation` of kavip's own CA
  (:mod:`~kavip.webhook.authority`), or :mod:`~kavip.webhook.provided` by others (:mod:`~kavip.webhook.candidate`);
  both see to ``caBundle`` by a :mod:`~kavip.webhook.publisher` (and to :mod:`~kavip.webhook.strangers` in it), and are
  woken by a :mod:`~kavip.webhook.lookout`.
* :mod:`~kavip.webhook.certs`, :mod:`~kavip.webhook.tls`: certificates as values, and as what OpenSSL serves.

The decisions themselves are in :mod:`kavip.admission`.
"""
