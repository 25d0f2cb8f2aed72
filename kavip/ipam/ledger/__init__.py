"""
Every address that is held, by whom, and what is free. PURE: it changes as objects come and go, never in a decision.

* :mod:`~kavip.ipam.ledger.ledger`: the questions that a decision asks;
* :mod:`~kavip.ipam.ledger.book`: enters Services, pools and reservations as they come and go;
* :mod:`~kavip.ipam.ledger.claims`: who holds one address, who may share it, who wins it;
* :mod:`~kavip.ipam.ledger.tenants`: all claims on all addresses;
* :mod:`~kavip.ipam.ledger.owners`: addresses that belong to nodes, groups and the cluster;
* :mod:`~kavip.ipam.ledger.holdings`: what one Service holds, writes that the watch has not shown included;
* :mod:`~kavip.ipam.ledger.sharing`: the addresses of each sharing key, by port;
* :mod:`~kavip.ipam.ledger.freelist`: the lowest free address of a pool;
* :mod:`~kavip.ipam.ledger.usage`: counters per pool and family, quota per namespace;
* :mod:`~kavip.ipam.ledger.cooldown`: freed addresses that stay reserved for their previous Service for a while;
* :mod:`~kavip.ipam.ledger.waiters`: which Services wait for which pools.
"""
