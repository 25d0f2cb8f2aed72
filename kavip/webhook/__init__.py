"""
Admission: the policy (pure), the mutation (pure), the server, its certificates and its registration.

* :mod:`~kavip.webhook.policy`: ``review(review, snapshot) -> Verdict``; the chains of checks stand in
  :mod:`~kavip.webhook.services`, :mod:`~kavip.webhook.groups` and :mod:`~kavip.webhook.pools`, what they are made of in
  :mod:`~kavip.webhook.checks`. They ask :mod:`~kavip.webhook.addresses` (what the controller would decide),
  :mod:`~kavip.webhook.externals` and :mod:`~kavip.webhook.access` (external IPs, and who is exempt),
  :mod:`~kavip.webhook.capacity` (VRIDs that are left), :mod:`~kavip.webhook.moves` (what an edit moves).
* :mod:`~kavip.webhook.mutation`: what kavip fills in for the user.
* :mod:`~kavip.webhook.verdict`: a verdict, and what the user gets to read of it.
* :mod:`~kavip.webhook.server`: TLS, the five paths, errors, readiness; :mod:`~kavip.webhook.body`: what it reads.
* :mod:`~kavip.webhook.keeper`: how the certificate comes, by mode: :mod:`~kavip.webhook.rotation` of kavip's own CA
  (:mod:`~kavip.webhook.authority`), or :mod:`~kavip.webhook.provided` by others (:mod:`~kavip.webhook.candidate`);
  both see to ``caBundle`` by a :mod:`~kavip.webhook.publisher` (and to :mod:`~kavip.webhook.strangers` in it), and are
  woken by a :mod:`~kavip.webhook.lookout`.
* :mod:`~kavip.webhook.certs`, :mod:`~kavip.webhook.tls`: certificates as values, and as what OpenSSL serves.
* :mod:`~kavip.webhook.registration`: the webhook configurations as data.

Admission proposes, the leader decides: nothing is reserved here, and the controller repeats every check.
"""
