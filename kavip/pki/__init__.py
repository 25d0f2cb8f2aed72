"""
Certificates as values: what they hold, when they are due, and what is wrong with them. PURE.

* :mod:`~kavip.pki.certificates`: a CA, the leaves that it signs, their lifetimes;
* :mod:`~kavip.pki.ca`: the CA that all replicas share, as its Secret holds it;
* :mod:`~kavip.pki.candidate`: a certificate that somebody else put into a Secret: may it be served;
* :mod:`~kavip.pki.strangers`: CAs in a bundle that no Secret of kavip holds.
"""
