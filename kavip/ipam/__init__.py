"""
Which addresses a Service may have, and why not: parse, validate, allocate. PURE: integers, intervals and counters.

From the edge inwards:

* :mod:`~kavip.ipam.ranges`: ranges of addresses as integers;
* :mod:`~kavip.ipam.annotations`: the annotations that ipam reads, each with its parser;
* :mod:`~kavip.ipam.record`: which addresses kavip assigned to a Service, as its own condition records it;
* :mod:`~kavip.ipam.request`: what a Service requests;
* :mod:`~kavip.ipam.pool`, :mod:`~kavip.ipam.pools`: which addresses VIPPools may assign, to which Services;
* :mod:`~kavip.ipam.eligibility`: which pools serve a request, without evaluating every pool;
* :mod:`~kavip.ipam.ledger`: which Service holds which address, what is free, which Services wait;
* :mod:`~kavip.ipam.allocate`: the decision, for webhook and controller;
* :mod:`~kavip.ipam.ownership`: what a Service holds, and whether it may keep it;
* :mod:`~kavip.ipam.selection`: how pool and addresses are selected;
* :mod:`~kavip.ipam.outcome`: the outcome, with reason and message;
* :mod:`~kavip.ipam.messages`: the messages of refusals;
* :mod:`~kavip.ipam.explain`: the same decision, pool by pool and rule by rule;
* :mod:`~kavip.ipam.impact`: which Services an edit of a pool would strand;
* :mod:`~kavip.ipam.nodeaddresses`: which addresses that a node reports are its own, and which are VIPs.
"""
