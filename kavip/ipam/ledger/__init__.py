"""
The ledger: every address that is held, by which Service, and every address that is free.

PURE. The ledger changes when objects come and go; a decision only reads it.

* :mod:`~kavip.ipam.ledger.ledger`: what is observed and expected of each Service; which Services to requeue;
* :mod:`~kavip.ipam.ledger.book`: the state of each address, kept consistent over all indexes;
* :mod:`~kavip.ipam.ledger.offers`: which address a pool can offer to a request;
* :mod:`~kavip.ipam.ledger.claims`: which Services claim an address, and which of them keep it;
* :mod:`~kavip.ipam.ledger.sharing`: which Services may share an address;
* :mod:`~kavip.ipam.ledger.holdings`: what one Service holds, writes that the watch has not shown included;
* :mod:`~kavip.ipam.ledger.freelist`: the lowest free address of a pool;
* :mod:`~kavip.ipam.ledger.usage`: free addresses, counters and quotas of the pools;
* :mod:`~kavip.ipam.ledger.cooldown`: freed addresses that stay reserved for their previous Service for a while;
* :mod:`~kavip.ipam.ledger.freed`: which freed addresses give way if there are too many;
* :mod:`~kavip.ipam.ledger.waiters`: which Services wait for which pools.
"""
