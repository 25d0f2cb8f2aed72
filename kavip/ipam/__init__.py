"""
Which addresses may a Service have, and why not: parse, validate, allocate. PURE: integers, intervals and counters.

From the edge inwards:

* :mod:`~kavip.ipam.ranges`: ranges of addresses as integers;
* :mod:`~kavip.ipam.annotations`: the annotations that are read here, each with its parser;
* :mod:`~kavip.ipam.record`: which addresses kavip assigned to a Service, as its own condition records it;
* :mod:`~kavip.ipam.request`: what a Service asks for;
* :mod:`~kavip.ipam.pool`, :mod:`~kavip.ipam.pools`: what VIPPools may hand out, to whom, in which order;
* :mod:`~kavip.ipam.eligibility`: which pools serve a request, found without a look at each pool;
* :mod:`~kavip.ipam.ledger`: who holds which address, what is free, who waits;
* :mod:`~kavip.ipam.ownership`: which addresses of a Service kavip gave, and whether it may keep them;
* :mod:`~kavip.ipam.allocate`: the decision; :mod:`~kavip.ipam.selection`: how pool and address are chosen;
* :mod:`~kavip.ipam.messages`: reasons and remedies in words;
* :mod:`~kavip.ipam.explain`: the same decision, pool by pool and rule by rule;
* :mod:`~kavip.ipam.impact`: which Services an edit of a pool would strand;
* :mod:`~kavip.ipam.nodeaddresses`: which addresses that a node reports are its own, and which are VIPs;
* :mod:`~kavip.ipam.platform`: whether the platform assigns the addresses.
"""
