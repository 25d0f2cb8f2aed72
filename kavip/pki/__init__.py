"""
Certificates as values: issue, verify, and decide when to renew. PURE.

* :mod:`~kavip.pki.certificates`: a key pair; the CAs and leaves that kavip issues, and their lifetimes;
* :mod:`~kavip.pki.verification`: whether an API server would accept a certificate;
* :mod:`~kavip.pki.trust`: what the API server trusts, as far as webhooks are registered;
* :mod:`~kavip.pki.trustbundle`: the CAs of a ``caBundle``, and the unknown ones among them;
* :mod:`~kavip.pki.cabundleconfigmap`: the bundle in the ConfigMap from the webhook to the controller;
* :mod:`~kavip.pki.ca`: the CA that all replicas share, and the Secret that holds it;
* :mod:`~kavip.pki.provided`: a certificate that another program wrote into a Secret.
"""
