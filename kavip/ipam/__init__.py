"""
Which address may a Service have, and why not: parse, validate, allocate.

Pure: integers, sorted intervals and counters; no I/O, no clock, no randomness. From the edge inwards:

* :mod:`.addresses`: ranges of addresses as integers;
* :mod:`.annotations`: the annotations that are read here, each with its parser;
* :mod:`.request`: a Service -> what it asks for;
* :mod:`.pool`, :mod:`.pools`: VIPPools -> what may be handed out, to whom, in which order; what is wrong with them;
* :mod:`.audience`: whom pools serve, found without a look at each pool;
* :mod:`.claims`: who holds one address, who may share it, who wins it; :mod:`.tenants`: all claims on all addresses;
* :mod:`.space`, :mod:`.stock`: the lowest free address, and how many there are; :mod:`.sharing`: those of a key;
* :mod:`.holding`: what one Service holds, unseen writes included; :mod:`.waiting`: who waits for which pool;
* :mod:`.register`, :mod:`.owners`: all of this entered as Services come and go; :mod:`.ledger`: what is asked of it;
* :mod:`.reported`: which of the addresses that a node reports are VIPs, and not its own;
* :mod:`.allocate`: request, pools and ledger -> addresses with a reason, or a refusal; :mod:`.case`: how;
  :mod:`.tenure`: what the Service holds and keeps; :mod:`.reasons`: in which words;
* :mod:`.explain`: the same decision, pool by pool and rule by rule;
* :mod:`.rest`: addresses that were freed a while ago, and are not given to others yet;
* :mod:`.platform`: whether somebody else gives a Service its addresses;
* :mod:`.stranding`: whom an edit of a pool would strand.
"""
