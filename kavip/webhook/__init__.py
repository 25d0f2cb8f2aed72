"""
Admission: the policy (pure), the mutation (pure), the server, its certificates and its registration.

* :mod:`~kavip.webhook.policy`: ``review(review, snapshot) -> Verdict``; the chains of checks stand in
  :mod:`~kavip.webhook.services`, :mod:`~kavip.webhook.groups` and :mod:`~kavip.webhook.pools`.
* :mod:`~kavip.webhook.mutation`: what kavip fills in for the user.
* :mod:`~kavip.webhook.verdict`: a verdict, and what the user gets to read of it.
* :mod:`~kavip.webhook.server`: TLS, the five paths, errors, readiness.
* :mod:`~kavip.webhook.certs`, :mod:`~kavip.webhook.rotation`: CA, leaves, and keeping the ``caBundle``.
* :mod:`~kavip.webhook.registration`: the webhook configurations as data.

Admission proposes, the leader decides: nothing is reserved here, and the controller repeats every check.
"""
